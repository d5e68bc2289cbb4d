"""A password in a store's URL is used to connect, and is nowhere to be read afterwards."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from _postgres import PASSWORD, PostgresServer
from sqlalchemy import create_engine, inspect, text

import lamps
from lamps.errors import StoreError
from lamps.scheduler import ray_token
from lamps.store.engine import parse_url

pytestmark = pytest.mark.postgres


def run(*words: str, home: Path, code: int = 0) -> str:
    """All that a command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "lamps", *words],
        env=os.environ | {"HOME": str(home)}, capture_output=True, text=True, timeout=200,
        check=False,
    )  # fmt: skip
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done.stdout + done.stderr


def everything(server: PostgresServer) -> str:
    """Every cell of every table, as text."""
    engine = create_engine(parse_url(server.url()))
    with engine.connect() as connection:
        rows = [
            str(tuple(row))
            for name in inspect(engine).get_table_names()
            for row in connection.execute(text(f'SELECT * FROM "{name}"'))
        ]
    engine.dispose()
    assert len(rows) > 20
    return "\n".join(rows)


@pytest.mark.ray
@pytest.mark.xdist_group("ray")
@pytest.mark.timeout(300)
def test_a_password_is_in_no_output_table_report_or_log(
    server: PostgresServer, curves: Path, tmp_path: Path
) -> None:
    url, home = server.url(), tmp_path / "home"
    home.mkdir()
    search = [
        "search", "--problem", f"replay:{curves}", "--policy", "exhaustive", "--name", "r",
        "--store", url, "--artifacts", str(tmp_path / "a"), "--workers", "1",
    ]  # fmt: skip
    said = [
        run(*search, home=home),
        run("status", "r", "--store", url, home=home),
        run("status", "--store", url, "--json", home=home),
        run("front", "r", "--store", url, "--json", home=home),
        run("report", "r", str(tmp_path / "r.html"), "--store", url, home=home),
        run("store", "check", "--store", url, home=home),
        run("cluster", "doctor", "--store", url, "--json", home=home),
        run(*search, home=home, code=1),  # the name is taken
        (tmp_path / "r.html").read_text(),
        everything(server),
        "\n".join(
            p.read_text(errors="replace") for p in (tmp_path / "a").rglob("*") if p.is_file()
        ),
    ]
    for text_ in said:
        assert PASSWORD not in text_
    assert "***" in said[6]  # the doctor shows the URL without it


def test_an_error_of_the_database_does_not_show_it(server: PostgresServer) -> None:
    wrong = server.url(password="hunter-of-the-tests")
    with pytest.raises(StoreError) as caught:
        lamps.open_store(wrong)
    assert "hunter" not in str(caught.value)
    with pytest.raises(StoreError) as caught:
        lamps.open_store(f"postgresql://lamps:{PASSWORD}@[bad/x")
    assert PASSWORD not in str(caught.value)


def test_a_token_has_no_way_into_a_run(
    curves: Path, store_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "token-of-the-tests")
    run_ = lamps.search(problem=f"replay:{curves}", backend="local", store=store_url, name="r")
    assert "token-of-the-tests" not in str(run_.record)
    assert b"token-of-the-tests" not in (tmp_path / "lamps.db").read_bytes()
    with contextlib.suppress(FileNotFoundError):
        assert b"token-of-the-tests" not in (tmp_path / "lamps.db-wal").read_bytes()
    assert "token-of-the-tests" not in str(ray_token.token_path())
