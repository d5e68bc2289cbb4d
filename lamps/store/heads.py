"""Lean readers for front queries.

What a run is made of, and a few of its candidates, without reading the pool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, func, select, update

from lamps.errors import StoreError, did_you_mean
from lamps.store.models import CandidateRow, RunRow, TrialRow
from lamps.store.queries import test_score
from lamps.store.records import PoolMember, RunHead
from lamps.types import Budget, Candidate, Json, Objective


def head(connection: Connection, name: str) -> RunHead:
    """The parts of a run that never change, and the size of its pool."""
    row = connection.execute(
        select(
            RunRow.id, RunRow.name, RunRow.objectives, RunRow.front_objectives, RunRow.fidelities
        ).where(RunRow.name == name)
    ).first()
    if row is None:
        known = connection.execute(select(RunRow.name)).scalars()
        raise StoreError(f"there is no run {name!r} in this store. {did_you_mean(name, known)}")
    count = connection.execute(
        select(func.count()).select_from(TrialRow).where(TrialRow.run_id == row.id)
    ).scalar_one()
    return RunHead(
        id=row.id,
        name=row.name,
        objectives=tuple(Objective(**objective) for objective in row.objectives),
        front_objectives=tuple(row.front_objectives),
        fidelities=tuple(row.fidelities),
        n_trials=count,
    )


def members(connection: Connection, run_id: int, indices: Sequence[int]) -> dict[int, PoolMember]:
    """Candidate, label and test score of some trials, by trial index."""
    found: dict[int, PoolMember] = {}
    # Databases bound the number of parameters of one statement.
    for start in range(0, len(indices), 500):
        rows = connection.execute(
            select(
                TrialRow.trial_index,
                func.coalesce(TrialRow.label, CandidateRow.label).label("label"),
                TrialRow.test_values,
                TrialRow.test_signals,
                CandidateRow.family,
                CandidateRow.method,
                CandidateRow.params,
            )
            .join(CandidateRow, CandidateRow.id == TrialRow.candidate_id)
            .where(
                TrialRow.run_id == run_id,
                TrialRow.trial_index.in_(list(indices[start : start + 500])),
            )
        ).all()
        for row in rows:
            found[row.trial_index] = PoolMember(
                candidate=Candidate(row.family, row.method, row.params),
                label=row.label,
                test=None if row.test_values is None else test_score(row),
            )
    return found


def change_run(
    connection: Connection,
    run_id: int,
    budget: Budget | None,
    settings: Mapping[str, Json] | None,
    workers: int | None,
) -> None:
    """Replace what a resumed run may spend and where it runs."""
    values: dict[str, Any] = {}
    if budget is not None:
        values["budget"] = budget.as_dict()
    if settings is not None:
        values["settings"] = dict(settings)
    if workers is not None:
        values["workers"] = workers
    if values:
        connection.execute(update(RunRow).where(RunRow.id == run_id).values(values))
