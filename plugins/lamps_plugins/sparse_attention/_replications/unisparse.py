"""UniSparse against dense attention, fixed patterns, random blocks and the true masses.

Paper: Liu, Cao, He, arXiv 2512.14082: 99 % of dense attention's accuracy and up to 2.61 times its
speed on a GPU. Here on one CPU core: two small decoders that are trained for the purpose, recall
and continuation of Python sources, and SmolLM2-135M on those sources, whose ``tau`` is chosen on
validation sequences, and made-up sequences about topics. Quality is measured up to 4,096 tokens,
which the small decoders were trained on, time at 8,192. What concerns a GPU is measured where
there is one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from lamps.replication import Ask, Claim, Measurement, Profile, Replication
from lamps.types import Json, digest
from lamps_plugins.sparse_attention import _measure
from lamps_plugins.sparse_attention._items import Heads, Item
from lamps_plugins.sparse_attention._problem import FAMILY, AttentionProblem
from lamps_plugins.sparse_attention._rule import Rule
from lamps_plugins.sparse_attention._topics import Topics, topic_heads
from lamps_plugins.sparse_attention.oracle_mass import OracleMass
from lamps_plugins.sparse_attention.random_blocks import RandomBlocks
from lamps_plugins.sparse_attention.unisparse import UniSparse
from lamps_plugins.sparse_attention.window_sink import WindowSink

DECODERS: Mapping[str, tuple[str, str, str]] = {
    "recall": ("C1", "C1q", "N3"),
    "stdlib": ("C1p", "C1pq", "C1pr"),
    "smollm2": ("C1m", "C1mq", "C1mr"),
}
"""Decoders, with the claims about their time, their quality and that of random blocks."""

TAUS = (0.7, 0.8, 0.9, 0.95, 0.98, 0.995)
"""What is tried on validation sequences; the sparsest that loses at most `LOST` is taken."""

LOST = 0.01
LONG = 8192
SEQUENCES: Mapping[Profile, int] = {"quick": 2, "full": 6}
OF_SMOLLM2: Mapping[Profile, int] = {"quick": 1, "full": 6}
"""Sequences of each length; SmolLM2 takes about a minute for a long one."""

TURNS: Mapping[Profile, int] = {"quick": 7, "full": 20}


class UniSparseReplication(Replication):
    """Time and loss of attention by composites."""

    claims = (
        Claim(
            id="C1",
            statement="With 99 % of recall kept, attention takes two thirds of the time.",
            quantity="seconds of attention at 8,192 tokens, UniSparse with selection / SDPA",
            compare="geometric", direction="<=", threshold=1 / 1.5, source="ours",
        ),
        Claim(
            id="C1q",
            statement="The tau chosen on validation sequences keeps 99 % of recall on test.",
            quantity="share of dense attention's right answers that is gone",
            compare="difference", direction="<=", threshold=LOST, tolerance=0.005,
        ),
        Claim(
            id="C1p",
            statement="With perplexity within 1 %, attention takes two thirds of the time.",
            quantity="seconds of attention at 8,192 tokens, UniSparse with selection / SDPA",
            compare="geometric", direction="<=", threshold=1 / 1.5, source="ours",
        ),
        Claim(
            id="C1pq",
            statement="The tau chosen on validation sequences keeps perplexity on test.",
            quantity="1 - perplexity of dense attention over that of UniSparse",
            compare="difference", direction="<=", threshold=LOST, tolerance=0.005,
        ),
        Claim(
            id="C1pr",
            statement="Perplexity tells: it is no higher than with random blocks.",
            quantity="1 - perplexity ratio to dense attention, UniSparse less random blocks",
            compare="difference", direction="<=", threshold=0.0, source="ours",
        ),
        Claim(
            id="C1m",
            statement="With the perplexity of SmolLM2-135M within 1 %, two thirds of the time.",
            quantity="seconds of attention at 8,192 tokens, UniSparse with selection / SDPA",
            compare="geometric", direction="<=", threshold=1 / 1.5, source="ours",
        ),
        Claim(
            id="C1mq",
            statement="The tau chosen on validation sequences keeps its perplexity on test.",
            quantity="1 - perplexity of dense attention over that of UniSparse",
            compare="difference", direction="<=", threshold=LOST, tolerance=0.005,
        ),
        Claim(
            id="C1mr",
            statement="Its perplexity tells: it is no higher than with random blocks.",
            quantity="1 - perplexity ratio to dense attention, UniSparse less random blocks",
            compare="difference", direction="<=", threshold=0.0, source="ours",
        ),
        Claim(
            id="C1t",
            statement="On sequences about topics it takes at most two thirds of the time.",
            quantity="seconds of attention at 8,192 tokens, UniSparse with selection / SDPA",
            compare="geometric", direction="<=", threshold=1 / 1.5, source="ours",
        ),
        Claim(
            id="C2",
            statement="At equal density it loses less than window and sink, and random blocks.",
            quantity="relative error of attention's output, UniSparse / other",
            compare="geometric", direction="<=", threshold=0.8, source="ours",
        ),
        Claim(
            id="C2o",
            statement="At equal density the true masses do no worse, so scores are no accident.",
            quantity="relative error of attention's output, UniSparse / true masses",
            compare="geometric", direction=">=", threshold=1.0, tolerance=0.05, source="ours",
        ),
        Claim(
            id="C3",
            statement="Selection costs at most 15 % of dense attention from 4,096 tokens on.",
            quantity="seconds of selection / seconds of SDPA",
            compare="difference", direction="<=", threshold=0.15, source="ours",
        ),
        Claim(
            id="G1",
            statement="The kernel with all blocks reaches 0.7 of SDPA's throughput on a GPU.",
            quantity="seconds at 16,384 tokens, width 128, bfloat16: SDPA / kernel",
            compare="geometric", direction=">=", threshold=0.7, source="ours", needs="gpu",
        ),
        Claim(
            id="G2",
            statement="At 65,536 tokens and a quarter of the blocks it is 1.5 times as fast.",
            quantity="seconds of attention, UniSparse with selection / SDPA",
            compare="geometric", direction="<=", threshold=1 / 1.5, needs="gpu",
        ),
        Claim(
            id="N1",
            statement="Random blocks at equal density come within 10 % of it.",
            quantity="relative error of attention's output, random / UniSparse",
            compare="geometric", direction="<=", threshold=1.1, source="ours", control=True,
        ),
        Claim(
            id="N2",
            statement="Selection by the true masses takes at most two thirds of SDPA's time too.",
            quantity="seconds of attention at 8,192 tokens, true masses with selection / SDPA",
            compare="geometric", direction="<=", threshold=1 / 1.5, source="ours", control=True,
        ),
        Claim(
            id="N3",
            statement="Random blocks at the chosen tau's density keep 99 % of recall too.",
            quantity="share of dense attention's right answers that is gone",
            compare="difference", direction="<=", threshold=LOST, source="ours", control=True,
        ),
    )  # fmt: skip

    def fingerprint(self, profile: Profile) -> str:
        """Hash of decoders and settings.

        SmolLM2 is that of its package; who changes `OF_SMOLLM2` raises the claims' version.
        """
        from lamps_plugins import _small_lms

        names: list[Json] = [_small_lms.folder(name).name for name in ("recall", "stdlib")]
        return digest([2, names, list(TAUS), LOST, LONG, SEQUENCES[profile], TURNS[profile]])

    def measure(self, ask: Ask) -> Iterator[Measurement]:
        """Topics first, then the decoders, then the GPU."""
        yield from _topics(ask)
        for name in DECODERS:
            if ask.wants(*DECODERS[name], unit=name):
                yield from _at_chosen_tau(ask, name)
            if ask.wants("C2o", "C3", "N1", unit=name):
                yield from _at_default_tau(ask, name)
        if ask.claims & {"G1", "G2"}:
            yield from gpu(ask)


def _topics(ask: Ask) -> Iterator[Measurement]:
    for length in (4096, LONG):
        name = f"topics {length}"
        long_only = ("C1t", "N2") if length == LONG else ()
        if not ask.wants("C2o", "C3", "N1", *long_only, unit=name):
            continue
        ask.say(f"seed {ask.seed}: {name}")
        layer = Topics(seed=ask.seed).heads(Item("test", length, 0))[0]
        rule = UniSparse.from_params({})
        timed = _measure.timing(rule, [layer], least=TURNS[ask.profile])
        yield ask.measured("C3", name, timed.select_s / timed.dense_s)
        found = _measure.of_layers(rule, [layer])
        if length == LONG:
            yield ask.measured("C1t", name, timed.sparse_s, timed.dense_s, **found)
            true = _measure.timing(OracleMass.from_params({}), [layer])
            yield ask.measured("N2", name, true.sparse_s, true.dense_s)
        yield from _compared(ask, name, found, [layer])


def _compared(
    ask: Ask, name: str, found: Mapping[str, float], layers: Sequence[Heads]
) -> Iterator[Measurement]:
    """C2, C2o and N1: others at the density of UniSparse, or the next above it."""
    error, density = found["output_error"], found["density"]
    others = {
        "window": _at_density(density, layers, windows()),
        "random": _at_density(density, layers, randoms(density, ask.seed)),
        "true": _at_density(density, layers, oracles()),
    }
    for other in ("window", "random"):
        yield ask.measured(
            "C2", f"{name}, {other}", error, others[other]["output_error"],
            density=density, other_density=others[other]["density"],
        )  # fmt: skip
    yield ask.measured(
        "C2o", name, error, others["true"]["output_error"], density=density,
        other_density=others["true"]["density"],
    )  # fmt: skip
    yield ask.measured("N1", name, others["random"]["output_error"], error, density=density)


def windows() -> Iterator[Rule[Any]]:
    """Windows of growing width."""
    for local in range(1, 65):
        yield WindowSink.from_params({"local": local})


def randoms(density: float, seed: int) -> Iterator[Rule[Any]]:
    """Random blocks of growing density, from the one that is wanted."""
    for more in np.linspace(0, 0.1, 11):
        rule = RandomBlocks.from_params({"density": float(np.clip(density + more, 0.02, 1))})
        rule.seed_ = seed
        yield rule


def oracles() -> Iterator[Rule[Any]]:
    """True masses of growing share."""
    for tau in (0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99, 0.995):
        yield OracleMass.from_params({"tau": tau})


def _at_density(
    density: float, layers: Sequence[Heads], rules: Iterator[Rule[Any]]
) -> dict[str, float]:
    """What the first rule gives that keeps at least so much, the last one where none does."""
    rule = next(rules)
    while density_of(rule, layers) < density and (denser := next(rules, None)) is not None:
        rule = denser
    return _measure.of_layers(rule, layers)


def density_of(rule: Rule[Any], layers: Sequence[Heads]) -> float:
    """Share of the visible blocks that a rule keeps, without attending to them."""
    from lamps_plugins.sparse_attention._attend import visible_pairs

    kept = visible = 0.0
    for layer, q, k, _ in layers:
        blocks = rule.select(q, k, scale=q.shape[3] ** -0.5, layer=layer)
        assert blocks is not None
        kept += int(blocks.counts.sum()) / blocks.counts.shape[1]
        visible += visible_pairs(q.shape[2], k.shape[2], rule.block)
    return kept / visible


@functools.lru_cache(maxsize=2)
def _opened(name: str, sequences: int, seed: int) -> AttentionProblem:
    options = {"length": 4096, "sequences": sequences}
    return FAMILY.open_problem(name, options | ({"data_seed": seed} if name == "recall" else {}))


def _at_chosen_tau(ask: Ask, name: str) -> Iterator[Measurement]:
    """Quality of a decoder and time of its attention."""
    problem = _problem(ask, name)
    ask.say(f"seed {ask.seed}: tau for {name}")
    chosen, tried = _chosen(ask, problem)
    test = [problem.run(chosen, item) for item in _items(problem, "test", ask.seed)]
    lost = problem.source.error(test)
    tau = float(chosen.params.tau)
    density = sum(n["kept"] for n in test) / sum(n["visible"] for n in test)
    of_time, of_quality, of_chance = DECODERS[name]
    yield ask.measured(of_quality, name, lost, tau=tau, tried=tried, density=density)
    control = RandomBlocks.from_params({"density": density})
    control.seed_ = ask.seed
    drawn = [problem.run(control, item) for item in _items(problem, "test", ask.seed)]
    by_chance = problem.source.error(drawn)
    if of_chance == "N3":
        yield ask.measured(of_chance, name, by_chance, density=density)
    else:
        yield ask.measured(of_chance, name, lost, by_chance, density=density)
    ask.say(f"seed {ask.seed}: {name} at {LONG} tokens, tau {tau:g}")
    layers = problem.source.heads(Item("test", LONG, ask.seed))
    timed = _measure.timing(chosen, layers, least=TURNS[ask.profile])
    yield ask.measured(
        of_time, name, timed.sparse_s, timed.dense_s, tau=tau,
        lost=lost, **_measure.of_layers(chosen, layers),
    )  # fmt: skip


def _at_default_tau(ask: Ask, name: str) -> Iterator[Measurement]:
    """C2 and C3 with the rest on what two layers of a decoder receive."""
    ask.say(f"seed {ask.seed}: {name} at {LONG} tokens, default tau")
    layers = _problem(ask, name).source.heads(Item("test", LONG, ask.seed))
    rule = UniSparse.from_params({})
    timed = _measure.timing(rule, layers, least=TURNS[ask.profile])
    yield ask.measured("C3", name, timed.select_s / timed.dense_s)
    yield from _compared(ask, name, _measure.of_layers(rule, layers), layers)


def _problem(ask: Ask, name: str) -> AttentionProblem:
    sequences = OF_SMOLLM2 if name == "smollm2" else SEQUENCES
    return _opened(name, sequences[ask.profile], ask.seed)


def _items(problem: AttentionProblem, split: Any, seed: int) -> list[Item]:
    """Sequences of the two longer lengths, other ones for each seed."""
    start = seed * problem.sequences
    return [
        Item(split, length, start + i)
        for length in problem.lengths[1:]
        for i in range(problem.sequences)
    ]


def _chosen(ask: Ask, problem: AttentionProblem) -> tuple[UniSparse, dict[str, Json]]:
    """The sparsest setting that loses at most `LOST` on validation sequences."""
    tried: dict[str, Json] = {}
    rule = UniSparse.from_params({"tau": TAUS[-1]})
    for tau in TAUS:
        rule = UniSparse.from_params({"tau": tau})
        numbers = [problem.run(rule, item) for item in _items(problem, "val", ask.seed)]
        tried[f"{tau:g}"] = error = problem.source.error(numbers)
        if error <= LOST:
            break
    return rule, tried


def gpu(
    ask: Ask, *, device: str = "cuda", lengths: tuple[int, int] = (16384, 65536), width: int = 128
) -> Iterator[Measurement]:
    """G1 and G2, in bfloat16 with 32 heads over 8.

    Args:
        ask: What is wanted.
        device: Where it runs.
        lengths: Tokens of G1 and of G2.
        width: Elements of a head.
    """
    topics = Topics(heads_q=32, heads_k=8, width=width, seed=ask.seed)
    for claim, length in zip(("G1", "G2"), lengths, strict=True):
        unit = f"topics {length}"
        if not ask.wants(claim, unit=unit):
            continue
        ask.say(f"seed {ask.seed}: {unit} on {device}")
        layer = topic_heads(topics, [1, length, 0], length)
        heads = Heads(0, *(x.to(device, torch.bfloat16) for x in layer[1:]))
        with torch.inference_mode():
            if claim == "G1":
                rule: Rule[Any] = WindowSink(WindowSink.Params(local=length // 128))
                timed = _measure.timing(rule, [heads])
                yield ask.measured(claim, unit, timed.dense_s, timed.sparse_s)
            else:
                rule = UniSparse.from_params({})
                timed, density = _measure.timing(rule, [heads]), density_of(rule, [heads])
                yield ask.measured(claim, unit, timed.sparse_s, timed.dense_s, density=density)
