"""Interrupted, terminated, killed at random moments: the search goes on as if nothing had been.

The decisions of an uninterrupted run with one worker are the oracle.
"""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path

import pytest
from _lab import Lab, make_lab, members
from _processes import (
    Call,
    at_rest,
    evaluations,
    left_behind,
    reached,
    story,
    until,
    write_curves,
)

import lamps
from lamps.types import Budget


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A laboratory with the default policy."""
    return make_lab(tmp_path, "front-racing")


# -- kill -9 -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy", ["front-racing", pytest.param("random", marks=pytest.mark.slow)]
)
def test_killed_again_and_again_at_random_moments(policy: str, tmp_path: Path) -> None:
    lab = make_lab(tmp_path, policy)
    moments = random.Random(policy)
    call = lab.search(sleep_s=0.04)
    until(reached(lab.store, "r", 1))
    kills = 0
    for _ in range(4):
        time.sleep(moments.uniform(0.0, 0.25))
        call.kill()
        kills += 1
        before = evaluations(lab.store, "r")
        if lamps.open_store(lab.store).run("r").record.state == "finished":
            break
        call = lab.resume()
        _further(lab, call, before)
    else:
        assert call.wait() == 0, call.stderr
    assert kills >= 2
    lab.is_whole()
    decisions = lamps.open_store(lab.store).run("r").decisions()
    assert len(decisions) == len(lab.expected)  # a killed landmark keeps its decision
    assert [d.seq for d in decisions] == list(range(1, len(decisions) + 1))


def _further(lab: Lab, call: Call, n: int) -> None:
    """Wait for another landmark, or the end."""
    until(lambda: call.process.poll() is not None or evaluations(lab.store, "r") > n)


def test_killed_in_the_middle_of_a_landmark_it_is_run_once_more(lab: Lab) -> None:
    flag = lab.folder / "struck"
    words = ("--param", "curve-replay.fault=kill", "--param", f"curve-replay.fault_flag={flag}")
    assert lab.search(*words).wait() == -signal.SIGKILL
    run = lamps.open_store(lab.store).run("r")
    assert [d.state for d in run.decisions()].count("pending") == 1
    assert lab.resume().wait() == 0
    lab.is_whole()
    attempts = [d.attempt for d in lamps.open_store(lab.store).run("r").decisions()]
    assert sorted(attempts) == [1] * (len(lab.expected) - 1) + [2]


def test_killed_in_its_first_landmark(lab: Lab) -> None:
    call = lab.search(sleep_s=20.0)
    until(lambda: _pending(lab.store))
    call.kill()
    assert evaluations(lab.store, "r") == 0
    with lab.resume() as again:
        first = lambda: lamps.open_store(lab.store).run("r").decisions()[0]  # noqa: E731
        until(lambda: first().attempt == 2)
        assert again.process.poll() is None
        assert first().state == "pending"


def test_a_second_controller_is_refused_until_the_first_is_dead(lab: Lab) -> None:
    with lab.search(sleep_s=0.7) as first:
        until(reached(lab.store, "r", 1))
        second = lab.resume()
        assert second.wait() == 1
        assert "StateError: run 'r' is held by" in second.stderr
        assert second.stderr.count("\n") == 1
        assert first.process.poll() is None
        first.kill()
        third = lab.resume("--max-landmarks", "7")
        assert third.wait() == 0, third.stderr
    at_rest(lab.store, "r")
    assert story(lab.store, "r") == lab.expected[:7]


# -- signals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_once_is_gentle(number: int, lab: Lab) -> None:
    call = lab.search(sleep_s=0.2)
    until(reached(lab.store, "r", 2))
    call.interrupt(number)
    assert call.wait(20) == 130
    assert "interrupted; go on with: lamps resume r" in call.stderr
    assert "Traceback" not in call.stderr
    run = lamps.open_store(lab.store).run("r")
    assert (run.record.state, run.record.note) == ("interrupted", "interrupted by the user")
    # What was in flight has been finished, not thrown away.
    assert {d.state for d in run.decisions()} == {"done"}
    at_rest(lab.store, "r")
    assert lab.resume().wait() == 0
    lab.is_whole()


def test_twice_stops_at_once(lab: Lab) -> None:
    call = lab.search(sleep_s=60.0)
    until(lambda: evaluations(lab.store, "r") == 0 and _pending(lab.store))
    started = time.monotonic()
    call.interrupt()
    time.sleep(0.2)
    assert call.process.poll() is None
    call.interrupt()
    assert call.wait(20) == 130
    assert time.monotonic() - started < 3.0
    assert "Traceback" not in call.stderr
    run = lamps.open_store(lab.store).run("r")
    assert run.record.state == "interrupted"
    assert [d.state for d in run.decisions()] == ["cancelled"]
    assert {t.state for t in run.trials()} == {"waiting"}
    at_rest(lab.store, "r")


def _pending(store: str) -> bool:
    runs = [r.name for r in lamps.open_store(store).runs()]
    if "r" not in runs:
        return False
    return any(d.state == "pending" for d in lamps.open_store(store).run("r").decisions())


def test_an_interrupted_decision_is_taken_again(lab: Lab) -> None:
    """Twice Ctrl-C throws a landmark away; the same decisions lie ahead, nothing is missing."""
    call = lab.search(sleep_s=0.25)
    until(reached(lab.store, "r", 3))
    until(lambda: _pending(lab.store))
    call.interrupt()
    time.sleep(0.05)
    call.interrupt()
    assert call.wait(20) == 130
    at_rest(lab.store, "r")
    assert lab.resume().wait() == 0
    lab.is_whole()


# -- size --------------------------------------------------------------------------------------


def test_resume_of_a_thousand_half_done_trials(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_curves(tmp_path / "curves.csv", 1000)
    store = f"sqlite:///{tmp_path}/lamps.db"
    lamps.search(
        problem=f"replay:{table}", policy="exhaustive", backend="replay", store=store, name="r",
        budget=Budget(landmarks=2000),
    )  # fmt: skip
    first: list[float] = []
    started = time.monotonic()

    def listen(progress: object) -> None:
        if getattr(progress, "event", "") == "decide" and not first:
            first.append(time.monotonic() - started)

    lamps.resume("r", store=store, budget=Budget(landmarks=2002), listener=listen)
    with capsys.disabled():
        print(f"\nresume of 1,000 trials, half done: first decision after {first[0]:.2f} s")
    assert first[0] < 10.0
    at_rest(store, "r")


# -- Ray ---------------------------------------------------------------------------------------


@pytest.mark.ray
@pytest.mark.xdist_group("ray")
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_ray_driver_killed_leaves_nothing_and_resumes(lab: Lab) -> None:
    with lab.search("--workers", "1", backend="ray", sleep_s=0.3) as call:
        until(reached(lab.store, "r", 3))
        assert left_behind(call.pid)
        call.kill()
        until(lambda: not left_behind(call.pid), 90.0, 0.5)
    assert 3 <= evaluations(lab.store, "r") < len(lab.expected)
    assert lab.resume("--backend", "local").wait() == 0
    lab.is_whole()


@pytest.mark.ray
@pytest.mark.xdist_group("ray")
@pytest.mark.timeout(240)
def test_ray_worker_and_raylet_killed_under_way(lab: Lab) -> None:
    with lab.search("--workers", "1", backend="ray", sleep_s=0.3) as call:
        until(reached(lab.store, "r", 2))
        worker = until(lambda: members(call, "ray::replay/"), 30)
        for process in worker:
            process.kill()
        until(reached(lab.store, "r", 5))
        for process in members(call, "raylet/raylet"):
            process.kill()
        assert call.wait(180) == 0, call.stderr
        until(lambda: not left_behind(call.pid), 30.0, 0.5)
    lab.is_whole()


@pytest.mark.ray
@pytest.mark.xdist_group("ray")
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_ray_once_is_gentle(number: int, lab: Lab) -> None:
    if number == signal.SIGINT:
        begun = lab.search("--workers", "1", "--json", backend="ray", sleep_s=0.5)
    else:
        # A resume, where Ray starts later, with a handler of its own.
        assert lab.search("--max-landmarks", "1", sleep_s=0.5).wait() == 0
        more = ("--backend", "ray", "--workers", "1", "--max-landmarks", "99")
        begun = lab.resume("--json", *more)
    with begun as call:
        until(reached(lab.store, "r", 3))
        call.interrupt(number)
        out, _ = call.process.communicate(timeout=60)
        assert call.process.returncode == 130, call.stderr
        assert json.loads(out)["state"] == "interrupted"
        assert "Traceback" not in call.stderr
        until(lambda: not left_behind(call.pid), 10.0, 0.2)
    run = lamps.open_store(lab.store).run("r")
    assert {d.state for d in run.decisions()} == {"done"}
    at_rest(lab.store, "r")
    assert lab.resume("--backend", "local").wait() == 0
    lab.is_whole()


@pytest.mark.ray
@pytest.mark.xdist_group("ray")
@pytest.mark.timeout(240)
def test_interrupted_while_ray_starts_nothing_is_stored_or_left(lab: Lab) -> None:
    with lab.search("--workers", "1", backend="ray") as call:
        until(lambda: members(call, "raylet/raylet"))
        call.interrupt()
        time.sleep(0.2)
        call.interrupt()
        assert call.wait(30) == 130, call.stderr
        assert "Traceback" not in call.stderr
        until(lambda: not left_behind(call.pid), 10.0, 0.2)
    at_rest(lab.store, "oracle")
    left = [r for r in lamps.open_store(lab.store).runs() if r.name == "r"]
    assert all(r.state in ("interrupted", "created") for r in left)
    assert all(r.n_evaluations == 0 for r in left)


@pytest.mark.ray
@pytest.mark.xdist_group("ray")
@pytest.mark.timeout(240)
def test_ray_twice_stops_at_once(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    with lab.search("--workers", "2", backend="ray", sleep_s=60.0) as call:
        until(lambda: _pending(lab.store))
        until(lambda: members(call, "ray::replay/"), 30)
        started = time.monotonic()
        call.interrupt()
        time.sleep(0.2)
        call.interrupt()
        assert call.wait(30) == 130, call.stderr
        elapsed = time.monotonic() - started
        assert "Traceback" not in call.stderr
        until(lambda: not left_behind(call.pid), 10.0, 0.2)
    with capsys.disabled():
        print(f"\nCtrl-C twice: Ray and all its processes were gone after {elapsed:.1f} s")
    assert elapsed < 8.0  # on an idle machine about 2 s, most of it Ray taking itself down
    at_rest(lab.store, "r")
    assert {d.state for d in lamps.open_store(lab.store).run("r").decisions()} == {"cancelled"}
