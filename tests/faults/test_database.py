"""Database read-only, locked, gone, restarted; artifacts gone or slow; jumping clocks; memory."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from _lab import Lab, make_lab, members
from _postgres import PostgresServer, find_binaries
from _processes import at_rest, evaluations, front, left_behind, reached, story, until

import lamps


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A laboratory with the default policy."""
    return make_lab(tmp_path)


def one_line(text: str, *words: str) -> None:
    """One line, no traceback, and these words in it."""
    assert "Traceback" not in text
    last = text.strip().splitlines()[-1]
    for word in words:
        assert word in last, text


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A folder that can be made read-only."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(folder: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", str(folder)], check=True)


def test_read_only(tmp_path: Path, mounted: Path) -> None:
    lab = make_lab(tmp_path, "exhaustive")
    lab.store = f"sqlite:///{mounted}/lamps.db"
    call = lab.search("--max-landmarks", "5", "--artifacts", str(mounted / "a"))
    assert call.wait() == 0, call.stderr
    begun = evaluations(lab.store, "r")
    remount(mounted, "ro")
    log = mounted.parent / "log-ro"
    again = lab.call_logged(log, "resume", "r", "--max-landmarks", "99")
    assert again.wait() == 1
    one_line(log.read_text(), "StoreError", "read")
    remount(mounted, "rw")
    assert evaluations(lab.store, "r") == begun
    last = lab.resume("--max-landmarks", "99")
    assert last.wait() == 0, last.stderr
    lab.is_whole()


def hold(store: str, seconds: float) -> threading.Thread:
    """Keep the only write lock of a SQLite file for a while; it is held when this returns."""
    held = threading.Event()

    def work() -> None:
        connection = sqlite3.connect(store.removeprefix("sqlite:///"), timeout=30)
        connection.isolation_level = None
        connection.execute("BEGIN IMMEDIATE")
        held.set()
        time.sleep(seconds)
        connection.execute("ROLLBACK")
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    assert held.wait(60)
    return thread


def test_locked_for_a_while_it_waits(lab: Lab) -> None:
    call = lab.search(sleep_s=0.1)
    until(reached(lab.store, "r", 3))
    thread = hold(lab.store, 8.0)
    assert call.wait() == 0, call.stderr
    thread.join()
    lab.is_whole()


def test_locked_for_good_it_gives_up_in_one_line(lab: Lab) -> None:
    call = lab.search(sleep_s=0.1)
    until(reached(lab.store, "r", 3))
    thread = hold(lab.store, 100.0)
    assert call.wait() == 1
    one_line(call.stderr, "StoreError", "is locked", "end that one or wait")
    thread.join()
    assert lab.resume().wait() == 0
    lab.is_whole()


def test_deleted_it_says_so_instead_of_writing_into_nothing(lab: Lab) -> None:
    call = lab.search(sleep_s=0.2)
    until(reached(lab.store, "r", 3))
    path = Path(lab.store.removeprefix("sqlite:///"))
    for file in path.parent.glob(path.name + "*"):
        file.unlink()
    assert call.wait() == 1
    one_line(call.stderr, "StoreError", "deleted or replaced")
    assert not path.exists()  # no empty database in its place


def test_replaced_by_its_copy_it_stops_and_goes_on_from_the_copy(tmp_path: Path) -> None:
    lab = make_lab(tmp_path, "exhaustive")
    assert lab.search("--max-landmarks", "5").wait() == 0
    path = Path(lab.store.removeprefix("sqlite:///"))
    copy = path.with_name("copy.db")
    with sqlite3.connect(path) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    source.close()
    target.close()
    call = lab.resume("--max-landmarks", "99")
    until(lambda: evaluations(lab.store, "r") > 5 or call.process.poll() is not None)
    call.process.send_signal(signal.SIGSTOP)
    for file in path.parent.glob(path.name + "*"):
        file.unlink()
    shutil.copy(copy, path)
    call.process.send_signal(signal.SIGCONT)
    assert call.wait() in (0, 1)  # 0 where it had just ended
    assert evaluations(lab.store, "r") == 5
    assert lab.resume("--max-landmarks", "99").wait() == 0
    lab.is_whole()


def test_the_artifact_root_goes_and_costs_time_only(lab: Lab) -> None:
    root = lab.folder / "artifacts"
    call = lab.search("--artifacts", str(root), sleep_s=0.1)
    until(reached(lab.store, "r", 5))
    shutil.rmtree(root)
    call.wait()
    assert "Traceback" not in call.stderr
    if call.process.returncode:
        assert lab.resume().wait() == 0
    lab.is_whole()


SLOW = """
import os, time
_rename, _fsync = os.rename, os.fsync
def slowly(call):
    def wait(*arguments, **options):
        time.sleep(0.4)
        return call(*arguments, **options)
    return wait
os.rename, os.replace, os.fsync = slowly(os.rename), slowly(os.replace), slowly(os.fsync)
"""


def test_slow_writes_change_nothing(lab: Lab, tmp_path: Path) -> None:
    """As on a network file system: each rename and each flush takes 0.4 s."""
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(SLOW)
    lab.variables = {"PYTHONPATH": str(tmp_path / "slow")}
    started = time.monotonic()
    call = lab.search()
    assert call.wait(200) == 0, call.stderr
    assert time.monotonic() - started > 0.4 * len(lab.expected)
    lab.is_whole()


JUMPY = """
import itertools, time
_time, _calls = time.time, itertools.count()
# Hours forward and back, another step at every call, as Python code sees it.
time.time = lambda: _time() + (7200.0, -7200.0, 0.0, 90.0)[next(_calls) % 4]
"""


def test_a_clock_that_jumps_changes_nothing(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "jumpy").mkdir()
    (tmp_path / "jumpy" / "sitecustomize.py").write_text(JUMPY)
    lab.variables = {"PYTHONPATH": str(tmp_path / "jumpy")}
    call = lab.search(sleep_s=0.05)
    assert call.wait(200) == 0, call.stderr
    lab.is_whole()
    with lamps.open_store(lab.store) as opened:
        assert 0 < opened.run("r").record.spent_wall_s < 200


def test_a_driver_that_was_frozen_past_its_heartbeat_lets_go(lab: Lab) -> None:
    """Another controller takes the run over; the first wakes up and writes nothing more."""
    first = lab.search(sleep_s=0.3)
    until(reached(lab.store, "r", 2))
    first.process.send_signal(signal.SIGSTOP)
    # It may have stopped in the middle of a transaction, which nobody could take over.
    time.sleep(62.0)
    second = lab.resume()
    assert second.wait(120) == 0, second.stderr
    lab.is_whole()
    first.process.send_signal(signal.SIGCONT)
    assert first.wait(60) == 1
    one_line(first.stderr, "StateError")
    lab.is_whole()


def test_postgres_restarts_in_the_middle(
    tmp_path: Path, moments: random.Random, say: Callable[[str], None]
) -> None:
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server is installed")
    lab = make_lab(tmp_path, n=10)
    with PostgresServer(binaries) as server:
        lab.store = server.url()
        call = lab.search("--artifacts", str(tmp_path / "artifacts"), sleep_s=0.2)
        restarts = 0
        until(reached(lab.store, "r", 2))
        while call.process.poll() is None and restarts < 6:
            time.sleep(moments.uniform(0.1, 1.0))
            server.stop(moments.choice(["immediate", "fast"]))
            time.sleep(moments.uniform(0.0, 1.5))
            server.start()
            restarts += 1
        assert call.wait(200) == 0, call.stderr
        at_rest(lab.store, "r")
        assert story(lab.store, "r") == lab.expected
        assert front(lab.store, "r") == lab.front
    say(f"{restarts} restarts of PostgreSQL in one search")


@pytest.mark.ray
def test_a_frozen_worker_is_waited_for(lab: Lab) -> None:
    with lab.search("--workers", "1", backend="ray", sleep_s=0.5) as call:
        until(reached(lab.store, "r", 2), 120)
        frozen = until(lambda: members(call, "ray::replay/"), 30)
        for process in frozen:
            process.send_signal(signal.SIGSTOP)
        time.sleep(35.0)  # past the heartbeats of lamps and Ray alike
        for process in frozen:
            process.send_signal(signal.SIGCONT)
        assert call.wait(200) == 0, call.stderr
        until(lambda: not left_behind(call.pid), 30.0, 0.5)
    lab.is_whole()


@pytest.mark.ray
def test_a_worker_that_eats_the_memory_is_ended_and_named(tmp_path: Path) -> None:
    """Ray's own watch over the machine's memory, set 1.5 GB above what is used now."""
    memory = psutil.virtual_memory()
    eaten = 4_000_000_000
    if memory.available < eaten + 2_000_000_000:
        pytest.skip(f"this machine has {memory.available / 1e9:.1f} GB left, 6 GB are needed")
    lab = make_lab(tmp_path, n=3)
    share = (memory.total - memory.available + 1_500_000_000) / memory.total
    lab.variables = {
        "RAY_memory_usage_threshold": f"{share:.4f}",
        "RAY_memory_monitor_refresh_ms": "100",
    }
    pool = tmp_path / "flag"
    call = lab.search(
        "--workers", "1", "--param", "curve-replay.fault=eat-memory",
        "--param", f"curve-replay.payload_bytes={eaten}",
        "--param", f"curve-replay.fault_flag={pool}", backend="ray",
    )  # fmt: skip
    assert call.wait(300) == 0, call.stderr
    assert "OutOfMemoryError" in call.stderr
    until(lambda: not left_behind(call.pid), 30.0, 0.5)
    at_rest(lab.store, "r")
    assert front(lab.store, "r") == lab.front
    assert os.path.exists(pool)
