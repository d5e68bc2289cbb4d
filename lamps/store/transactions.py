"""Transactions that are carried out once, whatever the database goes through meanwhile.

A transaction is tried again where the database rolled it back on its own (deadlock, failed
serialization) and, on PostgreSQL, where the connection was lost: servers restart, networks drop.
Where that happens during the commit, it is open whether it has committed. PostgreSQL can be asked:
the transaction's id is fetched before the commit, its status afterwards over a new connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakSet

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from lamps.errors import StoreError
from lamps.store.engine import told

T = TypeVar("T")

ATTEMPTS = 4
"""How often a transaction that the database rolled back on its own is tried."""
RECONNECT_S = 60.0
"""How long a server that has answered before may be away."""
_ROLLED_BACK = {"40001", "40P01"}  # PostgreSQL: serialization failure, deadlock
_AWAY = {"57P01", "57P02", "57P03"}  # shutting down, crashed, starting up
_STATUS = text("SELECT pg_xact_status(CAST(CAST(:id AS text) AS xid8))")

_answered: WeakSet[Engine] = WeakSet()


def read(engine: Engine, work: Callable[[Connection], T]) -> T:
    """The result of ``work`` on one snapshot.

    Raises:
        StoreError: The database failed.
    """
    return _transact(engine, work, writes=False)


def write(engine: Engine, work: Callable[[Connection], T]) -> T:
    """The result of ``work`` in one short transaction that is committed as a whole or not at all.

    ``work`` may be called several times; it is committed once.

    Raises:
        StoreError: The database failed; nothing was written.
    """
    return _transact(engine, work, writes=True)


def _transact(engine: Engine, work: Callable[[Connection], T], *, writes: bool) -> T:
    rolled_back = 0
    patience = _Patience(engine)
    while True:
        commit: list[str] = []
        try:
            with engine.connect() as connection:
                connection = connection.execution_options(lamps_writes=writes)
                with connection.begin():
                    result = work(connection)
                    if writes and engine.dialect.name == "postgresql":
                        commit.append(str(connection.scalar(text("SELECT pg_current_xact_id()"))))
            _answered.add(engine)
            return result
        except DBAPIError as error:
            rolled_back += _is_rolled_back(error)
            if _is_rolled_back(error) and rolled_back < ATTEMPTS:
                time.sleep(0.02 * 2**rolled_back)
            elif not _is_lost(error):
                raise told(error, engine.url) from error
            elif commit and _has_committed(engine, commit[0], patience, error):
                return result
            else:
                patience.wait(error)
        except (SQLAlchemyError, OSError) as error:
            raise told(error, engine.url) from error


def _is_rolled_back(error: DBAPIError) -> bool:
    return getattr(error.orig, "sqlstate", None) in _ROLLED_BACK


def _is_lost(error: DBAPIError) -> bool:
    """Whether the connection, not what was asked over it, is to blame."""
    state = getattr(error.orig, "sqlstate", None)
    if error.connection_invalidated or state in _AWAY:
        return True
    # A server that cannot be reached has no words for it; SQLite's errors have no states at all.
    return state is None and type(error.orig).__module__.startswith("psycopg")


def _has_committed(engine: Engine, xid: str, patience: _Patience, cause: DBAPIError) -> bool:
    """Whether the transaction of that id was committed before its connection was lost."""
    while True:
        try:
            with engine.connect() as connection:
                status = connection.scalar(_STATUS, {"id": xid})
        except DBAPIError as error:
            if not _is_lost(error):
                raise told(error, engine.url) from error
            patience.wait(error)
            continue
        if status != "in progress":  # its server process may not have noticed yet
            return bool(status == "committed")
        patience.wait(cause)


class _Patience:
    """Waits between attempts, ever longer, while a server that has answered before is away."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known = engine in _answered
        self._deadline: float | None = None
        self._pause_s = 0.05

    def wait(self, error: DBAPIError) -> None:
        """Wait a little.

        Raises:
            StoreError: The server has been away for too long, or was never there.
        """
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + (RECONNECT_S if self._known else 0.0)
        if now >= self._deadline:
            if self._known:
                said = told(error, self._engine.url)
                raise StoreError(f"{said}; it was tried for {RECONNECT_S:g} s") from error
            raise told(error, self._engine.url) from error
        time.sleep(min(self._pause_s, self._deadline - now))
        self._pause_s = min(2 * self._pause_s, 2.0)
