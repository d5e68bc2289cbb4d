"""Landmark tables from stored runs, so that each search can train the next policy."""

from __future__ import annotations

import math
import warnings
from collections import Counter

import numpy as np

from lamps.errors import LampsWarning, ProblemError
from lamps.store import Run, Store, Trial
from lamps.tables import LandmarkTable


def table_of_run(store: Store, name: str) -> LandmarkTable:
    """The landmarks of a stored run as a table.

    A candidate that was stopped early is censored. One that failed, or whose worker vanished for
    good, has a failed landmark where it ended. Candidates that never started, and objectives that
    were never measured, are left out. Costs are the wall seconds that the store holds for the
    attempt that brought the value.

    Args:
        store: The open store.
        name: Name of the run, which the table gets.

    Raises:
        StoreError: There is no such run.
        ProblemError: It has no landmark yet.
    """
    run = store.run(name)
    trials = store.trials(run.id)
    started = [t for t in trials if _ends(t)]
    if not started:
        raise ProblemError(f"run {name!r} has no landmark yet; there is nothing to export")
    if len(started) < len(trials):
        warnings.warn(
            f"run {name!r}: {len(trials) - len(started)} of {len(trials)} candidates never "
            "started and are left out",
            LampsWarning,
            stacklevel=2,
        )
    n, k, m = len(started), len(run.fidelities), len(run.objectives)
    values, cost = np.full((n, k, m), np.nan), np.full((n, k), np.nan)
    measured, peaks = np.zeros((n, k), dtype=bool), np.full((n, k), np.nan)
    for i, trial in enumerate(started):
        for evaluation in trial.evaluations:
            at = (i, evaluation.landmark)
            measured[at] = True
            values[at] = [evaluation.values[o.name] for o in run.objectives]
            if evaluation.state == "failed" and np.isfinite(values[at]).all():
                values[at] = np.nan
            if evaluation.cost is not None:
                cost[at] = evaluation.cost.wall_s
                peaks[at] = evaluation.cost.peak_bytes or np.nan
        if trial.state in ("failed", "crashed") and trial.landmark + 1 < k:
            measured[i, trial.landmark + 1] = True
    values[~np.isfinite(values)] = np.nan
    known = [c for c in range(m) if np.isfinite(values[:, :, c]).any()] or list(range(m))
    return LandmarkTable(
        name=name,
        candidates=_labels(started),
        objectives=tuple(run.objectives[c] for c in known),
        fidelities=np.array(run.fidelities, dtype=np.float64),
        values=values[:, :, known],
        cost_s=cost,
        measured=measured,
        size=np.array([t.size_hint for t in started], dtype=np.float64),
        family=run.family,
        source=_source(run),
        unit=run.unit,
        seed=run.seed,
        peak_bytes=peaks if np.isfinite(peaks).any() else None,
    )


def _ends(trial: Trial) -> bool:
    """Whether anything is known of a trial's landmark 0."""
    return bool(trial.evaluations) or trial.state in ("failed", "crashed")


def _labels(trials: list[Trial]) -> tuple[str, ...]:
    """Labels; where two are alike, with the index in the run."""
    count = Counter(t.label for t in trials)
    return tuple(t.label if count[t.label] == 1 else f"{t.label} #{t.index}" for t in trials)


def _source(run: Run) -> str:
    failed = sum(count for state, count in run.counts.items() if state in ("failed", "crashed"))
    started = "" if run.started_at is None or math.isnan(run.started_at) else ", measured"
    return (
        f"lamps run of problem {run.problem_name} ({run.problem_fingerprint[:12]}), policy "
        f"{run.policy}, {run.workers} workers{started} wall seconds"
        + (f", {failed} candidates failed" if failed else "")
    )
