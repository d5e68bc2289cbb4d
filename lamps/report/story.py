"""How a run went: hypervolume over cost, and what was still missing as far as it could tell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lamps import pareto
from lamps.pareto import Floats
from lamps.policy.features import extrapolations
from lamps.store import DecisionRecord, Trial
from lamps.store import Run as StoredRun

POINTS = 200
"""At most so many moments are shown."""


def story(
    record: StoredRun, trials: Sequence[Trial], decisions: Sequence[DecisionRecord]
) -> dict[str, list[float]]:
    """Hypervolume of the finished candidates over the seconds of all landmarks so far.

    The estimate of what is missing needs no oracle: every candidate that is under way is taken at
    its extrapolated final value (`lamps.policy.features.extrapolations`), and the hypervolume that
    the finished ones have of all that is the share that was found.

    Returns:
        ``cost_s``, ``landmarks``, ``hypervolume`` (share of the final one) and ``missing``
        (estimate, share), a number each per moment; empty lists before the first landmark.
    """
    empty: dict[str, list[float]] = {
        "cost_s": [], "landmarks": [], "hypervolume": [], "missing": []
    }  # fmt: skip
    values, cost = _arrays(record, trials)
    events = [
        (d.trial_index, d.landmark)
        for d in sorted(decisions, key=lambda d: (d.finished_at or np.inf, d.seq))
        if d.finished_at is not None and d.state in ("done", "failed")
    ]
    if not events:
        return empty
    place = {t.index: i for i, t in enumerate(trials)}
    row = np.array([place[trial] for trial, _ in events])
    level = np.array([landmark for _, landmark in events])
    spent = np.cumsum(np.nan_to_num(cost[row, level]))
    last = values.shape[1] - 1
    final = values[:, last]
    with np.errstate(invalid="ignore"):
        curves = np.where(np.isfinite(values), values, np.nan).transpose(0, 2, 1)
        promised = extrapolations(curves, np.asarray(record.fidelities))[0].transpose(0, 2, 1)
    reference = pareto.reference_point(final[pareto.finite_rows(final)])
    moments = np.unique(np.linspace(0, len(events) - 1, POINTS).round().astype(int))
    best = _volume(final, reference)
    found: list[float] = []
    missing: list[float] = []
    at = np.full(len(trials), -1)
    done = 0
    for moment in moments:
        for event in range(done, moment + 1):
            if np.isfinite(values[row[event], level[event]]).all():
                at[row[event]] = max(at[row[event]], level[event])
        done = moment + 1
        finished, begun = at == last, (at >= 0) & (at < last)
        have = _volume(final[finished], reference)
        hoped = np.concatenate([final[finished], promised[begun, at[begun]]])
        hope = _volume(hoped, reference)
        found.append(have / best if best > 0 else 0.0)
        missing.append(1 - have / hope if hope > 0 else 1.0)
    return {
        "cost_s": [round(float(s), 3) for s in spent[moments]],
        "landmarks": [float(m + 1) for m in moments],
        "hypervolume": [round(x, 5) for x in found],
        "missing": [round(max(x, 0.0), 5) for x in missing],
    }


def _volume(values: Floats, reference: Floats) -> float:
    """Hypervolume of what is finite; 0 where nothing is, or where there is no reference."""
    rows = values[pareto.finite_rows(values)]
    if not len(rows) or not np.isfinite(reference).all():
        return 0.0
    return pareto.hypervolume(rows[pareto.is_nondominated(rows)], reference)


def _arrays(record: StoredRun, trials: Sequence[Trial]) -> tuple[Floats, NDArray[np.float64]]:
    """Front objectives to minimise [n, K, m], and seconds [n, K]; NaN where unknown."""
    directions = {o.name: o.direction for o in record.objectives}
    names = record.front_objectives
    shape = (len(trials), len(record.fidelities))
    values = np.full((*shape, len(names)), np.nan)
    cost = np.full(shape, np.nan)
    for i, trial in enumerate(trials):
        for e in trial.evaluations:
            if e.cost is not None:
                cost[i, e.landmark] = e.cost.wall_s
            if e.state == "ok":
                values[i, e.landmark] = [e.values[name] for name in names]
    flat = pareto.to_minimization(
        values.reshape(-1, len(names)), [directions[name] for name in names]
    )
    return flat.reshape(values.shape), cost
