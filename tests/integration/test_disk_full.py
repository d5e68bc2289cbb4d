"""The disk is full: the search stops once, says so in one line, and goes on when there is room."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from _processes import Call, at_rest, evaluations, story, write_curves

import lamps

BALLAST = 1_000_000  # bytes of each checkpoint; a trial keeps its newest only


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, leave: int) -> Path:
    """Occupy a file system up to ``leave`` bytes."""
    stat = os.statvfs(folder)
    path = folder / "filler"
    with path.open("wb") as file:
        file.write(b"x" * max(stat.f_bavail * stat.f_frsize - leave, 0))
    return path


def search(table: Path, store: str, log: Path, *more: str) -> Call:
    """A search whose checkpoints weigh a megabyte each."""
    return Call(
        "search", "--problem", f"replay:{table}", "--backend", "local", "--policy", "round-robin",
        "--store", store, "--name", "r", "--quiet",
        "--param", f"curve-replay.payload_bytes={BALLAST}", *more, log=log,
    )  # fmt: skip


@pytest.mark.parametrize("where", ["artifacts", "both"])
def test_a_full_disk_stops_once_and_room_lets_it_go_on(
    where: str, small: Path, tmp_path: Path
) -> None:
    table = write_curves(tmp_path / "curves.csv", 5)
    home = small if where == "both" else tmp_path
    store = f"sqlite:///{home}/lamps.db"
    filler = small / "filler"
    filler.write_bytes(b"x" * 4_000_000)
    artifacts = f"{small}/artifacts"
    call = search(table, store, tmp_path / "log", "--artifacts", artifacts)
    assert call.wait() == 1
    assert call.stderr.count("\n") == 1
    assert call.stderr.startswith("StoreError: ")
    assert "No space left on device" in call.stderr or "disk is full" in call.stderr
    before = evaluations(store, "r")
    assert before >= 1
    run = lamps.open_store(store).run("r")
    assert run.record.state == "interrupted"
    assert "No space left" in run.record.note
    at_rest(store, "r")
    assert {t.state for t in run.trials()} <= {"waiting", "paused"}
    # Still full: it stops again and nothing is lost.
    again = Call("resume", "r", "--store", store, "--quiet", log=tmp_path / "log-2")
    assert again.wait() == 1
    assert again.stderr.count("\n") == 1
    assert before <= evaluations(store, "r") < 20
    filler.unlink()
    last = Call("resume", "r", "--store", store, "--quiet", log=tmp_path / "log-3")
    assert last.wait() == 0, last.stderr
    at_rest(store, "r")
    assert len(story(store, "r")) == 20
    assert lamps.open_store(store).run("r").record.counts == {"complete": 5}
    assert list(Path(artifacts).rglob("*.tmp")) == []


@pytest.mark.parametrize(
    "leave",
    [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (4096, 20000)), 40000],
)
def test_no_room_for_the_database_itself(leave: int, small: Path, tmp_path: Path) -> None:
    table = write_curves(tmp_path / "curves.csv", 5)
    store = f"sqlite:///{small}/lamps.db"
    artifacts = ("--artifacts", str(tmp_path / "artifacts"))
    begun = search(table, store, tmp_path / "log", *artifacts, "--max-landmarks", "3")
    assert begun.wait() == 0, begun.stderr
    filler = fill(small, leave)
    call = Call(
        "resume", "r", "--store", store, "--quiet", "--max-landmarks", "100",
        log=tmp_path / "log-2",
    )  # fmt: skip
    assert call.wait() == 1
    assert call.stderr.count("\n") == 1, call.stderr
    # SQLite has two words for it: the second one where its shared memory could not grow.
    assert "disk is full" in call.stderr or "disk I/O error" in call.stderr
    filler.unlink()
    assert lamps.open_store(store).check() == []
    last = Call(
        "resume", "r", "--store", store, "--quiet", "--max-landmarks", "100",
        log=tmp_path / "log-3",
    )  # fmt: skip
    assert last.wait() == 0, last.stderr
    at_rest(store, "r")
    assert lamps.open_store(store).run("r").record.counts == {"complete": 5}


def test_a_method_that_fills_the_disk_is_not_blamed(small: Path, tmp_path: Path) -> None:
    table = write_curves(tmp_path / "curves.csv", 2)
    store = f"sqlite:///{tmp_path}/lamps.db"
    call = search(
        table, store, tmp_path / "log", "--artifacts", str(small),
        "--param", "curve-replay.fault=fill-disk",
    )  # fmt: skip
    assert call.wait() == 1
    assert call.stderr.count("\n") == 1
    assert "No space left on device" in call.stderr
    assert {t.state for t in lamps.open_store(store).run("r").trials()} == {"paused"}
    at_rest(store, "r")
    assert list(small.rglob("*.tmp")) == []
