"""The same searches as Ray tasks: crashes, retries, resources."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import lamps
from lamps.catalogue import open_problem
from lamps.errors import ConfigError
from lamps.scheduler.ray import RayBackend
from lamps.types import Candidate, Resources

pytestmark = [
    pytest.mark.ray,
    pytest.mark.xdist_group("ray"),
    pytest.mark.usefixtures("ray_cluster"),
]


def curve(name: str, **params: object) -> Candidate:
    return Candidate("replay", "curve-replay", {"curve": name, **params})  # type: ignore[dict-item]


def test_ray_equals_local(curves: Path, store_url: str) -> None:
    fronts = []
    for backend in ("local", "ray"):
        run = lamps.search(
            problem=f"replay:{curves}", policy="exhaustive", backend=backend, store=store_url
        )
        fronts.append([(m.index, dict(m.values)) for m in run.front()])
    assert fronts[0] == fronts[1]


def test_crashes_are_retried_and_counted_once(
    curves: Path, store_url: str, tmp_path: Path
) -> None:
    pool = [
        curve("a"),
        curve("b", fault="kill", fault_flag=str(tmp_path / "struck")),
        curve("c", fault="kill"),
        curve("d", fault="raise"),
        curve("a", fault="terminate", fault_flag=str(tmp_path / "told")),
    ]
    run = lamps.search(
        problem=f"replay:{curves}",
        candidates=pool,
        policy="exhaustive",
        workers=2,
        store=store_url,
    )
    trials = run.trials()
    states = ["complete", "complete", "crashed", "failed", "complete"]
    assert [t.state for t in trials] == states
    assert (tmp_path / "told").exists()  # SIGTERM has ended the worker, not the trial
    assert trials[2].attempts == 3
    assert "WorkerCrashed" in (trials[2].error or "")
    assert [e.landmark for e in trials[1].evaluations] == [0, 1, 2, 3]
    assert run.record.n_evaluations == 4 + 4 + 1 + 1 + 4
    assert lamps.open_store(store_url).check() == []


def test_impossible_resources_are_refused_at_once(curves: Path) -> None:
    backend = RayBackend(2)
    started = time.monotonic()
    family = open_problem(None, f"replay:{curves}", {}, "")[1]
    with pytest.raises(ConfigError, match="needs 999 CPU, the cluster has"):
        backend.start(family, [Resources(cpus=999)])
    with pytest.raises(ConfigError, match="needs 1 GPU"):
        backend.start(family, [Resources(gpus=1)])
    assert time.monotonic() - started < 10


def test_cancelled_landmarks_are_reported(curves: Path) -> None:
    from lamps.scheduler.worker import LandmarkTask

    backend = RayBackend(2)
    problem = open_problem(None, f"replay:{curves}", {}, "")[1]
    backend.start(problem, [Resources()])
    backend.submit(
        LandmarkTask(
            key=5, candidate=curve("a", sleep_s=60.0), fidelity=0.0, seed=0, target="/nowhere/x"
        )
    )
    assert backend.free == 1
    assert backend.wait(0.1) == []
    assert [(r.key, r.kind) for r in backend.cancel()] == [(5, "cancelled")]
    assert backend.free == 2


def test_a_landmark_that_outlives_the_budget_is_cancelled(curves: Path, store_url: str) -> None:
    started = time.monotonic()
    run = lamps.search(
        problem=f"replay:{curves}",
        candidates=[curve("a"), curve("b", sleep_s=120.0)],
        policy="exhaustive",
        workers=2,
        budget="3s",
        store=store_url,
    )
    assert time.monotonic() - started < 60
    assert run.record.state == "exhausted"
    assert [t.state for t in run.trials()] == ["complete", "waiting"]
    assert [m.index for m in run.front()] == [0]
    assert lamps.open_store(store_url).check() == []
