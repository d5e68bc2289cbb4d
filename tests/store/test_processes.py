"""Several processes on one database, some of which die."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from _store_samples import complete, decide, started

from lamps.errors import StoreError
from lamps.store import Store

CREATE = """
import sys
sys.path.insert(0, {folder!r})
from _store_samples import candidates, complete, decide, spec
from lamps.store import Store
print("ready", flush=True)
sys.stdin.readline()
with Store.open({url!r}) as store:
    run = store.create_run(spec({name!r}), candidates(20))
    store.claim(run.id, {name!r})
    store.set_run_state(run.id, "running")
    for trial in range(5):
        complete(store, decide(store, run, trial, 0))
    store.release(run.id, {name!r})
print("done", flush=True)
"""

WRITE_ON = """
import sys
sys.path.insert(0, {folder!r})
from _store_samples import complete, decide
from lamps.store import Store
store = Store.open({url!r})
run = store.run({name!r})
print("ready", flush=True)
for landmark in range(4):
    for trial in range(run.n_trials):
        complete(store, decide(store, run, trial, landmark), checkpoint=("c", "0" * 64, 1))
"""

HANG_INSIDE = """
import sys, time
sys.path.insert(0, {folder!r})
from _store_samples import candidates, spec
from lamps.store import Store, runs
store = Store.open({url!r})
def work(connection):
    runs.create_run(connection, spec({name!r}), candidates(200), None, 0.0)
    print("ready", flush=True)
    time.sleep(60)
store._write(work)
"""


def launch(script: str, url: str, name: str) -> subprocess.Popen[str]:
    code = script.format(folder=str(Path(__file__).parent), url=url, name=name)
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline().strip() == word


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_eight_processes_create_the_database_at_once(url: str) -> None:
    processes = [launch(CREATE, url, f"run {i}") for i in range(8)]
    try:
        for process in processes:
            wait_for(process, "ready")
        begin = time.monotonic()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert time.monotonic() - begin < 0.1
        reads = 0
        while any(process.poll() is None for process in processes):
            with Store.open(url) as reader:
                for summary in reader.runs():
                    run = reader.run(summary.name)
                    assert len(reader.trials(run.id)) == 20
                reads += 1
        assert reads
        for process in processes:
            wait_for(process, "done")
            assert process.wait() == 0
    finally:
        for process in processes:
            end(process)
    with Store.open(url) as store:
        assert store.check() == []
        assert sorted(r.name for r in store.runs()) == [f"run {i}" for i in range(8)]
        assert all(r.n_evaluations == 5 for r in store.runs())


def test_a_writer_killed_inside_a_transaction_leaves_no_trace(url: str) -> None:
    with Store.open(url) as store:
        process = launch(HANG_INSIDE, url, "half")
        wait_for(process, "ready")
        assert store.runs() == []  # readers are not blocked
        process.send_signal(signal.SIGKILL)
        end(process)
        assert store.runs() == []
        assert store.check() == []
        started(store, "half")


def test_a_writer_killed_anywhere_is_resumed(url: str) -> None:
    rng = random.Random(3)
    with Store.open(url) as store:
        for round_ in range(3):
            run = started(store, f"run {round_}", n=60)
            process = launch(WRITE_ON, url, run.name)
            wait_for(process, "ready")
            time.sleep(rng.uniform(0.02, 0.3))
            process.send_signal(signal.SIGKILL)
            end(process)
            assert store.check() == []
            before = store.run(run.name)
            pending = store.requeue(run.id)
            assert len(pending) <= 1
            for decision in pending:
                complete(store, decision)
            after = store.run(run.name)
            assert after.n_evaluations == after.n_decisions == before.n_evaluations + len(pending)
            assert "running" not in after.counts
            assert store.check() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a small tmpfs cannot be mounted here (needs root)")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_one_error_and_the_database_goes_on(small_disk: Path) -> None:
    with Store.open(f"sqlite:///{small_disk}/lamps.db") as store:
        run = started(store)
        filler = small_disk / "filler"
        with pytest.raises(OSError, match="No space"):
            filler.write_bytes(b"0" * 2**22)
        done = 0

        def write_on() -> None:
            nonlocal done
            for _ in range(2000):
                store.cancel(decide(store, run, 0, 0, note="x" * 2000).id)
                done += 1

        with pytest.raises(StoreError, match="the disk is full; free space") as caught:
            write_on()
        assert "\n" not in str(caught.value)
        filler.unlink()
        assert store.check() == []
        for decision in store.requeue(run.id):
            store.cancel(decision.id)
        assert len(store.decisions(run.id)) in (done, done + 1)
        complete(store, decide(store, run, 0, 0))


def test_a_full_disk_at_creation_is_one_error(small_disk: Path) -> None:
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(b"0" * 2**22)
    url = f"sqlite:///{small_disk}/lamps.db"
    with pytest.raises(StoreError, match=r"full|cannot be opened") as caught:
        Store.open(url)
    assert "\n" not in str(caught.value)
    filler.unlink()
    with Store.open(url) as store:
        assert store.check() == []
