"""Replications: claims, and each pair of numbers as it is measured."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from lamps.errors import StoreError
from lamps.replication import Claim, Measurement
from lamps.store.columns import name_text, prose
from lamps.store.models import (
    Base,
    ReplicationClaimRow,
    ReplicationMeasurementRow,
    ReplicationRow,
    ReplicationSeedRow,
)
from lamps.store.replication_records import ReplicationSpec, StoredReplication, StoredSeed
from lamps.types import Json

_KEY = ("family", "method", "method_version", "version", "profile", "fingerprint")
_GONE = -1  # position of a claim that its replication makes no more


def begin(connection: Connection, spec: ReplicationSpec, now: float) -> int:
    """Insert what is new of a replication and its claims; the id."""
    row: dict[str, Any] = {
        name: name_text(getattr(spec, name), name.replace("_", " ")) for name in _KEY
    }
    row["key"] = hashlib.sha256(repr(list(row.items())).encode()).hexdigest()
    told = {
        "summary": prose(spec.summary),
        "paper": None if spec.paper is None else dict(spec.paper),
    }
    _insert_new(connection, ReplicationRow, {**row, **told, "created_at": now})
    where = ReplicationRow.key == row["key"]
    connection.execute(update(ReplicationRow).where(where).values(told))
    replication_id = int(connection.execute(select(ReplicationRow.id).where(where)).scalar_one())
    mine = ReplicationClaimRow.replication_id == replication_id
    connection.execute(update(ReplicationClaimRow).where(mine).values(position=_GONE))
    for position, claim in enumerate(spec.claims):
        fixed = {
            "replication_id": replication_id,
            "name": name_text(claim.id, "claim"),
            "version": name_text(claim.version, "version of a claim"),
        }
        today = {"position": position, "definition": claim.as_json()}
        _insert_new(connection, ReplicationClaimRow, {**fixed, **today})
        this = [getattr(ReplicationClaimRow, k) == v for k, v in fixed.items()]
        connection.execute(update(ReplicationClaimRow).where(*this).values(today))
    return replication_id


def begin_seed(
    connection: Connection, replication_id: int, seed: int, claims: Sequence[str], now: float
) -> None:
    """Insert a seed of each claim where it is missing."""
    for number in _claim_ids(connection, replication_id, claims).values():
        row = {"claim_id": number, "seed": seed, "begun_at": now}
        _insert_new(connection, ReplicationSeedRow, row)


def forget_seed(
    connection: Connection, replication_id: int, seed: int, claims: Sequence[str]
) -> None:
    """Delete what was measured of some claims with a seed."""
    where = _seeds(connection, replication_id, seed, claims)
    rows = ReplicationMeasurementRow.seed_id.in_(select(ReplicationSeedRow.id).where(where))
    connection.execute(delete(ReplicationMeasurementRow).where(rows))
    connection.execute(delete(ReplicationSeedRow).where(where))


def add(connection: Connection, replication_id: int, measurement: Measurement, now: float) -> bool:
    """Insert a pair; whether there was none yet of its claim, seed and unit."""
    where = _seeds(connection, replication_id, measurement.seed, [measurement.claim])
    seed_id = connection.execute(select(ReplicationSeedRow.id).where(where)).scalar()
    if seed_id is None:
        raise StoreError(
            f"claim {measurement.claim!r} was not begun with seed {measurement.seed}; "
            "begin it before its measurements are stored"
        )
    row = {
        "seed_id": seed_id,
        "unit": name_text(measurement.unit, "unit"),
        "newcomer": measurement.newcomer,
        "comparison": measurement.comparison,
        "details": dict(measurement.details),
        "created_at": now,
    }
    return _insert_new(connection, ReplicationMeasurementRow, row)


def finish_seed(
    connection: Connection,
    replication_id: int,
    seed: int,
    claims: Sequence[str],
    facts: Mapping[str, Json],
    wall_s: float,
    now: float,
) -> None:
    """Write that claims were measured to the end with a seed."""
    where = _seeds(connection, replication_id, seed, claims)
    connection.execute(
        update(ReplicationSeedRow)
        .where(where)
        .values(facts=dict(facts), wall_s=wall_s, finished_at=now)
    )


def one(connection: Connection, replication_id: int) -> StoredReplication:
    """A replication by its id."""
    wanted = select(*ReplicationRow.__table__.c).where(ReplicationRow.id == replication_id)
    return _replication(connection, dict(connection.execute(wanted).mappings().one()))


def listed(connection: Connection) -> list[StoredReplication]:
    """All replications in the order in which they were begun."""
    wanted = select(*ReplicationRow.__table__.c).order_by(ReplicationRow.id)
    rows = connection.execute(wanted).mappings().all()
    return [_replication(connection, dict(row)) for row in rows]


def _replication(connection: Connection, row: dict[str, Any]) -> StoredReplication:
    del row["key"]
    claims = connection.execute(
        select(ReplicationClaimRow.id, ReplicationClaimRow.name, ReplicationClaimRow.definition)
        .where(ReplicationClaimRow.replication_id == row["id"], ReplicationClaimRow.position >= 0)
        .order_by(ReplicationClaimRow.position)
    ).all()
    names = {c.id: c.name for c in claims}
    seeds = connection.execute(
        select(*ReplicationSeedRow.__table__.c).where(ReplicationSeedRow.claim_id.in_(names))
    ).all()
    pairs = connection.execute(
        select(*ReplicationMeasurementRow.__table__.c)
        .where(
            ReplicationMeasurementRow.seed_id.in_(
                select(ReplicationSeedRow.id).where(ReplicationSeedRow.claim_id.in_(names))
            )
        )
        .order_by(ReplicationMeasurementRow.id)
    ).all()
    by_seed: dict[int, list[Any]] = defaultdict(list)
    for pair in pairs:
        by_seed[pair.seed_id].append(pair)
    place = {number: i for i, number in enumerate(names)}
    return StoredReplication(
        **row,
        claims=[Claim.from_json(c.definition) for c in claims],
        seeds=[
            StoredSeed(
                claim=names[s.claim_id],
                seed=s.seed,
                facts=s.facts or {},
                wall_s=s.wall_s,
                finished_at=s.finished_at,
                measurements=[
                    Measurement(
                        claim=names[s.claim_id],
                        seed=s.seed,
                        unit=p.unit,
                        newcomer=p.newcomer,
                        comparison=p.comparison,
                        details=p.details,
                    )
                    for p in by_seed[s.id]
                ],
            )
            for s in sorted(seeds, key=lambda s: (place[s.claim_id], s.seed))
        ],
    )


def _seeds(connection: Connection, replication_id: int, seed: int, claims: Sequence[str]) -> Any:
    """The condition that selects the rows of one seed of some claims."""
    numbers = _claim_ids(connection, replication_id, claims).values()
    return ReplicationSeedRow.claim_id.in_(numbers) & (ReplicationSeedRow.seed == seed)


def _claim_ids(
    connection: Connection, replication_id: int, claims: Sequence[str]
) -> dict[str, int]:
    rows = connection.execute(
        select(ReplicationClaimRow.name, ReplicationClaimRow.id).where(
            ReplicationClaimRow.replication_id == replication_id,
            ReplicationClaimRow.name.in_(claims),
            ReplicationClaimRow.position >= 0,
        )
    ).all()
    found = {row.name: int(row.id) for row in rows}
    if missing := sorted(set(claims) - set(found)):
        raise StoreError(f"replication {replication_id} has no claim {missing[0]!r}")
    return found


def _insert_new(connection: Connection, model: type[Base], row: Mapping[str, Any]) -> bool:
    """Insert a row unless one with the same unique columns is there; whether it was new."""
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(model).values(row).on_conflict_do_nothing()
    return connection.execute(statement.returning(model.id)).scalar() is not None
