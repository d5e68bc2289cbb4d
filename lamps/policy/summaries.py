"""What a comparison says: a line per policy, and pairs of policies on the same cases.

Labels such as ``lamps, permuted sizes`` name a policy on changed cases; they are set against the
oracle and the simple rules on the same changed cases, where these were replayed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from lamps import stats
from lamps.errors import ConfigError
from lamps.pareto import Floats
from lamps.policy.evaluate import MEASURES, SIMPLE, Score

LEAST_IS_WORST = ("area", "stop_value")
_SMALLEST = 1e-3  # shares of the exhaustive time below this count as equal in a ratio

Key = tuple[str, tuple[str, ...], int]


@dataclass(frozen=True, slots=True)
class Summary:
    """A policy over all cases with as many workers.

    Args:
        policy: Its label.
        workers: Landmarks at once.
        cases: How many.
        tables: On how many tables.
        mean: Of each measure.
        median: Of each measure.
        worst: Of each measure: the largest time, the least value.
        interval: 95 % bootstrap interval of the mean of ``time_99``, over tasks.
        worst_table: Where ``time_99`` was largest.
        worst_stop_table: Where ``stop_value`` was least.
        to_oracle: Mean of ``time_99`` over the oracle's mean; NaN without the oracle.
        to_best_simple: Largest ratio of ``time_99`` to that of the best simple rule of the case;
            NaN without simple rules.
        worse_by: Cases where that ratio is above 1.1.
        worse_on: Table of the largest ratio.
    """

    policy: str
    workers: int
    cases: int
    tables: int
    mean: dict[str, float]
    median: dict[str, float]
    worst: dict[str, float]
    interval: tuple[float, float]
    worst_table: str
    worst_stop_table: str
    to_oracle: float
    to_best_simple: float
    worse_by: int
    worse_on: str


def task_of(table: str) -> str:
    """The problem behind a table's name: without seed and sample.

    Example:
        >>> task_of("pythia/arc#3~1")
        'pythia/arc'
    """
    return table.split("~")[0].split("#")[0]


def over_tasks(names: Sequence[str], values: Floats) -> Floats:
    """Means per task, since objective sets, seeds and samples of one task are not independent."""
    groups: dict[str, list[float]] = {}
    for name, value in zip(names, values.tolist(), strict=True):
        groups.setdefault(task_of(name), []).append(value)
    return np.array([np.mean(some) for some in groups.values()])


def best_simple(found: Iterable[Score]) -> dict[Key, float]:
    """``time_99`` of the best simple rule of each case, by table, objectives and workers."""
    best: dict[Key, float] = {}
    for s in found:
        if s.policy in SIMPLE:
            key = (s.table, s.objectives, s.workers)
            best[key] = min(best.get(key, math.inf), s.time_99)
    return best


def _like(label: str, names: Sequence[str], known: set[str]) -> dict[str, str]:
    """Rules on the same changed cases as ``label``, by their labels there."""
    changed = label.partition(", ")[2]
    there = {f"{n}, {changed}": n for n in names if f"{n}, {changed}" in known}
    return there or {n: n for n in names}


def summarise(found: Sequence[Score]) -> list[Summary]:
    """One line per policy and number of workers, in the order in which policies came."""
    return [
        _summary(label, workers, [s for s in found if s.workers == workers])
        for workers in sorted({s.workers for s in found})
        for label in dict.fromkeys(s.policy for s in found if s.workers == workers)
    ]


def _summary(label: str, workers: int, here: Sequence[Score]) -> Summary:
    known = {s.policy for s in here}
    mine = sorted((s for s in here if s.policy == label), key=lambda s: (s.table, s.objectives))
    names = [s.table for s in mine]
    keys = {(s.table, s.objectives) for s in mine}
    simple = _like(label, SIMPLE, known)
    best: dict[tuple[str, tuple[str, ...]], float] = {}
    for s in here:
        if s.policy in simple:
            key = (s.table, s.objectives)
            best[key] = min(best.get(key, math.inf), s.time_99)
    oracle = _like(label, ("oracle",), known)
    least = [s.time_99 for s in here if s.policy in oracle and (s.table, s.objectives) in keys]
    column = {m: np.array([getattr(s, m) for s in mine]) for m in MEASURES}
    pairs = [(s, best[s.table, s.objectives]) for s in mine if (s.table, s.objectives) in best]
    ratio = np.array([max(s.time_99, _SMALLEST) / max(b, _SMALLEST) for s, b in pairs])
    t99 = column["time_99"]
    return Summary(
        label,
        workers,
        len(mine),
        len(set(names)),
        {m: float(v.mean()) for m, v in column.items()},
        {m: float(np.median(v)) for m, v in column.items()},
        {m: float(v.min() if m in LEAST_IS_WORST else v.max()) for m, v in column.items()},
        stats.bootstrap_interval(over_tasks(names, t99)),
        names[int(t99.argmax())],
        names[int(column["stop_value"].argmin())],
        float(t99.mean() / max(float(np.mean(least)), 1e-12)) if least else math.nan,
        float(ratio.max()) if len(ratio) else math.nan,
        int((ratio > 1.1).sum()),
        pairs[int(ratio.argmax())][0].table if len(ratio) else "",
    )


def grouped(
    found: Sequence[Score], key: Callable[[Score], str], measure: str = "time_99"
) -> dict[str, dict[str, float]]:
    """Mean of a measure per group and policy.

    Args:
        found: The scores.
        key: Gives the group: a table, a family.
        measure: One of `MEASURES`.
    """
    cells: dict[str, dict[str, list[float]]] = {}
    for s in found:
        cells.setdefault(key(s), {}).setdefault(s.policy, []).append(getattr(s, measure))
    return {
        group: {policy: float(np.mean(values)) for policy, values in row.items()}
        for group, row in cells.items()
    }


@dataclass(frozen=True, slots=True)
class Paired:
    """A policy against another on the same cases.

    Args:
        policy: The one.
        other: The other.
        workers: Landmarks at once.
        difference: Mean of ``time_99``, the one minus the other; negative is better.
        interval: 95 % bootstrap interval of that, over tasks.
        pvalue: Wilcoxon signed-rank, over tasks.
        better: Share of cases where the one was quicker, ties half.
        cases: How many both have.
    """

    policy: str
    other: str
    workers: int
    difference: float
    interval: tuple[float, float]
    pvalue: float
    better: float
    cases: int


def paired(found: Sequence[Score], policy: str) -> list[Paired]:
    """``policy`` against every other one.

    Raises:
        ConfigError: It was not evaluated.
    """
    if policy not in {s.policy for s in found}:
        raise ConfigError(f"policy {policy!r} was not evaluated")
    by = {(s.policy, s.workers, s.table, s.objectives): s.time_99 for s in found}
    result = []
    for workers in sorted({s.workers for s in found}):
        for other in dict.fromkeys(s.policy for s in found):
            keys = [k[2:] for k in by if k[:2] == (policy, workers)]
            keys = [k for k in keys if (other, workers, *k) in by]
            if other == policy or not keys:
                continue
            a = np.array([by[(policy, workers, *k)] for k in keys])
            b = np.array([by[(other, workers, *k)] for k in keys])
            names = [k[0] for k in keys]
            result.append(
                Paired(
                    policy,
                    other,
                    workers,
                    float((a - b).mean()),
                    stats.bootstrap_interval(over_tasks(names, a - b)),
                    stats.paired_pvalue(over_tasks(names, a), over_tasks(names, b)),
                    float((a < b).mean() + 0.5 * (a == b).mean()),
                    len(keys),
                )
            )
    return result
