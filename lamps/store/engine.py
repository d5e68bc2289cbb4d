"""Engines: URLs, pragmas, and database errors told in one line.

SQLite: write-ahead log, 30 s of patience with other writers, foreign keys on. A writer begins with
    ``BEGIN IMMEDIATE``, so it waits at the start instead of failing in the middle. PostgreSQL:
    psycopg 3, connections checked before use.
"""

from __future__ import annotations

import errno
import re
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from lamps.errors import StoreError

BUSY_S = 30.0
"""How long a SQLite connection waits for another writer."""


def parse_url(url: str) -> URL:
    """The URL of a store, with a relative SQLite path made absolute.

    Raises:
        StoreError: Not a URL, a database in memory, or one that lamps does not speak.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise StoreError(
            f"store URL {_masked(url)!r} cannot be read, expected sqlite:///FILE or "
            "postgresql://USER:PASSWORD@HOST/DATABASE"
        ) from None  # the cause would show the password
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise StoreError(
                f"store URL {url!r} names no file; a run must survive its process, "
                "so give one: sqlite:///lamps.db"
            )
        return parsed.set(database=str(Path(parsed.database).absolute()))
    if backend == "postgresql":
        return (
            parsed.set(drivername="postgresql+psycopg") if parsed.drivername == backend else parsed
        )
    raise StoreError(f"store URL has the dialect {backend!r}, expected sqlite or postgresql")


def _masked(url: str) -> str:
    """A URL that cannot be parsed, without whatever may be its password."""
    return re.sub(r"//.*@", "//***@", url)


def hidden(url: URL) -> str:
    """The URL for people: without password."""
    return url.render_as_string(hide_password=True)


def open_engine(url: URL, *, foreign_keys: bool = True) -> Engine:
    """An engine whose transactions begin as the module docstring says.

    Args:
        url: From `parse_url`.
        foreign_keys: Off only while a migration rebuilds tables of SQLite.

    Raises:
        StoreError: The driver is missing, or the folder of a SQLite file.
    """
    sqlite = url.get_backend_name() == "sqlite"
    options: dict[str, Any] = {"pool_pre_ping": True, "connect_args": {"connect_timeout": 10}}
    if sqlite:
        folder = Path(str(url.database)).parent
        if not folder.is_dir():
            raise StoreError(f"store {hidden(url)}: the folder {folder} does not exist; create it")
        options = {"connect_args": {"timeout": BUSY_S, "isolation_level": None}}
    try:
        engine = create_engine(url, hide_parameters=True, **options)
    except ModuleNotFoundError as error:
        raise StoreError(
            f"store {hidden(url)} needs the driver {error.name}. "
            "Install it with: pip install 'lamps-automl[postgres]'"
        ) from error
    except SQLAlchemyError as error:
        raise told(error, url) from error
    if sqlite:
        _configure_sqlite(engine, foreign_keys)
    return engine


def _configure_sqlite(engine: Engine, foreign_keys: bool) -> None:
    path = Path(str(engine.url.database))

    @event.listens_for(engine, "connect")
    def _pragmas(connection: Any, record: Any) -> None:
        connection.execute(f"PRAGMA foreign_keys={'ON' if foreign_keys else 'OFF'}")
        connection.execute("PRAGMA synchronous=NORMAL")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("lamps_writes", False)
        # A file that was deleted stays open: what is written to it would be lost in the end.
        there = _identity(path)
        if connection.info.setdefault("file", there) != there:
            raise StoreError(
                f"store {hidden(engine.url)}: the file was deleted or replaced while it was in "
                "use; put it back from a copy, or search anew"
            )
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file is at a path; None if none is."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def told(error: BaseException, url: URL) -> StoreError:
    """A database error as one line that names the store and what to do, never the password."""
    cause = getattr(error, "orig", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    message = (
        lines[-1] if _is_connect_list(lines) else (lines[0] if lines else type(cause).__name__)
    )
    if url.password:
        message = message.replace(str(url.password), "***")
    low = message.lower()
    full = "disk is full" in low or "no space left" in low or "disk full" in low
    if full or (isinstance(cause, OSError) and cause.errno == errno.ENOSPC):
        advice = "the disk is full; free space there, nothing was written"
    elif "disk i/o error" in low:
        advice = "the disk may be full or failing; free space there, then run: lamps store check"
    elif "not a database" in low:
        advice = "the file is no SQLite database; name another file"
    elif "malformed" in low:
        advice = "the file is damaged; restore it from a copy"
    elif "is locked" in low:
        advice = f"another process has held it for {BUSY_S:.0f} s; end that one or wait"
    elif "unable to open" in low:
        advice = "the file cannot be opened; check its path and permissions"
    elif "readonly" in low or "read-only" in low:
        advice = "the file cannot be written; check its permissions"
    elif "password authentication failed" in low or "no password supplied" in low:
        advice = "give the right user and password in the URL"
    elif "connection" in low:
        advice = "check host, port and that the server runs"
    else:
        advice = "run: lamps store check"
    return StoreError(f"store {hidden(url)}: {message} ({advice})")


def _is_connect_list(lines: list[str]) -> bool:
    # psycopg lists every address it tried; the last line carries the server's own words.
    return len(lines) > 1 and "Multiple connection attempts" in lines[0]


def use_wal(engine: Engine) -> None:
    """Switch a SQLite file to its write-ahead log, for good.

    A file system that cannot have one keeps the journal it has.

    Raises:
        StoreError: The file cannot be read as a database.
    """
    # Through the driver itself, because the mode cannot change inside a transaction.
    raw = engine.raw_connection()
    try:
        raw.cursor().execute("PRAGMA journal_mode=WAL")
    except sqlite3.Error as error:
        raise told(error, engine.url) from error
    finally:
        raw.close()
