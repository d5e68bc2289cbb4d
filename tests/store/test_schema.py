"""Migrations, versions, and databases that cannot be opened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _postgres import PASSWORD, PostgresServer
from _store_samples import candidates, spec
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect, text

from lamps.errors import SchemaMismatch, StoreError
from lamps.store import Store, schema
from lamps.store.engine import open_engine, parse_url
from lamps.store.models import Base
from lamps.store.transactions import read, write


def difference(connection: Connection) -> list[Any]:
    options = {"version_table": schema.VERSION_TABLE, "compare_type": True}
    context = MigrationContext.configure(connection, opts=options)
    return list(compare_metadata(context, Base.metadata))


def constraints(connection: Connection) -> set[str]:
    found = set()
    inspector = inspect(connection)
    for table in Base.metadata.tables:
        found |= {str(c["name"]) for c in inspector.get_check_constraints(table)}
        found |= {str(c["name"]) for c in inspector.get_unique_constraints(table)}
        found |= {str(c["name"]) for c in inspector.get_foreign_keys(table)}
        found.add(str(inspector.get_pk_constraint(table)["name"]))
    return found


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """An engine on an empty database."""
    opened = open_engine(parse_url(url))
    yield opened
    opened.dispose()


def test_up_down_up_and_models_match(engine: Engine) -> None:
    for _ in range(2):
        write(engine, lambda c: schema.migrate(c, schema.HEAD))
        assert read(engine, difference) == []
        wanted = {str(c.name) for t in Base.metadata.tables.values() for c in t.constraints}
        assert read(engine, constraints) == wanted
        write(engine, lambda c: schema.migrate(c, "base"))
        left = read(engine, lambda c: inspect(c).get_table_names())
        assert left == [schema.VERSION_TABLE]


def test_there_is_one_head_and_it_is_ours(sqlite_url: str) -> None:
    engine = open_engine(parse_url(sqlite_url))
    with engine.connect() as connection:
        scripts = ScriptDirectory.from_config(schema.alembic_config(connection))
    engine.dispose()
    assert scripts.get_heads() == [schema.HEAD]


def test_upgrade_creates_and_is_a_no_op_after_that(url: str) -> None:
    assert Store.upgrade(url) == (None, schema.HEAD)
    assert Store.upgrade(url) == (schema.HEAD, schema.HEAD)
    with Store.open(url) as store:
        assert store.runs() == []


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("9999", f"has schema 9999, lamps .* has schema {schema.HEAD}; upgrade lamps"),
        ("0000", f"has schema 0000, .* has schema {schema.HEAD}; run: lamps store upgrade --s"),
    ],
)
def test_another_schema_is_refused_with_both_versions(
    url: str, version: str, message: str
) -> None:
    with Store.open(url) as store:
        statement = text(f"UPDATE {schema.VERSION_TABLE} SET version_num = '{version}'")
        store._write(lambda c: c.execute(statement))
    with pytest.raises(SchemaMismatch, match=message) as caught:
        Store.open(url)
    assert PASSWORD not in str(caught.value)
    if version == "9999":
        with pytest.raises(SchemaMismatch, match="9999"):
            Store.upgrade(url)


def one_line(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        Store.open(url)
    assert "\n" not in str(caught.value)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("lamps.db", "cannot be read, expected sqlite:///FILE"),
        (f"postgresql://u:{PASSWORD}@host:port/db", "cannot be read"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("mysql://host/db", "dialect 'mysql'"),
        ("postgresql+asyncpg://u:p@h/d", "needs the driver asyncpg"),
        ("postgresql+nonsense://u:p@h/d", "nonsense"),
        (f"postgresql://u:{PASSWORD}@127.0.0.1:1/d", "connection .* failed|refused"),
    ],
)
def test_urls_that_cannot_be_opened(url: str, message: str) -> None:
    one_line(url, message)


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    one_line(f"sqlite:///{tmp_path}/missing/lamps.db", "missing does not exist; create it")
    other = tmp_path / "other.db"
    other.write_bytes(b"PK\x03\x04 this is no database" * 400)
    one_line(f"sqlite:///{other}", "not a database")
    one_line(f"sqlite:///{tmp_path}", "cannot be opened")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "lamps.db"
    with Store.open(f"sqlite:///{file}") as store:
        store.create_run(spec(), candidates(500))
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    one_line(f"sqlite:///{file}", "damaged; restore")


def test_a_database_of_something_else_is_refused(url: str, engine: Engine) -> None:
    write(engine, lambda c: c.execute(text("CREATE TABLE runs (id INTEGER)")))
    one_line(url, "belongs to something else")


def test_a_relative_file_stays_where_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Store.open("sqlite:///lamps.db") as store:
        store.close()
        monkeypatch.chdir("/")
        assert store.runs() == []
    assert (tmp_path / "lamps.db").exists()


@pytest.mark.postgres
def test_a_wrong_password_is_not_shown(postgres: PostgresServer) -> None:
    for wrong in ("hunter2-wrong", PASSWORD + "x"):
        with pytest.raises(StoreError, match="password authentication failed") as caught:
            Store.open(postgres.url(password=wrong))
        assert wrong not in str(caught.value)
        assert "\n" not in str(caught.value)
    one_line(postgres.url("no_such_database"), "does not exist")


@pytest.mark.postgres
def test_the_password_is_hidden(postgres_url: str) -> None:
    with Store.open(postgres_url) as store:
        assert PASSWORD not in store.url
        assert PASSWORD not in repr(store)
        assert "***" in store.url
