"""``make bench-merging``: seconds of a merge, forms side by side in one run.

Inputs are random updates in memory: LoRA experts of the shapes of a three-layer encoder of width
384 (K = 8, r = 8), and of one square layer of 2048 and of 4096 (K = 8, r = 16). Forms take turns
(A B C A B C ...), and ratios are taken turn by turn, so a machine that slows down in between does
not decide. One thread unless OMP_NUM_THREADS says otherwise. Slow forms (dense decompositions) run
once on the encoder, and on wide layers only with ``--published``.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from lamps_plugins.model_merging._rules.circumerge import circumerge
from lamps_plugins.model_merging._rules.core_space import core_space
from lamps_plugins.model_merging._rules.dare import dare, mask_seeds
from lamps_plugins.model_merging._rules.iso import iso_c, iso_cts
from lamps_plugins.model_merging._rules.knots import knots, knots_dense
from lamps_plugins.model_merging._rules.linear import average, task_arithmetic
from lamps_plugins.model_merging._rules.lowrank import LowRank
from lamps_plugins.model_merging._rules.star import star
from lamps_plugins.model_merging._rules.svc import svc
from lamps_plugins.model_merging._rules.ties import ties_layer, ties_model
from lamps_plugins.model_merging._rules.tsv import tsv_merge
from merging_by_fusion_bench import times as fusion_bench_times
from torch import Tensor, nn

Forms = Mapping[str, Callable[[], object]]
Rule = Callable[[Tensor], Tensor]

K = 8
GOAL = 0.56
SHAPES = {
    "encoder, r 8": ((12, 384, 384, 8), (3, 1536, 384, 8), (3, 384, 1536, 8)),
    "2048, r 16": ((1, 2048, 2048, 16),),
    "4096, r 16": ((1, 4096, 4096, 16),),
}
"""Layers, rows, columns and rank of the groups of each input."""

RULES: dict[str, Rule] = {"TA": average, "TIES": functools.partial(ties_layer, keep=0.2)}
OURS = "CircuMerge os 2"
JUDGED = ("KnOTS published", "Core Space SVD")
"""Forms that the published claim is about."""


@dataclass(frozen=True, slots=True)
class Row:
    """Times of one form, and those of ours as a share of it.

    Args:
        input: Which input.
        rule: Which rule.
        form: What was timed.
        ms: Median, least and greatest milliseconds.
        ratio: Ours (CircuMerge, or the same rule) over this form: median, least, greatest.
        goal: What the ratio should not exceed; None where nothing was promised.
    """

    input: str
    rule: str
    form: str
    ms: tuple[float, float, float]
    ratio: tuple[float, float, float] | None = None
    goal: float | None = None

    @property
    def met(self) -> bool:
        """Whether the promise is kept; True where there is none."""
        return self.goal is None or (self.ratio is not None and self.ratio[0] <= self.goal)


def factors(groups: Sequence[tuple[int, int, int, int]]) -> list[LowRank]:
    """Random LoRA experts."""
    made = torch.Generator().manual_seed(0)
    return [
        LowRank(
            tuple(torch.randn(layers, m, r, generator=made) for _ in range(K)),
            tuple(torch.randn(layers, r, n, generator=made) for _ in range(K)),
        )
        for layers, m, n, r in groups
    ]


def forms(lows: list[LowRank], rule_name: str) -> dict[str, Callable[[], object]]:
    """The quick forms of a rule, by name; each gives factors, but the naive one."""
    rule = RULES[rule_name]
    rank = lows[0].ranks[0]

    def over(call: Callable[[LowRank], object]) -> Callable[[], object]:
        return lambda: [call(low) for low in lows]

    return {
        OURS: over(lambda low: circumerge(low, rule)),
        "CircuMerge os 2, orthonormal": over(lambda low: circumerge(low, rule, orthonormal=True)),
        "CircuMerge os 2, cut to r": over(lambda low: circumerge(low, rule, rank=rank)),
        "Core Space SVD": over(lambda low: core_space(low, rule)),
        "Core Space QR": over(lambda low: core_space(low, rule, bases="qr")),
        "Core Space QR, cut to r": over(lambda low: core_space(low, rule, bases="qr", rank=rank)),
        "KnOTS fast": over(lambda low: knots(low, rule)),
        "naive dense": over(lambda low: rule(low.dense())),
    }


def slow_forms(lows: list[LowRank], rule_name: str) -> dict[str, Callable[[], object]]:
    """Forms that decompose dense matrices, the adapters of peft among them."""
    rule = RULES[rule_name]
    kind = {"TA": "svd", "TIES": "ties_svd"}[rule_name]
    adapted = peft_model(lows)
    more: dict[str, Any] = {"density": 0.2} if kind == "ties_svd" else {}

    def by_peft() -> None:
        adapted.add_weighted_adapter(
            [f"e{k}" for k in range(K)], [1.0 / K] * K, "merged", combination_type=kind, **more
        )
        adapted.delete_adapter("merged")

    return {
        "KnOTS published": lambda: [knots_dense(low.dense(), rule) for low in lows],
        f"peft {kind}": by_peft,
    }


def peft_model(lows: list[LowRank]) -> Any:
    """The same experts as adapters of peft on plain linear layers."""
    from peft import LoraConfig, LoraModel

    layers = {
        f"g{i}l{j}": nn.Linear(low.shape[2], low.shape[1], bias=False)
        for i, low in enumerate(lows)
        for j in range(low.shape[0])
    }
    names = list(layers)
    rank = lows[0].ranks[0]
    config = LoraConfig(r=rank, lora_alpha=rank, target_modules=names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LoraModel(nn.ModuleDict(layers), {"e0": config}, "e0")
        for k in range(1, K):
            model.peft_config[f"e{k}"] = config
            model.inject_adapter(model.model, f"e{k}")
    with torch.no_grad():
        for i, low in enumerate(lows):
            for j in range(low.shape[0]):
                layer = model.model[f"g{i}l{j}"]
                for k in range(K):
                    layer.lora_A[f"e{k}"].weight.copy_(low.a[k][j])
                    layer.lora_B[f"e{k}"].weight.copy_(low.b[k][j])
    return model


def timed(call: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    start = perf_counter()
    call()
    return (perf_counter() - start) * 1000


def in_turns(calls: Forms, repeats: int) -> dict[str, list[float]]:
    """Milliseconds of each call in each turn, after one that warms up."""
    for call in calls.values():
        call()
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            found[name].append(timed(call))
    return found


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, least and greatest."""
    return statistics.median(values), min(values), max(values)


def measure(repeats: int, *, published: bool, inputs: Sequence[str]) -> list[Row]:
    """All rows of factored forms."""
    rows = []
    for name in inputs:
        lows = factors(SHAPES[name])
        for rule in RULES:
            print(f"measuring: {name}, {rule} ...", file=sys.stderr, flush=True)
            times = in_turns(forms(lows, rule), repeats)
            if published or name.startswith("encoder"):
                times |= {form: [timed(call)] for form, call in slow_forms(lows, rule).items()}
            for form, own in times.items():
                shares = [a / b for a, b in zip(times[OURS], own, strict=False)]
                if len(own) == 1:
                    shares = [a / own[0] for a in times[OURS]]
                goal = GOAL if form in JUDGED else None
                rows.append(Row(name, rule, form, spread(own), spread(shares), goal))
    return rows


def dense_rows(repeats: int) -> list[Row]:
    """Times of the rules on dense updates of the encoder."""
    updates = [low.dense() * 1e-3 for low in factors(SHAPES["encoder, r 8"])]
    seeds = [mask_seeds(0, list("abcdefgh"), [str(i) for i in range(d.shape[1])]) for d in updates]

    def over(call: Callable[[Tensor], object]) -> Callable[[], object]:
        return lambda: [call(deltas) for deltas in updates]

    calls: dict[str, Callable[[], object]] = {
        "average": over(average),
        "task-arithmetic": over(task_arithmetic),
        "ties": lambda: ties_model(updates),
        "ties, each layer": over(ties_layer),
        "dare": lambda: [
            task_arithmetic(dare(d, 0.8, s)) for d, s in zip(updates, seeds, strict=True)
        ],
        "tsv-m": over(tsv_merge),
        "iso-c": over(iso_c),
        "iso-cts": over(iso_cts),
        "star": over(star),
        "svc(task-arithmetic)": over(lambda d: svc(d, 0.3 * d.sum(0), alpha=1 / K)),
    }
    print("measuring: rules on dense updates ...", file=sys.stderr, flush=True)
    times = in_turns(calls, repeats)
    rows = [Row("encoder, dense", "-", form, spread(own)) for form, own in times.items()]
    print("measuring: the same by fusion-bench ...", file=sys.stderr, flush=True)
    for form, theirs in fusion_bench_times(updates, repeats).items():
        shares = [a / b for a, b in zip(times[form], theirs, strict=True)]
        rows.append(
            Row("encoder, dense", "-", f"{form}, fusion-bench", spread(theirs), spread(shares))
        )
    return rows


def show(rows: Sequence[Row]) -> None:
    """Print the table on stdout."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for column in ("input", "rule", "form", "ms", "least", "greatest"):
        table.add_column(
            column, justify="right" if column in ("ms", "least", "greatest") else "left"
        )
    for column in ("ours / form", "goal", "met"):
        table.add_column(column, justify="right")
    for row in rows:
        ratio = "" if row.ratio is None else "{:.3g} [{:.3g}, {:.3g}]".format(*row.ratio)
        goal = "" if row.goal is None else f"<= {row.goal:g}"
        met = "" if row.goal is None else ("yes" if row.met else "NO")
        numbers = [f"{value:.3g}" for value in row.ms]
        table.add_row(row.input, row.rule, row.form, *numbers, ratio, goal, met)
    Console(width=140).print(table)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7, help="turns of the quick forms")
    parser.add_argument(
        "--published", action="store_true", help="dense forms at 2048 and 4096 too"
    )
    parser.add_argument("--input", action="append", choices=list(SHAPES), help="only these inputs")
    parser.add_argument("--json", type=Path, help="write the rows into this file as well")
    given = parser.parse_args()
    if given.repeats < 1:
        parser.error(f"--repeats {given.repeats}: expected 1 or more")
    torch.manual_seed(0)
    with torch.no_grad():
        rows = measure(
            given.repeats, published=given.published, inputs=given.input or list(SHAPES)
        )
        rows += dense_rows(min(given.repeats, 3))
    show(rows)
    if given.json:
        given.json.write_text(
            json.dumps([asdict(row) | {"met": row.met} for row in rows], indent=1) + "\n"
        )
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
