"""Trained policies: which weights, learned from which tables, and how good they are."""

from __future__ import annotations

from sqlalchemy import Connection, insert, select

from lamps.errors import StoreError
from lamps.store.columns import name_text
from lamps.store.models import PolicyRow
from lamps.store.records import PolicyRecord


def add(connection: Connection, record: PolicyRecord) -> None:
    """Insert a policy whose name and version are new."""
    known = (PolicyRow.name == record.name, PolicyRow.version == record.version)
    if connection.execute(select(PolicyRow.id).where(*known)).first():
        raise StoreError(
            f"policy {record.name!r} {record.version} exists already; raise its version"
        )
    connection.execute(
        insert(PolicyRow).values(
            name=name_text(record.name, "policy name", limit=200),
            version=name_text(record.version, "policy version", limit=200),
            weights_sha256=record.weights_sha256,
            training_tables=list(record.training_tables),
            score=record.score,
            created_at=record.created_at,
        )
    )


def listed(connection: Connection) -> list[PolicyRecord]:
    """All trained policies by name and version."""
    rows = connection.execute(
        select(*(c for c in PolicyRow.__table__.c if c.name != "id")).order_by(
            PolicyRow.name, PolicyRow.version
        )
    ).mappings()
    return [PolicyRecord(**row) for row in rows]
