"""Scores of policies on landmark tables: inserted once each, however often they are given."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, insert, select

from lamps.errors import StoreError
from lamps.store.columns import name_text
from lamps.store.models import PolicyScoreRow, core
from lamps.store.records import PolicyScore

MEASURES = (
    "time_99", "time_999", "time_100", "zero_99", "zero_999", "zero_100", "area", "stop_value",
    "stop_time", "decision_ms",
)  # fmt: skip
_NAMES = ("policy", "version", "code", "table_name", "family")
_PLAIN = ("weights_sha256", "fingerprint", "pool", "candidates", "landmarks", "front", "workers",
          "seed")  # fmt: skip
_BLOCK = 500  # parameters of one statement are bounded on both databases


def add(connection: Connection, scores: Sequence[PolicyScore], now: float) -> int:
    """Insert the scores that are new; how many."""
    rows = {row["key"]: row for row in (_row(score, now) for score in scores)}
    known: set[str] = set()
    keys = list(rows)
    for start in range(0, len(keys), _BLOCK):
        some = select(PolicyScoreRow.key).where(
            PolicyScoreRow.key.in_(keys[start : start + _BLOCK])
        )
        known |= set(connection.execute(some).scalars())
    new = [row for key, row in rows.items() if key not in known]
    if new:
        connection.execute(insert(core(PolicyScoreRow)), new)
    return len(new)


def listed(connection: Connection) -> list[PolicyScore]:
    """All scores in the order in which they came."""
    columns = [c for c in PolicyScoreRow.__table__.c if c.name not in ("id", "key")]
    found = []
    for row in connection.execute(select(*columns).order_by(PolicyScoreRow.id)).mappings():
        cells = dict(row)
        measures = {name: cells.pop(name) for name in MEASURES}
        cells["objectives"] = tuple(cells["objectives"])
        found.append(PolicyScore(**cells, measures=measures))
    return found


def _row(score: PolicyScore, now: float) -> dict[str, Any]:
    if set(score.measures) != set(MEASURES):
        odd = sorted(set(score.measures) ^ set(MEASURES))
        raise StoreError(f"a score has or lacks the measures {odd}, expected {list(MEASURES)}")
    row: dict[str, Any] = {
        name: name_text(getattr(score, name), name.replace("_", " ")) for name in _NAMES
    }
    row |= {name: getattr(score, name) for name in _PLAIN}
    row["objectives"] = list(score.objectives)
    digest = hashlib.sha256(repr(sorted(row.items())).encode()).hexdigest()
    return {**row, **score.measures, "key": digest, "created_at": now}
