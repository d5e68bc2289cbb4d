"""Writers of decisions and of what becomes of them; each is one transaction of `Store`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select, update

from lamps.errors import StateError, StoreError
from lamps.store.columns import name_text, pack, prose
from lamps.store.models import (
    CheckpointRow,
    CostRow,
    DecisionRow,
    EvaluationRow,
    RunRow,
    TrialRow,
    core,
)
from lamps.store.records import Decision
from lamps.store.runs import locked_run
from lamps.store.states import check_move
from lamps.types import Cost

NewCheckpoint = tuple[str, str, int]
"""uri, SHA-256, bytes."""

# Built once: building a statement takes longer than running it. Columns to set follow from the
# parameters of each call.
_FIND_TRIAL = select(TrialRow.id, TrialRow.state, TrialRow.landmark).where(
    TrialRow.run_id == bindparam("run_id"), TrialRow.trial_index == bindparam("trial_index")
)
_LAST_SEQ = select(func.max(DecisionRow.seq)).where(DecisionRow.run_id == bindparam("run_id"))
_FIND_DECISION = (
    select(
        DecisionRow.id,
        DecisionRow.seq,
        DecisionRow.state,
        DecisionRow.landmark,
        DecisionRow.attempt,
        TrialRow.id.label("trial_id"),
        TrialRow.trial_index,
        TrialRow.state.label("trial_state"),
        TrialRow.landmark.label("trial_landmark"),
        RunRow.objectives,
        RunRow.fidelities,
        RunRow.state.label("run_state"),
    )
    .join(TrialRow, TrialRow.id == DecisionRow.trial_id)
    .join(RunRow, RunRow.id == DecisionRow.run_id)
    .where(DecisionRow.id == bindparam("decision_id"))
    .with_for_update()
)
_FIND_CHECKPOINT = select(CheckpointRow.uri).where(CheckpointRow.trial_id == bindparam("trial_id"))
_ADD_DECISION = insert(core(DecisionRow)).returning(core(DecisionRow).c.id)
_ADD_EVALUATION = insert(core(EvaluationRow))
_ADD_COST = insert(core(CostRow))
_ADD_CHECKPOINT = insert(core(CheckpointRow))
_SET_RUN = update(core(RunRow)).where(core(RunRow).c.id == bindparam("key"))
_SET_TRIAL = update(core(TrialRow)).where(core(TrialRow).c.id == bindparam("key"))
_SET_DECISION = update(core(DecisionRow)).where(core(DecisionRow).c.id == bindparam("key"))
_SET_CHECKPOINT = update(core(CheckpointRow)).where(
    core(CheckpointRow).c.trial_id == bindparam("key")
)


def decide(
    connection: Connection,
    run_id: int,
    trial_index: int,
    landmark: int,
    *,
    policy: str,
    features_hash: str,
    seed: int,
    note: str,
    policy_state: Any,
    now: float,
) -> Decision:
    """Write a decision and mark its trial as running."""
    run = locked_run(connection, run_id)
    if run.state != "running":
        raise StateError(
            f"run {run.name!r} is {run.state}; decisions are made while it is running"
        )
    where = {"run_id": run_id, "trial_index": trial_index}
    trial = connection.execute(_FIND_TRIAL, where).first()
    if trial is None:
        raise StoreError(f"run {run.name!r} has no trial {trial_index}")
    if trial.state == "crashed":
        raise StateError(
            f"trial {trial_index} crashed; retry or give up the decision that crashed"
        )
    check_move("trial", f"trial {trial_index}", trial.state, "running")
    if not trial.landmark < landmark < len(run.fidelities):
        raise StateError(
            f"trial {trial_index} is at landmark {trial.landmark} of {len(run.fidelities)} "
            f"and cannot go to {landmark}; expected a later one"
        )
    seq = (connection.execute(_LAST_SEQ, {"run_id": run_id}).scalar() or 0) + 1
    row = {
        "run_id": run_id,
        "trial_id": trial.id,
        "seq": seq,
        "landmark": landmark,
        "policy": name_text(policy, "policy name", limit=200),
        "features_hash": prose(features_hash),
        "seed": seed,
        "note": prose(note),
        "state": "pending",
        "attempt": 1,
        "created_at": now,
    }
    decision_id = connection.execute(_ADD_DECISION, row).scalar_one()
    _set_trial(connection, trial.id, state="running", attempts=1)
    if policy_state is not None:
        connection.execute(_SET_RUN, {"key": run_id, "policy_state": policy_state})
    return Decision(id=decision_id, seq=seq, trial_index=trial_index, landmark=landmark, attempt=1)


def _locked(connection: Connection, decision_id: int) -> Any:
    """A decision with its trial and run, all held until the end of the transaction."""
    row = connection.execute(_FIND_DECISION, {"decision_id": decision_id}).first()
    if row is None:
        raise StoreError(f"there is no decision with id {decision_id} in this store")
    return row


def _set_trial(connection: Connection, trial_id: int, **values: Any) -> None:
    connection.execute(_SET_TRIAL, {"key": trial_id, **values})


def _move(connection: Connection, row: Any, state: str, trial_state: str, **values: Any) -> None:
    """Move a decision and its trial together."""
    check_move("decision", f"decision {row.seq}", row.state, state)
    check_move("trial", f"trial {row.trial_index}", row.trial_state, trial_state)
    connection.execute(_SET_DECISION, {"key": row.id, "state": state, **values})


def complete(
    connection: Connection,
    decision_id: int,
    *,
    values: Mapping[str, float],
    signals: Mapping[str, Any],
    cost: Cost,
    checkpoint: NewCheckpoint | None,
    last: bool,
    now: float,
) -> str | None:
    """Write evaluation, cost and checkpoint; the uri of the checkpoint that was replaced."""
    row = _locked(connection, decision_id)
    done = last or row.landmark == len(row.fidelities) - 1
    state = "complete" if done else "paused"
    _move(connection, row, "done", state, finished_at=now)
    names = [objective["name"] for objective in row.objectives]
    if set(values) != set(names):
        raise StoreError(
            f"evaluation of trial {row.trial_index} has the objectives {sorted(values)}, "
            f"expected exactly {names}"
        )
    numbers = [_number(values[name]) for name in names]
    if None in numbers:
        raise StoreError(
            f"evaluation of trial {row.trial_index} has a value that is no number: {dict(values)}"
        )
    _add_evaluation(connection, row, "ok", [n for n in numbers if n is not None], signals, now)
    _add_cost(connection, row, cost)
    _set_trial(connection, row.trial_id, state=state, landmark=row.landmark, error=None)
    return _replace_checkpoint(connection, row, checkpoint, now) if checkpoint else None


def fail(
    connection: Connection,
    decision_id: int,
    *,
    kind: str,
    error: str,
    values: Mapping[str, Any] | None,
    cost: Cost | None,
    now: float,
) -> None:
    """Write that a landmark failed (its method raised) or crashed (its worker vanished)."""
    if kind not in ("failed", "crashed"):
        raise StoreError(f"a decision cannot end as {kind!r}, expected 'failed' or 'crashed'")
    if kind == "crashed" and values is not None:
        raise StoreError(
            "a crashed landmark has no values; its worker vanished before it reported any"
        )
    row = _locked(connection, decision_id)
    text = prose(error)
    _move(connection, row, kind, kind, finished_at=now, error=text)
    if kind == "failed":
        given = values or {}
        numbers = {name: _number(value) for name, value in given.items()}
        packed = [numbers.get(objective["name"]) for objective in row.objectives]
        reported = {name: given[name] for name, number in numbers.items() if number is None}
        _add_evaluation(
            connection,
            row,
            "failed",
            [math.nan if number is None else number for number in packed],
            {"reported": {name: _plain(value) for name, value in reported.items()}}
            if reported
            else {},
            now,
        )
    if cost is not None:
        _add_cost(connection, row, cost)
    _set_trial(connection, row.trial_id, state=kind, error=text)


def retry(connection: Connection, decision_id: int) -> Decision:
    """Send a crashed landmark out again."""
    row = _locked(connection, decision_id)
    if row.run_state in ("finished", "failed"):
        raise StateError(f"the run of decision {row.seq} is {row.run_state}; nothing is retried")
    _move(
        connection, row, "pending", "running",
        attempt=row.attempt + 1, finished_at=None, error=None,
    )  # fmt: skip
    _set_trial(connection, row.trial_id, state="running", attempts=row.attempt + 1, error=None)
    return _again(row)


def _again(row: Any) -> Decision:
    return Decision(
        id=row.id,
        seq=row.seq,
        trial_index=row.trial_index,
        landmark=row.landmark,
        attempt=row.attempt + 1,
    )


def give_up(connection: Connection, decision_id: int) -> None:
    """Leave a crashed trial as it is, for good."""
    row = _locked(connection, decision_id)
    check_move("decision", f"decision {row.seq}", row.state, "abandoned")
    connection.execute(_SET_DECISION, {"key": row.id, "state": "abandoned"})


def cancel(connection: Connection, decision_id: int, now: float) -> None:
    """Take a decision back before it had an outcome."""
    row = _locked(connection, decision_id)
    state = "waiting" if row.trial_landmark < 0 else "paused"
    _move(connection, row, "cancelled", state, finished_at=now)
    _set_trial(connection, row.trial_id, state=state)


def requeue(connection: Connection, run_id: int) -> list[Decision]:
    """The pending decisions that a dead controller left, each with its next attempt."""
    locked_run(connection, run_id)
    rows = connection.execute(
        select(
            DecisionRow.id,
            DecisionRow.seq,
            DecisionRow.landmark,
            DecisionRow.attempt,
            DecisionRow.trial_id,
            TrialRow.trial_index,
        )
        .join(TrialRow, TrialRow.id == DecisionRow.trial_id)
        .where(DecisionRow.run_id == run_id, DecisionRow.state == "pending")
        .order_by(DecisionRow.seq)
    ).all()
    for row in rows:
        connection.execute(_SET_DECISION, {"key": row.id, "attempt": row.attempt + 1})
        _set_trial(connection, row.trial_id, attempts=row.attempt + 1)
    return [_again(row) for row in rows]


def _number(value: Any) -> float | None:
    """A float, or None for what is no number, such as ``"n/a"``."""
    if isinstance(value, str):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _plain(value: Any) -> Any:
    """What a method reported instead of a number, as something JSON can hold."""
    return value if value is None or isinstance(value, (str, int)) else repr(value)[:500]


def _add_evaluation(
    connection: Connection,
    row: Any,
    state: str,
    numbers: Sequence[float],
    signals: Mapping[str, Any],
    now: float,
) -> None:
    evaluation = {
        "trial_id": row.trial_id,
        "decision_id": row.id,
        "landmark": row.landmark,
        "fidelity": row.fidelities[row.landmark],
        "state": state,
        "packed": pack(numbers),
        "signals": dict(signals),
        "created_at": now,
    }
    connection.execute(_ADD_EVALUATION, evaluation)


def _add_cost(connection: Connection, row: Any, cost: Cost) -> None:
    spent = {
        "decision_id": row.id,
        "attempt": row.attempt,
        "wall_s": cost.wall_s,
        "device_s": cost.device_s,
        "peak_bytes": int(cost.peak_bytes),
        "checkpoint_bytes": int(cost.checkpoint_bytes),
    }
    connection.execute(_ADD_COST, spent)


def _replace_checkpoint(
    connection: Connection, row: Any, checkpoint: NewCheckpoint, now: float
) -> str | None:
    uri, sha256, size = checkpoint
    values = {
        "decision_id": row.id,
        "landmark": row.landmark,
        "uri": name_text(uri, "checkpoint uri", limit=4000),
        "sha256": sha256,
        "size_bytes": int(size),
        "created_at": now,
    }
    old = connection.execute(_FIND_CHECKPOINT, {"trial_id": row.trial_id}).scalar()
    if old is None:
        connection.execute(_ADD_CHECKPOINT, {"trial_id": row.trial_id, **values})
        return None
    connection.execute(_SET_CHECKPOINT, {"key": row.trial_id, **values})
    # The same place was written anew: there is nothing left to delete.
    return None if old == uri else str(old)
