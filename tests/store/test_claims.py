"""One controller per run."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest
from _store_samples import candidates, spec
from sqlalchemy import text

from lamps.errors import StateError
from lamps.store import Run, Store

HOST = socket.gethostname()


@pytest.fixture
def run(store: Store) -> Run:
    return store.create_run(spec(), candidates())


def age(store: Store, seconds: float) -> None:
    then = time.time() - seconds
    store._write(lambda c: c.execute(text(f"UPDATE runs SET heartbeat_at = {then}")))


def test_a_second_controller_is_told_who_holds_the_run(store: Store, run: Run) -> None:
    store.claim(run.id, "alice")
    assert store.run("first").owner == "alice"
    with pytest.raises(StateError, match=f"held by alice .pid {os.getpid()} on {HOST}"):
        store.claim(run.id, "bob")
    store.claim(run.id, "alice")  # its own claim, once more
    store.release(run.id, "alice")
    assert store.run("first").owner is None
    store.claim(run.id, "bob")


def test_the_claim_of_a_dead_process_is_taken_over(store: Store, run: Run) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    store.claim(run.id, "alice", pid=dead.pid)
    store.claim(run.id, "bob")
    store.release(run.id, "alice")
    assert store.run("first").owner == "bob"


def test_a_killed_process_that_nobody_collected_is_dead(store: Store, run: Run) -> None:
    zombie = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    store.claim(run.id, "alice", pid=zombie.pid)
    with pytest.raises(StateError):
        store.claim(run.id, "bob")
    zombie.kill()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            store.claim(run.id, "bob")
            break
        except StateError:
            time.sleep(0.01)
    assert store.run("first").owner == "bob"
    zombie.wait()


def test_a_dead_pid_on_another_host_says_nothing(store: Store, run: Run) -> None:
    store.claim(run.id, "alice", pid=2**22 + 1, host="elsewhere")
    with pytest.raises(StateError, match="on elsewhere"):
        store.claim(run.id, "bob")


def test_silence_ends_a_claim_and_its_holder_learns_it(store: Store, run: Run) -> None:
    store.claim(run.id, "alice", pid=1, host="elsewhere")
    age(store, 59)
    with pytest.raises(StateError, match="last seen 59 s ago"):
        store.claim(run.id, "bob")
    store.heartbeat(run.id, "alice")
    age(store, 61)
    store.claim(run.id, "bob")
    with pytest.raises(StateError, match="no longer held by alice but by bob"):
        store.heartbeat(run.id, "alice")
    store.heartbeat(run.id, "bob")
