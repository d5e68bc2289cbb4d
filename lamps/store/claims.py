"""One controller per run: who holds it, and when another one may take it over.

Called by `Store` alone, inside one transaction each.
"""

from __future__ import annotations

import os
from pathlib import Path

from sqlalchemy import Connection, update

from lamps.errors import StateError
from lamps.store.columns import name_text
from lamps.store.models import RunRow
from lamps.store.runs import locked_run

HEARTBEAT_S = 60.0
"""A claim whose heartbeat is older than this may be taken over."""


def claim(
    connection: Connection, run_id: int, owner: str, pid: int, host: str, now: float
) -> None:
    """Make ``owner`` the one controller of a run."""
    run = locked_run(connection, run_id)
    free = (
        run.owner is None
        or (run.owner, run.owner_pid, run.owner_host) == (owner, pid, host)
        or (run.owner_host == host and not _alive(run.owner_pid))
        or now - (run.heartbeat_at or 0.0) > HEARTBEAT_S
    )
    if not free:
        raise StateError(
            f"run {run.name!r} is held by {run.owner} (pid {run.owner_pid} on {run.owner_host}), "
            f"last seen {max(0.0, now - run.heartbeat_at):.0f} s ago; stop that process, or wait "
            f"until it has been silent for {HEARTBEAT_S:.0f} s"
        )
    connection.execute(
        update(RunRow)
        .where(RunRow.id == run_id)
        .values(
            owner=name_text(owner, "owner", limit=200),
            owner_pid=pid,
            owner_host=name_text(host, "host", limit=300),
            heartbeat_at=now,
        )
    )


def heartbeat(connection: Connection, run_id: int, owner: str, now: float) -> None:
    """Say that the controller is alive."""
    statement = update(RunRow).where(RunRow.id == run_id, RunRow.owner == owner)
    if not connection.execute(statement.values(heartbeat_at=now)).rowcount:
        run = locked_run(connection, run_id)
        raise StateError(
            f"run {run.name!r} is no longer held by {owner} but by {run.owner or 'nobody'}; "
            "stop working on it"
        )


def release(connection: Connection, run_id: int, owner: str) -> None:
    """Give up the claim; nothing happens where another controller has taken over."""
    connection.execute(
        update(RunRow)
        .where(RunRow.id == run_id, RunRow.owner == owner)
        .values(owner=None, owner_pid=None, owner_host=None, heartbeat_at=None)
    )


def _alive(pid: int | None) -> bool:
    """Whether a process of this machine runs; one that is dead but not yet collected does not."""
    if pid is None or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return (
            True  # no /proc on this system, or the process ended just now: the heartbeat decides
        )
