"""What is asked of the learned policy, and whether an evaluation shows it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lamps.policy.evaluate import SIMPLE, Score
from lamps.policy.summaries import grouped, task_of

OWN = ("pythia", "text-classification")
"""Families on which the published figure is asked for; matched up to the first hyphen or whole."""
CLAIM = 0.27
"""The published mean time to 99 % of the optimal hypervolume, as a share of exhaustive."""
_WORSE = 1.1


class Evaluated(Protocol):
    """What a demand reads of an evaluation."""

    @property
    def kind(self) -> str:
        """What was left out of training."""

    def serial(self) -> list[Score]:
        """Scores with one worker."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One demand and its outcome.

    Args:
        what: In words.
        asked: The bound.
        found: What the evaluation shows; empty if it was not evaluated.
        held: None if it was not evaluated.
        verdict: ``held``, or by how much it was missed.
    """

    what: str
    asked: str
    found: str
    held: bool | None
    verdict: str


def _demand(what: str, value: float, bound: float, unit: str, *, least: bool = False) -> Demand:
    """A demand on one number; ``least`` for those where more is better."""

    def show(number: float) -> str:
        return f"{100 * number:.1f} %" if unit == "%" else f"{number:.2f}{unit}"

    asked = f"{'≥' if least else '≤'} {show(bound)}"
    if math.isnan(value):
        return Demand(what, asked, "", None, "not evaluated")
    held = value >= bound if least else value <= bound
    missed = "held" if held else f"missed by {show(abs(value - bound))}"
    return Demand(what, asked, show(value), held, missed)


def demands(found: Sequence[Evaluated]) -> list[Demand]:
    """All demands on the evaluations that are there."""
    task = [s for r in found if r.kind == "task" for s in r.serial()]
    family = [s for r in found if r.kind == "family" for s in r.serial()]
    return [*_on_tasks(task), *_on_families(family)]


def _on_tasks(scores: Sequence[Score]) -> Iterator[Demand]:
    own = [s for s in scores if s.family in OWN or s.family.split("-")[0] in OWN]
    oracle = {(s.table, s.objectives): s.time_99 for s in own if s.policy == "oracle"}
    mine = [s for s in own if s.policy == "lamps"]
    allowed = [s for s in mine if oracle.get((s.table, s.objectives), 1.0) <= CLAIM]
    where = f"{', '.join(OWN)}, task left out"
    yield _demand(
        f"mean time to 99 % ({where}; {len(allowed)} of {len(mine)} cases, where the oracle "
        f"needs {100 * CLAIM:.0f} % or less)",
        _mean([s.time_99 for s in allowed]),
        CLAIM,
        "%",
    )
    yield _demand(
        f"the same over all cases ({where})", _mean([s.time_99 for s in mine]), CLAIM, "%"
    )
    ours, theirs = _mean([s.time_99 for s in mine]), _mean(list(oracle.values()))
    yield _demand(f"goal: mean time over the oracle's ({where})", ours / theirs, 1.5, " x")
    ratio = _worst_ratio(scores)
    name = f", on {ratio[0]}" if ratio[0] else ""
    yield _demand(
        f"largest ratio to the best simple rule of a table (task left out{name})",
        ratio[1],
        _WORSE,
        " x",
    )
    stops = grouped([s for s in scores if s.policy == "lamps"], lambda s: s.table, "stop_value")
    values = {t: row["lamps"] for t, row in stops.items()}
    yield _demand(
        "mean value at the policy's own stop (task left out)",
        _mean(list(values.values())),
        0.98,
        "%",
        least=True,
    )
    worst = min(values, key=lambda t: values[t], default="")
    yield _demand(
        "value at its own stop on the worst table (task left out"
        + (f", {worst})" if worst else ")"),
        values.get(worst, math.nan),
        0.95,
        "%",
        least=True,
    )


def _worst_ratio(scores: Sequence[Score]) -> tuple[str, float]:
    """The table on which the learned policy is worst against that table's best simple rule."""
    worst = ("", math.nan)
    for table, row in grouped(scores, lambda s: task_of(s.table)).items():
        rules = [row[r] for r in SIMPLE if r in row]
        if "lamps" in row and rules:
            ratio = row["lamps"] / max(min(rules), 1e-3)
            if math.isnan(worst[1]) or ratio > worst[1]:
                worst = (table, ratio)
    return worst


def _on_families(scores: Sequence[Score]) -> Iterator[Demand]:
    mine = _mean([s.time_99 for s in scores if s.policy == "lamps"])
    for other in ("random", "smallest-first", "mo-asha"):
        theirs = _mean([s.time_99 for s in scores if s.policy == other])
        what = f"mean time to 99 % less than that of {other} (family left out)"
        if math.isnan(mine) or math.isnan(theirs):
            yield Demand(what, "less", "", None, "not evaluated")
            continue
        held = mine < theirs
        shown = f"{100 * mine:.1f} % against {100 * theirs:.1f} %"
        missed = f"missed by {100 * (mine - theirs):.1f} %"
        yield Demand(what, "less", shown, held, "held" if held else missed)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else math.nan
