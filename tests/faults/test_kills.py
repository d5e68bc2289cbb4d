"""kill -9 of driver, worker, raylet and head at a hundred random moments.

With one worker the decisions and the front of the undisturbed search are the oracle.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from _lab import Lab, make_lab, members
from _processes import Call, at_rest, evaluations, left_behind, reached, until

import lamps

DRIVER_LOCAL, DRIVER_RAY, WORKER, RAYLET, HEAD = 40, 10, 30, 12, 8
"""Kills of each kind; a hundred in all."""


def _finished(lab: Lab) -> bool:
    with lamps.open_store(lab.store) as opened:
        runs = {r.name: r.state for r in opened.runs()}
    return runs.get("r") == "finished"


def _further(lab: Lab, call: Call) -> None:
    """Wait for another landmark, or the end."""
    before = evaluations(lab.store, "r")
    until(lambda: evaluations(lab.store, "r") > before or call.process.poll() is not None, 120)


def _whole_and_clean(lab: Lab, call: Call) -> None:
    until(lambda: not left_behind(call.pid), 60.0, 0.5)
    lab.is_whole()


def test_driver(tmp_path: Path, moments: random.Random, say: Callable[[str], None]) -> None:
    """The process that decides, in the middle of whatever it does."""
    kills = rounds = 0
    while kills < DRIVER_LOCAL:
        rounds += 1
        folder = tmp_path / str(rounds)
        folder.mkdir()
        lab = make_lab(folder, moments.choice(["front-racing", "random", "round-robin"]), n=10)
        call = lab.search(sleep_s=0.05)
        until(reached(lab.store, "r", 1))
        while kills < DRIVER_LOCAL and not _finished(lab):
            if moments.random() < 0.7:  # in the middle of the search, else while it starts
                _further(lab, call)
            time.sleep(moments.uniform(0.0, 0.5))
            if call.process.poll() is None:
                call.kill()
                kills += 1
            if not _finished(lab):
                call = lab.resume()
        call.wait()
        assert "Traceback" not in call.stderr
        _whole_and_clean(lab, call)
    say(f"{kills} kills of the driver in {rounds} searches; all ended as the undisturbed ones")


@pytest.mark.ray
def test_driver_on_ray(tmp_path: Path, moments: random.Random, say: Callable[[str], None]) -> None:
    """The driver of a cluster of its own; the orphans end, and the resumed search is the same."""
    lab = make_lab(tmp_path, n=14)
    call = lab.search("--workers", "1", backend="ray", sleep_s=0.3)
    kills = 0
    while kills < DRIVER_RAY:
        _further(lab, call)
        time.sleep(moments.uniform(0.0, 0.6))
        if call.process.poll() is not None:
            break
        call.kill()
        kills += 1
        if _finished(lab):
            break
        call = lab.resume()
    if call.process.poll() is None:
        assert call.wait(300) == 0, call.stderr
    _whole_and_clean(lab, call)
    say(f"{kills} kills of a driver on Ray")
    assert kills >= 3


@pytest.mark.ray
def test_worker(tmp_path: Path, moments: random.Random, say: Callable[[str], None]) -> None:
    """The worker, while a landmark runs: the landmark is tried again and counted once."""
    kills = rounds = 0
    while kills < WORKER:
        rounds += 1
        folder = tmp_path / str(rounds)
        folder.mkdir()
        lab = make_lab(folder, n=10)
        with lab.search("--workers", "1", backend="ray", sleep_s=0.4) as call:
            until(reached(lab.store, "r", 1), 120)
            while call.process.poll() is None and kills < WORKER:
                time.sleep(moments.uniform(0.0, 0.4))
                for process in members(call, "ray::replay/"):
                    process.kill()
                    kills += 1
                _further(lab, call)  # three crashes of one landmark would end its trial
            assert call.wait(300) == 0, call.stderr
            assert "crashed #" in call.stderr
        _whole_and_clean(lab, call)
    say(f"{kills} kills of a worker in {rounds} searches")


@pytest.mark.ray
def test_raylet(tmp_path: Path, moments: random.Random, say: Callable[[str], None]) -> None:
    """Ray's node on this machine: it is started again, nothing is blamed for it."""
    kills = rounds = 0
    while kills < RAYLET:
        rounds += 1
        folder = tmp_path / str(rounds)
        folder.mkdir()
        lab = make_lab(folder, n=6)
        with lab.search("--workers", "1", backend="ray", sleep_s=0.4) as call:
            for _ in range(3):  # a fourth death in one search is taken as a sign
                _further(lab, call)
                time.sleep(moments.uniform(0.0, 0.6))
                if call.process.poll() is not None:
                    break
                for process in members(call, "raylet/raylet"):
                    process.kill()
                    kills += 1
            assert call.wait(300) == 0, call.stderr
        _whole_and_clean(lab, call)
    say(f"{kills} kills of a raylet in {rounds} searches")


@pytest.mark.ray
def test_head(tmp_path: Path, moments: random.Random, say: Callable[[str], None]) -> None:
    """The control store of Ray: the search ends without it, or Ray ends the driver.

    Ray ends a driver that has not reached its control store for a minute (here: for 3 s). Then the
    search is resumed.
    """
    resumed = 0
    for number in range(HEAD):
        folder = tmp_path / str(number)
        folder.mkdir()
        lab = make_lab(folder, n=6)
        lab.variables = {"RAY_gcs_rpc_server_reconnect_timeout_s": "3"}
        with lab.search("--workers", "1", backend="ray", sleep_s=0.4) as call:
            until(reached(lab.store, "r", 1), 120)
            time.sleep(moments.uniform(0.0, 3.0))
            for process in members(call, "gcs/gcs_server"):
                process.kill()
            until(lambda: call.process.poll() is not None, 300, 0.2)
            call.wait()
        if not _finished(lab):
            resumed += 1
            assert "GCS" in call.stderr  # Ray's own last words
            again = lab.resume()
            assert again.wait(300) == 0, again.stderr
        _whole_and_clean(lab, call)
    say(f"{HEAD} kills of the head; {resumed} searches were ended by Ray and resumed")


@pytest.mark.ray
def test_several_workers(
    tmp_path: Path, moments: random.Random, say: Callable[[str], None]
) -> None:
    """With several at once the order is free, but every landmark counts once."""
    lab = make_lab(tmp_path, "exhaustive", n=8)
    with lab.search("--workers", "3", backend="ray", sleep_s=0.4) as call:
        until(reached(lab.store, "r", 3), 120)
        kills = 0
        for _ in range(4):
            time.sleep(moments.uniform(0.3, 1.0))
            found = members(call, "ray::replay/")
            if found:
                moments.choice(found).kill()
                kills += 1
        assert call.wait(300) == 0, call.stderr
    until(lambda: not left_behind(call.pid), 60.0, 0.5)
    at_rest(lab.store, "r")
    assert evaluations(lab.store, "r") == 32
    with lamps.open_store(lab.store) as opened:
        found = sorted((m.index, dict(m.values)) for m in opened.run("r").front())
    assert found == sorted(lab.front)
    say(f"{kills} kills among three workers")
