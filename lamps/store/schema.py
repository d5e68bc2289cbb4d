"""Schema versions: which one a database has, how it is made and upgraded, when it is refused.

Migrations are Alembic scripts inside the package, numbered ``0001``, ``0002``, ...; Alembic itself
is loaded only when one of them runs. A schema is created or upgraded in one transaction, under a
lock that other processes wait for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version as release_version
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock
from filelock import Timeout as LockTimeout
from sqlalchemy import URL, Connection, Engine, inspect, text

from lamps.errors import SchemaMismatch, StoreError
from lamps.store.engine import hidden, open_engine, told, use_wal
from lamps.store.models import Base
from lamps.store.transactions import read, write

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0003"
"""The newest migration: the schema that this release reads and writes."""
VERSION_TABLE = "lamps_schema_version"
"""Alembic's version table, under our own name: a PostgreSQL database may be shared."""
LOCK_S = 60.0
_LOCK_KEY = 0x6C616D7073  # "lamps": key of the PostgreSQL advisory lock


def prepare(url: URL) -> Engine:
    """An engine on a database with this release's schema, created if the database is empty.

    Safe when many processes do it at once.

    Raises:
        SchemaMismatch: The schema is older or newer.
        StoreError: The database cannot be reached or belongs to something else.
    """
    engine = open_engine(url)
    try:
        if _state(engine) is None:
            with _creation_lock(url):
                if _state(engine) is None:
                    if url.get_backend_name() == "sqlite":
                        use_wal(engine)
                    write(engine, _create)
        version = _state(engine)
        if version != HEAD:
            raise _mismatch(version, url)
    except BaseException:
        engine.dispose()
        raise
    return engine


def upgrade(url: URL) -> tuple[str | None, str]:
    """Bring a database to this release's schema.

    Returns:
        The version before (None if it was empty) and after.

    Raises:
        SchemaMismatch: The schema is newer than this release.
        StoreError: The database cannot be reached or belongs to something else.
    """
    # SQLite rebuilds a table to alter it; with foreign keys on, dropping the old one would fail.
    engine = open_engine(url, foreign_keys=False)
    try:
        with _creation_lock(url):
            before = _state(engine)
            if before is not None and before > HEAD:
                raise _mismatch(before, url)
            if url.get_backend_name() == "sqlite":
                use_wal(engine)
            write(engine, _create)
        return before, HEAD
    finally:
        engine.dispose()


def _state(engine: Engine) -> str | None:
    return read(engine, _version)


def _version(connection: Connection) -> str | None:
    """The version of the schema; None where the database is empty.

    Raises:
        StoreError: There are tables, but no version.
    """
    tables = set(inspect(connection).get_table_names())
    if VERSION_TABLE in tables:
        found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
        if found is not None:
            return str(found)
        tables.discard(VERSION_TABLE)
    # A SQLite file belongs to one application; a PostgreSQL database may be shared.
    ours = set(Base.metadata.tables)
    foreign = tables if connection.dialect.name == "sqlite" else tables & ours
    if foreign:
        listed = ", ".join(sorted(foreign)[:3])
        raise StoreError(
            f"store {hidden(connection.engine.url)}: the database has tables ({listed}, ...) but "
            "no lamps schema; it belongs to something else, name another one"
        )
    return None


def _create(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        # Held until the end of the transaction; whoever waited finds the work done.
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
    migrate(connection, HEAD)
    if connection.dialect.name == "sqlite":
        broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
        if broken:
            raise StoreError(
                f"the migration left a row of table {broken[0]} without its parent; undone"
            )


def migrate(connection: Connection, target: str) -> None:
    """Run the migrations between a database's version and ``target``, in its transaction.

    Args:
        connection: Inside a transaction.
        target: A revision, or ``base`` for none.
    """
    from alembic import command
    from alembic.runtime.migration import MigrationContext

    config = alembic_config(connection)
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    current = context.get_current_revision()
    if target == "base" or (current is not None and target < current):
        command.downgrade(config, target)
    else:
        command.upgrade(config, target)


def alembic_config(connection: Connection) -> Config:
    """Alembic's configuration, made by code: there is no ini file to ship or find."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    config.attributes["version_table"] = VERSION_TABLE
    return config


@contextmanager
def _creation_lock(url: URL) -> Iterator[None]:
    """One process at a time; PostgreSQL needs no file, see `_create`."""
    if url.get_backend_name() != "sqlite":
        yield
        return
    lock = FileLock(f"{url.database}.lock", timeout=LOCK_S)
    try:
        lock.acquire()
    except LockTimeout as error:
        raise StoreError(
            f"store {hidden(url)}: another process has been creating or upgrading it for "
            f"{LOCK_S:.0f} s; end it, or delete {lock.lock_file} if there is none"
        ) from error
    except OSError as error:
        raise told(error, url) from error
    try:
        yield
    finally:
        lock.release()


def _mismatch(version: str | None, url: URL) -> SchemaMismatch:
    here = f"lamps {release_version('lamps-automl')} has schema {HEAD}"
    if version is not None and version > HEAD:
        return SchemaMismatch(
            f"store {hidden(url)} has schema {version}, {here}; upgrade lamps to read it"
        )
    return SchemaMismatch(
        f"store {hidden(url)} has schema {version}, {here}; "
        f"run: lamps store upgrade --store {hidden(url)}"
    )
