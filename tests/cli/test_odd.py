"""Odd names, odd files, odd places."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from _lamps_cli import Searched, run

NAME = ("../ä/ö\\日本語 🙂 'q' \"d\" $HOME `x` %s {y} [red] ; -- " * 10)[:200]


@pytest.mark.filterwarnings("ignore:Glyph")
def test_a_name_of_200_characters_goes_through_every_command(
    curves: Path, store_url: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    where = ("--store", f"sqlite:///{home}/lamps.db")
    begun = run(
        "search", "--problem", f"replay:{curves}", "--backend", "local", "--name", NAME,
        "--max-landmarks", "6", "--json", *where,
    )  # fmt: skip
    assert (begun.code, begun.document()["run"]) == (0, NAME)
    ended = run("resume", NAME, "--max-landmarks", "99", "--json", "-q", *where)
    assert (ended.code, ended.document()["state"]) == (0, "finished")
    assert [r["run"] for r in run("status", "--json", *where).document()] == [NAME]
    assert run("status", NAME, "--json", *where).document()["run"] == NAME
    for table in (run("status", *where), run("status", NAME, *where), run("front", NAME, *where)):
        assert (table.code, table.err) == (0, "")
    front = run("front", NAME, "--json", *where).document()
    index = front["members"][0]["index"]
    assert run("compare", NAME, NAME, "--json", *where).code == 0
    plot = run("front", NAME, "--plot", str(tmp_path / "front.png"), "--json", *where)
    assert plot.code == 0, plot.err
    out = tmp_path / "out"
    assert run("export", NAME, str(index), str(out), *where).code == 0
    assert (out / "lamps.json").is_file()
    assert run("store", "check", *where).code == 0
    # Everything stays below the folder that was meant, whatever the name says.
    assert sorted(p.name for p in tmp_path.iterdir()) == ["curves.csv", "front.png", "home", "out"]
    assert {p.name for p in home.iterdir()} <= {
        "lamps.db", "lamps.db-wal", "lamps.db-shm", "lamps.db.lock", "lamps-artifacts",
    }  # fmt: skip


def test_a_title_is_text_and_not_markup(curves: Path, store_url: str) -> None:
    run("search", "--problem", f"replay:{curves}", "--backend", "local", "--name", "[red]x[/]",
        "--store", store_url, "-q")  # fmt: skip
    assert "[red]x[/]" in run("status", "--store", store_url).out
    assert "'[red]x[/]'" in run("status", "[red]x[/]", "--store", store_url).out


def test_a_name_that_no_encoding_can_write(curves: Path, store_url: str) -> None:
    """A shell hands over bytes that are no text as lone surrogates."""
    search = ("search", "--problem", f"replay:{curves}", "--backend", "local", "-q")
    answer = run(*search, "--store", store_url, "--name", "\udcff")
    assert (answer.code, answer.out) == (1, "")
    assert "name" in answer.err


@pytest.mark.parametrize("command", [["status"], ["front", "r"], ["store", "check"]])
@pytest.mark.parametrize(
    ("content", "said"),
    [(b"this is no database at all, but long enough to look like one" * 20, "no SQLite database")],
)
def test_a_file_that_is_no_database(
    command: list[str], content: bytes, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    answer = run(*command, "--store", f"sqlite:///{path}")
    assert (answer.code, answer.out) == (1, "")
    assert said in answer.err
    assert answer.err.count("\n") == 1
    assert path.read_bytes() == content


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_truncated_database_is_named_and_left_alone(
    share: float, searched: Searched, tmp_path: Path
) -> None:
    source = Path(searched.store.removeprefix("sqlite:///"))
    assert not source.with_name("lamps.db-wal").exists()
    content = source.read_bytes()
    path = tmp_path / "lamps.db"
    path.write_bytes(content[: int(len(content) * share) // 4096 * 4096 - 100])
    for command in (["store", "check"], ["status"], ["front", "über"]):
        answer = run(*command, "--store", f"sqlite:///{path}")
        assert answer.code in (0, 1)
        assert answer.err.count("\n") == answer.code
        if command == ["store", "check"]:
            assert answer.code == 1
            assert "damaged" in answer.err or "SQLite" in answer.err


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:////nowhere/at/all/lamps.db", "/nowhere/at/all"),
        ("sqlite:////dev/null/lamps.db", "/dev/null"),
        ("sqlite:///FOLDER", "FOLDER"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("mysql://u:s3cret@h/d", "expected sqlite or postgresql"),
        ("postgresql://u:s3cret@127.0.0.1:1/d", "127.0.0.1"),
        ("postgresql://u:s3cret@[::1/d", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_stores_that_cannot_be_opened(
    url: str, said: str, tmp_path: Path, curves: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url, said = url.replace("FOLDER", str(tmp_path)), said.replace("FOLDER", str(tmp_path))
    for command in (
        ["status"],
        ["search", "--problem", f"replay:{curves}", "--backend", "local", "--artifacts", "a"],
    ):
        answer = run(*command, "--store", url)
        assert (answer.code, answer.out) == (1, ""), command
        assert said in answer.err
        assert answer.err.count("\n") == 1
        assert "s3cret" not in answer.err


def test_a_folder_that_cannot_be_written(curves: Path, tmp_path: Path) -> None:
    folder = tmp_path / "fixed"
    folder.mkdir()
    if os.geteuid() == 0:
        mount = ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(folder)]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a read-only tmpfs cannot be mounted here: {done.stderr.strip()}")
    else:
        folder.chmod(0o555)
    try:
        search = ("search", "--problem", f"replay:{curves}", "--backend", "local", "-q")
        answer = run(*search, "--store", f"sqlite:///{folder}/lamps.db")
        assert (answer.code, answer.out) == (1, "")
        assert str(folder) in answer.err
        assert answer.err.count("\n") == 1
        answer = run(
            *search, "--store", f"sqlite:///{tmp_path}/lamps.db", "--artifacts", str(folder / "a")
        )
        assert (answer.code, answer.out) == (1, "")
        assert answer.err.count("\n") == 1
        assert f"cannot write checkpoint {folder}" in answer.err
        assert run("store", "check", "--store", f"sqlite:///{tmp_path}/lamps.db").code == 0
        exported = run("search", "--problem", f"replay:{curves}", "--backend", "local", "-q",
                       "--store", f"sqlite:///{tmp_path}/lamps.db", "--name", "ok")  # fmt: skip
        assert exported.code == 0
        answer = run("export", "ok", "0", str(folder / "out"), "--store",
                     f"sqlite:///{tmp_path}/lamps.db")  # fmt: skip
        assert (answer.code, answer.out) == (1, "")
        assert answer.err.count("\n") == 1
    finally:
        if os.geteuid() == 0:
            subprocess.run(["umount", "-l", str(folder)], check=True)
        else:
            folder.chmod(0o755)
