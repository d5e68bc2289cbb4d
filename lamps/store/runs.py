"""Writers of whole runs: their creation, state, spending and test scores.

Called by `Store` alone. Each function works on a connection inside one transaction and leaves
commit and rollback to its caller.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from lamps.errors import StateError, StoreError
from lamps.method import ModelInfo
from lamps.store.columns import encode, name_text, pack, prose
from lamps.store.models import (
    Base,
    CandidateRow,
    MethodRow,
    ModelRow,
    ProblemRow,
    RunModelRow,
    RunRow,
    TrialRow,
)
from lamps.store.records import RunSpec
from lamps.store.states import check_move, is_terminal, sources
from lamps.types import Candidate


def create_run(
    connection: Connection,
    spec: RunSpec,
    candidates: Sequence[Candidate],
    labels: Sequence[str] | None,
    now: float,
) -> int:
    """Insert a run with its pool and everything they point to; the id of the run."""
    _check_spec(spec, candidates, labels)
    values = {
        "name": name_text(spec.name, "run name"),
        "problem_id": _problem_id(connection, spec),
        "state": "created",
        "note": "",
        "objectives": [asdict(objective) for objective in spec.objectives],
        "front_objectives": list(spec.front_objectives),
        "fidelities": [float(f) for f in spec.fidelities],
        "unit": name_text(spec.unit, "fidelity unit", limit=200),
        "settings": spec.settings,
        "seed": spec.seed,
        "budget": spec.budget.as_dict(),
        "policy": spec.policy and name_text(spec.policy, "policy name", limit=200),
        "policy_version": name_text(spec.policy_version, "policy version", limit=200),
        "workers": spec.workers,
        "artifact_root": prose(spec.artifact_root),
        "spent_wall_s": 0.0,
        "spent_device_s": 0.0,
        "created_at": now,
    }
    statement = _insert(connection, RunRow).values(values).on_conflict_do_nothing()
    run_id = connection.execute(statement.returning(RunRow.id)).scalar()
    if run_id is None:
        state = connection.execute(select(RunRow.state).where(RunRow.name == spec.name)).scalar()
        raise StoreError(
            f"a run named {spec.name!r} exists already and is {state}; "
            f"resume it with: lamps resume {spec.name!r}, or choose another name"
        )
    _add_models(connection, run_id, spec.models)
    _add_trials(connection, run_id, spec, candidates, labels)
    return int(run_id)


def _check_spec(
    spec: RunSpec, candidates: Sequence[Candidate], labels: Sequence[str] | None
) -> None:
    names = [objective.name for objective in spec.objectives]
    if not names or len(set(names)) < len(names):
        raise StoreError(
            f"a run measures the objectives {names}, expected distinct ones, at least one"
        )
    if strange := set(spec.front_objectives) - set(names):
        raise StoreError(f"front objectives {sorted(strange)} are not measured; known: {names}")
    if not spec.fidelities or any(b <= a for a, b in pairwise(spec.fidelities)):
        raise StoreError(f"fidelities {list(spec.fidelities)} do not increase")
    if not candidates:
        raise StoreError("a run needs at least one candidate, got none")
    for what, given in (("size hints", spec.size_hints), ("labels", labels or ())):
        if len(given) not in (0, len(candidates)):
            raise StoreError(
                f"{len(given)} {what} for {len(candidates)} candidates; expected one each"
            )
    for candidate in candidates:
        if candidate.family != spec.family:
            raise StoreError(
                f"{candidate.label} is of family {candidate.family!r}, not {spec.family!r}"
            )
        if candidate.method not in spec.method_versions:
            raise StoreError(
                f"method_versions lacks {candidate.method!r}; every method needs its version"
            )


def _insert(connection: Connection, model: type[Base]) -> Any:
    """An INSERT that knows ON CONFLICT; both databases do, under different names in SQLAlchemy."""
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(model)


def _key(value: Any) -> str:
    text = json.dumps(encode(value), sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _ensure(
    connection: Connection, model: Any, rows: Mapping[str, dict[str, Any]]
) -> dict[str, int]:
    """Rows by their unique key, inserted where they are missing; the ids by key."""
    if not rows:
        return {}
    # In the order of the keys, so that two writers never wait for each other in a circle.
    ordered = [rows[key] for key in sorted(rows)]
    connection.execute(_insert(connection, model).on_conflict_do_nothing(), ordered)
    ids: dict[str, int] = {}
    keys = list(rows)
    for start in range(0, len(keys), 500):
        chunk = keys[start : start + 500]
        found = connection.execute(select(model.key, model.id).where(model.key.in_(chunk)))
        ids.update((key, number) for key, number in found)
    return ids


def _problem_id(connection: Connection, spec: RunSpec) -> int:
    row: dict[str, Any] = {
        "family": name_text(spec.family, "family", limit=200),
        "name": name_text(spec.problem_name, "problem name"),
        "fingerprint": name_text(spec.problem_fingerprint, "problem fingerprint"),
        "reference": spec.problem_reference,
        "card": spec.problem_card,
    }
    key = _key(row)
    return _ensure(connection, ProblemRow, {key: {"key": key, **row}})[key]


def _add_models(connection: Connection, run_id: int, models: Sequence[ModelInfo]) -> None:
    rows: dict[str, dict[str, Any]] = {}
    for model in models:
        row = asdict(model)
        for column in ("path", "source", "licence"):
            row[column] = None if row[column] is None else prose(row[column])
        row["name"] = name_text(model.name, "model name")
        rows[_key(row)] = {"key": _key(row), **row}
    ids = _ensure(connection, ModelRow, rows)
    if ids:
        links = [{"run_id": run_id, "model_id": ids[key]} for key in rows]
        connection.execute(insert(RunModelRow), links)


def _method_ids(connection: Connection, spec: RunSpec, names: set[str]) -> dict[str, int]:
    rows = [
        {
            "family": spec.family,
            "name": name_text(name, "method name", limit=200),
            "version": name_text(spec.method_versions[name], "method version", limit=200),
        }
        for name in sorted(names)
    ]
    connection.execute(_insert(connection, MethodRow).on_conflict_do_nothing(), rows)
    found = connection.execute(
        select(MethodRow.name, MethodRow.version, MethodRow.id).where(
            MethodRow.family == spec.family, MethodRow.name.in_(names)
        )
    )
    return {
        name: number for name, version, number in found if spec.method_versions[name] == version
    }


def _add_trials(
    connection: Connection,
    run_id: int,
    spec: RunSpec,
    candidates: Sequence[Candidate],
    labels: Sequence[str] | None,
) -> None:
    methods = _method_ids(connection, spec, {candidate.method for candidate in candidates})
    rows: dict[str, dict[str, Any]] = {}
    keys: list[str] = []
    for candidate in candidates:
        try:
            key = candidate.key
        except (TypeError, ValueError) as error:
            raise StoreError(
                f"the params of {prose(candidate.label)} are no JSON: {error}"
            ) from error
        keys.append(key)
        rows[key] = {
            "key": key,
            "family": candidate.family,
            "method": candidate.method,
            "params": candidate.params,
            "label": prose(candidate.label),
        }
    ids = _ensure(connection, CandidateRow, rows)
    connection.execute(
        insert(TrialRow),
        [
            {
                "run_id": run_id,
                "trial_index": index,
                "candidate_id": ids[keys[index]],
                "method_id": methods[candidate.method],
                "state": "waiting",
                "landmark": -1,
                "attempts": 0,
                "label": prose(labels[index]) if labels else None,
                "size_hint": spec.size_hints[index] if spec.size_hints else None,
            }
            for index, candidate in enumerate(candidates)
        ],
    )


# Built once: building a statement takes longer than running it.
_LOCK_RUN = (
    select(
        RunRow.id,
        RunRow.name,
        RunRow.state,
        RunRow.fidelities,
        RunRow.front_objectives,
        RunRow.spent_wall_s,
        RunRow.spent_device_s,
        RunRow.owner,
        RunRow.owner_pid,
        RunRow.owner_host,
        RunRow.heartbeat_at,
        RunRow.started_at,
    )
    .where(RunRow.id == bindparam("run_id"))
    .with_for_update()
)


def locked_run(connection: Connection, run_id: int) -> Any:
    """The row of a run, held until the end of the transaction, so that its writers queue.

    Raises:
        StoreError: There is no such run.
    """
    row = connection.execute(_LOCK_RUN, {"run_id": run_id}).first()
    if row is None:
        raise StoreError(
            f"there is no run with id {run_id} in this store; list them with: lamps status"
        )
    return row


def set_state(connection: Connection, run_id: int, state: str, note: str, now: float) -> None:
    """Move a run to another state."""
    run = locked_run(connection, run_id)
    check_move("run", f"run {run.name!r}", run.state, state)
    if state == "finished":
        open_trials = connection.execute(
            select(func.count()).where(
                TrialRow.run_id == run_id, TrialRow.state.in_(("waiting", "paused", "running"))
            )
        ).scalar_one()
        if open_trials:
            raise StateError(
                f"run {run.name!r} has {open_trials} trials that wait or run and cannot be "
                "finished; complete or cancel their decisions, then stop_trials"
            )
    values: dict[str, Any] = {"state": state, "note": prose(note)}
    if state == "running" and run.started_at is None:
        values["started_at"] = now
    if is_terminal("run", state):
        values["finished_at"] = now
    connection.execute(update(RunRow).where(RunRow.id == run_id).values(values))


def add_spent(connection: Connection, run_id: int, wall_s: float, device_s: float) -> None:
    """Add to what a run has spent."""
    if not (0 <= wall_s < float("inf") and 0 <= device_s < float("inf")):
        raise StoreError(
            f"spent wall_s={wall_s}, device_s={device_s}: expected finite seconds >= 0"
        )
    run = locked_run(connection, run_id)
    connection.execute(
        update(RunRow)
        .where(RunRow.id == run_id)
        .values(
            spent_wall_s=run.spent_wall_s + wall_s, spent_device_s=run.spent_device_s + device_s
        )
    )


def set_reference_point(connection: Connection, run_id: int, values: Sequence[float]) -> None:
    """Store the point that bounds the hypervolume."""
    run = locked_run(connection, run_id)
    if len(values) != len(run.front_objectives):
        raise StoreError(
            f"reference point of {len(values)} values for the objectives {run.front_objectives}"
        )
    connection.execute(
        update(RunRow).where(RunRow.id == run_id).values(reference_point=pack(values))
    )


def stop_trials(connection: Connection, run_id: int, state: str, index: int | None) -> int:
    """Move waiting and paused trials to ``stopped`` or ``cancelled``; how many."""
    locked_run(connection, run_id)
    statement = update(TrialRow).where(
        TrialRow.run_id == run_id, TrialRow.state.in_(sources("trial", state))
    )
    if index is not None:
        statement = statement.where(TrialRow.trial_index == index)
    return int(connection.execute(statement.values(state=state)).rowcount)


def record_test(
    connection: Connection,
    run_id: int,
    index: int,
    values: Mapping[str, float],
    signals: Mapping[str, Any],
    now: float,
) -> None:
    """Store the test scores of a trial, once."""
    run = locked_run(connection, run_id)
    where = (TrialRow.run_id == run_id, TrialRow.trial_index == index)
    trial = connection.execute(
        select(TrialRow.state, TrialRow.landmark, TrialRow.tested_at).where(*where)
    ).first()
    if trial is None:
        raise StoreError(f"run {run.name!r} has no trial {index}")
    if trial.tested_at is not None:
        raise StateError(
            f"trial {index} of run {run.name!r} was tested already; test data opens once"
        )
    if trial.state == "running" or trial.landmark < 0:
        raise StateError(
            f"trial {index} is {trial.state} at landmark {trial.landmark}; nothing to test"
        )
    numbers = {name: float(value) for name, value in values.items()}
    connection.execute(
        update(TrialRow)
        .where(*where)
        .values(test_values=numbers, test_signals=dict(signals), tested_at=now)
    )
