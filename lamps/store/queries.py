"""Readers: runs, trials, decisions and what a front is drawn from; each works on one snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, func, select, text

from lamps.errors import StoreError, did_you_mean
from lamps.method import ModelInfo
from lamps.store.columns import unpack
from lamps.store.models import (
    CandidateRow,
    CheckpointRow,
    CostRow,
    DecisionRow,
    EvaluationRow,
    MethodRow,
    ModelRow,
    ProblemRow,
    RunModelRow,
    RunRow,
    TrialRow,
)
from lamps.store.records import (
    DecisionRecord,
    FinalValues,
    Run,
    RunSummary,
    StoredCheckpoint,
    StoredEvaluation,
    TestScore,
    Trial,
)
from lamps.types import Budget, Candidate, Cost, Objective


def run(connection: Connection, name: str) -> Run:
    """The run of that name."""
    row = connection.execute(
        select(
            *RunRow.__table__.c,
            ProblemRow.family,
            ProblemRow.name.label("problem_name"),
            ProblemRow.reference,
            ProblemRow.fingerprint,
            ProblemRow.card,
        )
        .join(ProblemRow, ProblemRow.id == RunRow.problem_id)
        .where(RunRow.name == name)
    ).first()
    if row is None:
        known = connection.execute(select(RunRow.name)).scalars()
        raise StoreError(f"there is no run {name!r} in this store. {did_you_mean(name, known)}")
    trials = connection.execute(
        select(
            TrialRow.trial_index,
            TrialRow.state,
            TrialRow.size_hint,
            TrialRow.test_values,
            TrialRow.test_signals,
        )
        .where(TrialRow.run_id == row.id)
        .order_by(TrialRow.trial_index)
    ).all()
    counts: dict[str, int] = defaultdict(int)
    for trial in trials:
        counts[trial.state] += 1
    n_decisions, wall_s, device_s = connection.execute(
        select(
            func.count(func.distinct(DecisionRow.id)),
            func.coalesce(func.sum(CostRow.wall_s), 0.0),
            func.coalesce(func.sum(CostRow.device_s), 0.0),
        )
        .outerjoin(CostRow, CostRow.decision_id == DecisionRow.id)
        .where(DecisionRow.run_id == row.id)
    ).one()
    return Run(
        id=row.id,
        name=row.name,
        family=row.family,
        problem_name=row.problem_name,
        problem_reference=row.reference,
        problem_fingerprint=row.fingerprint,
        problem_card=row.card,
        objectives=tuple(Objective(**objective) for objective in row.objectives),
        front_objectives=tuple(row.front_objectives),
        fidelities=tuple(row.fidelities),
        unit=row.unit,
        settings=row.settings,
        seed=row.seed,
        budget=Budget(**row.budget),
        policy=row.policy,
        policy_version=row.policy_version,
        workers=row.workers,
        artifact_root=row.artifact_root,
        method_versions=_method_versions(connection, row.id),
        models=_models(connection, row.id),
        size_hints=tuple(trial.size_hint for trial in trials),
        state=row.state,
        note=row.note,
        spent_wall_s=row.spent_wall_s,
        spent_device_s=row.spent_device_s,
        cost_wall_s=wall_s or 0.0,
        cost_device_s=device_s or 0.0,
        counts=dict(counts),
        n_trials=len(trials),
        n_decisions=n_decisions,
        n_evaluations=_n_evaluations(connection, row.id).get(row.id, 0),
        tests={t.trial_index: test_score(t) for t in trials if t.test_values is not None},
        reference_point=None if row.reference_point is None else unpack(row.reference_point),
        policy_state=row.policy_state,
        owner=row.owner,
        heartbeat_at=row.heartbeat_at,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )


def test_score(row: Any) -> TestScore:
    """The test score of a trial's row that has one."""
    return TestScore(
        trial_index=row.trial_index, values=row.test_values, signals=row.test_signals or {}
    )


def _method_versions(connection: Connection, run_id: int) -> dict[str, str]:
    rows = connection.execute(
        select(MethodRow.name, MethodRow.version)
        .join(TrialRow, TrialRow.method_id == MethodRow.id)
        .where(TrialRow.run_id == run_id)
        .distinct()
        .order_by(MethodRow.name)
    )
    return {name: version for name, version in rows}


def _models(connection: Connection, run_id: int) -> tuple[ModelInfo, ...]:
    rows = connection.execute(
        select(*(c for c in ModelRow.__table__.c if c.name not in ("id", "key")))
        .join(RunModelRow, RunModelRow.model_id == ModelRow.id)
        .where(RunModelRow.run_id == run_id)
        .order_by(RunModelRow.id)
    ).mappings()
    return tuple(ModelInfo(**row) for row in rows)


def _n_evaluations(connection: Connection, run_id: int | None = None) -> dict[int, int]:
    """Number of ok evaluations by run, of one run or all."""
    statement = select(DecisionRow.run_id, func.count()).where(DecisionRow.state == "done")
    if run_id is not None:
        statement = statement.where(DecisionRow.run_id == run_id)
    rows = connection.execute(statement.group_by(DecisionRow.run_id))
    return {run_id: count for run_id, count in rows}


def runs(connection: Connection) -> list[RunSummary]:
    """All runs, newest first."""
    evaluations = _n_evaluations(connection)
    counts: dict[int, dict[str, int]] = defaultdict(dict)
    states = connection.execute(
        select(TrialRow.run_id, TrialRow.state, func.count()).group_by(
            TrialRow.run_id, TrialRow.state
        )
    )
    for run_id, state, count in states:
        counts[run_id][state] = count
    rows = connection.execute(
        select(
            RunRow.id,
            RunRow.name,
            RunRow.state,
            RunRow.note,
            RunRow.policy,
            RunRow.front_objectives,
            RunRow.spent_wall_s,
            RunRow.created_at,
            RunRow.finished_at,
            ProblemRow.family,
            ProblemRow.name.label("problem_name"),
        )
        .join(ProblemRow, ProblemRow.id == RunRow.problem_id)
        .order_by(RunRow.id.desc())
    ).mappings()
    return [
        RunSummary(
            **(dict(row) | {"front_objectives": tuple(row["front_objectives"])}),
            n_trials=sum(counts[row["id"]].values()),
            n_complete=counts[row["id"]].get("complete", 0),
            n_evaluations=evaluations.get(row["id"], 0),
        )
        for row in rows
    ]


def objective_names(connection: Connection, run_id: int) -> tuple[list[str], int]:
    """Names of the objectives of a run in stored order, and its number of landmarks."""
    row = connection.execute(
        select(RunRow.objectives, RunRow.fidelities).where(RunRow.id == run_id)
    ).first()
    if row is None:
        raise StoreError(f"there is no run with id {run_id} in this store")
    return [objective["name"] for objective in row.objectives], len(row.fidelities)


def trials(connection: Connection, run_id: int) -> list[Trial]:
    """All trials of a run with their evaluations."""
    names, _ = objective_names(connection, run_id)
    evaluations: dict[int, list[StoredEvaluation]] = defaultdict(list)
    for row in connection.execute(
        select(
            EvaluationRow.trial_id,
            EvaluationRow.landmark,
            EvaluationRow.fidelity,
            EvaluationRow.state,
            EvaluationRow.packed,
            EvaluationRow.signals,
            CostRow.id.label("cost_id"),
            CostRow.wall_s,
            CostRow.device_s,
            CostRow.peak_bytes,
            CostRow.checkpoint_bytes,
        )
        .join(DecisionRow, DecisionRow.id == EvaluationRow.decision_id)
        # The attempt that brought the evaluation; what crashed before it is counted with the run.
        .outerjoin(
            CostRow,
            (CostRow.decision_id == DecisionRow.id) & (CostRow.attempt == DecisionRow.attempt),
        )
        .where(DecisionRow.run_id == run_id)
        .order_by(EvaluationRow.trial_id, EvaluationRow.landmark)
    ):
        evaluations[row.trial_id].append(_evaluation(row, names))
    rows = connection.execute(
        select(
            TrialRow.id,
            TrialRow.trial_index,
            TrialRow.state,
            TrialRow.landmark,
            TrialRow.attempts,
            TrialRow.error,
            TrialRow.size_hint,
            TrialRow.test_values,
            TrialRow.test_signals,
            func.coalesce(TrialRow.label, CandidateRow.label).label("label"),
            CandidateRow.family,
            CandidateRow.method,
            CandidateRow.params,
            CheckpointRow.uri,
            CheckpointRow.landmark.label("checkpoint_landmark"),
            CheckpointRow.sha256,
            CheckpointRow.size_bytes,
        )
        .join(CandidateRow, CandidateRow.id == TrialRow.candidate_id)
        .outerjoin(CheckpointRow, CheckpointRow.trial_id == TrialRow.id)
        .where(TrialRow.run_id == run_id)
        .order_by(TrialRow.trial_index)
    )
    return [_trial(row, evaluations.get(row.id, [])) for row in rows]


def _evaluation(row: Any, names: Sequence[str]) -> StoredEvaluation:
    cost = None
    if row.cost_id is not None:
        cost = Cost(
            wall_s=row.wall_s,
            device_s=row.device_s,
            peak_bytes=row.peak_bytes,
            checkpoint_bytes=row.checkpoint_bytes,
        )
    return StoredEvaluation(
        landmark=row.landmark,
        fidelity=row.fidelity,
        state=row.state,
        values=dict(zip(names, unpack(row.packed), strict=True)),
        signals=row.signals,
        cost=cost,
    )


def _trial(row: Any, evaluations: list[StoredEvaluation]) -> Trial:
    checkpoint = None
    if row.uri is not None:
        checkpoint = StoredCheckpoint(
            uri=row.uri,
            landmark=row.checkpoint_landmark,
            sha256=row.sha256,
            size_bytes=row.size_bytes,
        )
    return Trial(
        index=row.trial_index,
        candidate=Candidate(row.family, row.method, row.params),
        label=row.label,
        state=row.state,
        landmark=row.landmark,
        error=row.error,
        attempts=row.attempts,
        size_hint=row.size_hint,
        checkpoint=checkpoint,
        evaluations=evaluations,
        test=None if row.test_values is None else test_score(row),
    )


def decisions(connection: Connection, run_id: int) -> list[DecisionRecord]:
    """All decisions of a run in their order."""
    objective_names(connection, run_id)
    rows = connection.execute(
        select(
            *(c for c in DecisionRow.__table__.c if c.name not in ("run_id", "trial_id")),
            TrialRow.trial_index,
        )
        .join(TrialRow, TrialRow.id == DecisionRow.trial_id)
        .where(DecisionRow.run_id == run_id)
        .order_by(DecisionRow.seq)
    ).mappings()
    return [DecisionRecord(**row) for row in rows]


_FINAL = text("""
SELECT t.trial_index, t.landmark, e.packed
FROM trials t JOIN evaluations e ON e.trial_id = t.id AND e.landmark = t.landmark
WHERE t.run_id = :run_id AND t.landmark >= :least AND e.state = 'ok'
""")


def final_values(
    connection: Connection, run_id: int, names: Sequence[str] | None, finished_only: bool
) -> FinalValues:
    """Objective values of every trial at its last ok landmark."""
    stored, n_landmarks = objective_names(connection, run_id)
    wanted = list(stored if names is None else names)
    for name in wanted:
        if name not in stored:
            raise StoreError(
                f"the run measures no objective {name!r}. {did_you_mean(name, stored)}"
            )
    # The driver's own cursor: a result object a row would cost more than the query.
    cursor = connection.connection.cursor()
    compiled = _FINAL.compile(dialect=connection.dialect)
    bound = {"run_id": run_id, "least": n_landmarks - 1 if finished_only else 0}
    order_of = compiled.positiontup  # of drivers that bind by position
    cursor.execute(str(compiled), bound if order_of is None else [bound[k] for k in order_of])
    rows = cursor.fetchall()
    cursor.close()
    n, m = len(rows), len(stored)
    index = np.fromiter((row[0] for row in rows), dtype=np.int64, count=n)
    landmark = np.fromiter((row[1] for row in rows), dtype=np.int64, count=n)
    values = np.frombuffer(b"".join([row[2] for row in rows]), dtype="<f8").reshape(n, m)
    order = np.argsort(index, kind="stable")
    columns = [stored.index(name) for name in wanted]
    return FinalValues(
        names=tuple(wanted),
        trial_index=index[order],
        landmark=landmark[order],
        values=np.ascontiguousarray(values[order][:, columns], dtype=np.float64),
    )
