"""The Ray Tune scheduler in real experiments: pause, promote, stop, errors, restore."""

from __future__ import annotations

import json
import pickle
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray.tune")

from ray import cloudpickle, tune

from lamps import pareto
from lamps.errors import ConfigError
from lamps.integrations.tune import LampsScheduler

pytestmark = [
    pytest.mark.ray,
    pytest.mark.xdist_group("ray"),
    pytest.mark.usefixtures("ray_cluster"),
]

N, MAX_T = 6, 8
METRICS = {"error": "min", "throughput": "max"}


def measured(c: int, t: int) -> dict[str, float]:
    """Curves that do not cross: every other candidate is dominated at every effort."""
    worse = 0.3 * (c % 2)
    return {"error": 0.9 / (c + 1) + worse + 0.5 / t, "throughput": 100.0 - 10 * c - 50 * worse}


FRONT = [0, 2, 4]


class Steps(tune.Trainable):
    """A class trainable; notes what it was restored from and every step that it takes."""

    def setup(self, config: dict[str, Any]) -> None:
        self.t, self.resumed = 0, 0

    def step(self) -> dict[str, Any]:
        self.t += 1
        if self.config["c"] == self.config.get("broken") and self.t == 2:
            raise RuntimeError("struck")
        with Path(self.config["log"]).open("a") as file:
            file.write(json.dumps([self.config["c"], self.t]) + "\n")
        return measured(self.config["c"], self.t) | {"resumed": self.resumed}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "t").write_text(str(self.t))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        self.t = int(Path(checkpoint_dir, "t").read_text())
        self.resumed += 1


def loop(config: dict[str, Any]) -> None:
    """The same as a function that reports."""
    start = tune.get_checkpoint()
    done = int(Path(start.path, "t").read_text()) if start else 0
    for t in range(done + 1, config.get("until", MAX_T) + 1):
        with Path(config["log"]).open("a") as file:
            file.write(json.dumps([config["c"], t]) + "\n")
        if config["c"] == config.get("broken") and t == 2:
            raise RuntimeError("struck")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "t").write_text(str(t))
            result = measured(config["c"], t) | {"resumed": int(done > 0)}
            if config["c"] == config.get("nan") and t == 2:
                result["error"] = float("nan")
            tune.report(result, checkpoint=tune.Checkpoint.from_directory(folder))


@pytest.fixture(autouse=True, scope="module")
def _trainables_travel() -> Iterator[None]:
    """Workers cannot import this file, so its trainables are sent with their code."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture(autouse=True)
def _plain_tune(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    monkeypatch.setenv("RAY_AIR_NEW_OUTPUT", "0")
    with warnings.catch_warnings():
        # Ray announces its own future defaults that way.
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def tuner_of(
    trainable: Any, scheduler: Any, folder: Path, *, retries: int = 0, **more: Any
) -> tune.Tuner:
    return tune.Tuner(
        tune.with_resources(trainable, {"cpu": 1}),
        param_space={
            "c": tune.grid_search(list(range(N))), "log": str(folder / "steps.jsonl"), **more
        },
        # A function can take over the actor of another trial; a new one for each is slow.
        tune_config=tune.TuneConfig(scheduler=scheduler, reuse_actors=trainable is loop),
        run_config=tune.RunConfig(
            name="e",
            storage_path=str(folder / "tune"),
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=retries),
        ),
    )  # fmt: skip


def steps(folder: Path) -> dict[int, list[int]]:
    """Steps taken by candidate, in order."""
    taken: dict[int, list[int]] = {c: [] for c in range(N)}
    for line in (folder / "steps.jsonl").read_text().splitlines():
        c, t = json.loads(line)
        taken[c].append(t)
    return taken


def scheduler_of(**options: Any) -> LampsScheduler:
    return LampsScheduler(METRICS, **{"max_t": MAX_T, "policy": "front-racing(depth=0)"} | options)


def finished(results: Any) -> dict[int, Any]:
    return {
        r.config["c"]: r for r in results if r.metrics and r.metrics["training_iteration"] == MAX_T
    }


@pytest.mark.parametrize("trainable", [loop, pytest.param(Steps, marks=pytest.mark.slow)])
def test_the_front_is_found_with_fewer_steps(trainable: Any, tmp_path: Path) -> None:
    results = tuner_of(trainable, scheduler_of(), tmp_path).fit()
    assert not results.errors
    done = finished(results)
    taken = steps(tmp_path)
    assert set(FRONT) <= set(done) < set(range(N))
    # Nobody does a step twice: what was paused went on from its checkpoint.
    assert all(t == list(range(1, len(t) + 1)) for t in taken.values())
    assert sum(map(len, taken.values())) < 0.85 * N * MAX_T
    assert any(r.metrics["resumed"] for r in done.values())
    values = [[r.metrics["error"], -r.metrics["throughput"]] for r in done.values()]
    front = pareto.is_nondominated(values)
    assert sorted(c for c, on in zip(done, front, strict=True) if on) == FRONT


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["lamps", "mo-asha", "exhaustive"])
def test_every_policy_comes_to_an_end(policy: str, tmp_path: Path) -> None:
    results = tuner_of(loop, scheduler_of(policy=policy), tmp_path).fit()
    assert not results.errors
    assert finished(results)
    if policy == "exhaustive":
        assert len(finished(results)) == N


@pytest.mark.parametrize("retries", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_an_error_hurts_its_trial_alone(retries: int, tmp_path: Path) -> None:
    tuner = tuner_of(loop, scheduler_of(), tmp_path, retries=retries, broken=2)
    results = tuner.fit()
    assert len(results.errors) == 1
    assert set(finished(results)) >= set(FRONT) - {2}
    assert steps(tmp_path)[2] == [1, 2] + [2] * retries


@pytest.mark.slow
def test_a_metric_that_is_not_finite_stops_its_trial(tmp_path: Path) -> None:
    results = tuner_of(loop, scheduler_of(), tmp_path, nan=4).fit()
    assert not results.errors
    assert steps(tmp_path)[4] == [1, 2]
    assert set(finished(results)) >= set(FRONT) - {4}


@pytest.mark.slow
@pytest.mark.parametrize(("until", "policy"), [(3, "exhaustive"), (2, "front-racing")])
def test_trials_that_end_early_are_finished(until: int, policy: str, tmp_path: Path) -> None:
    results = tuner_of(loop, scheduler_of(policy=policy), tmp_path, until=until).fit()
    assert not results.errors
    assert all(t == list(range(1, until + 1)) for t in steps(tmp_path).values())


def test_a_report_without_a_metric_is_refused(tmp_path: Path) -> None:
    scheduler = LampsScheduler(METRICS | {"watts": "min"}, max_t=MAX_T)
    with pytest.raises(Exception, match="reported no 'watts'"):
        tuner_of(loop, scheduler, tmp_path).fit()


@pytest.mark.slow
def test_what_was_paused_stays_paused_in_a_restored_experiment(tmp_path: Path) -> None:
    results = tuner_of(loop, scheduler_of(), tmp_path, broken=4).fit()
    first = steps(tmp_path)
    assert len(results.errors) == 1
    restored = tune.Tuner.restore(
        str(tmp_path / "tune" / "e"), tune.with_resources(loop, {"cpu": 1}), resume_errored=True
    )
    again = restored.fit()
    second = steps(tmp_path)
    assert len(again.errors) == 1
    assert {c for c in range(N) if first[c] != second[c]} == {4}


def test_the_scheduler_survives_pickling_and_its_own_files(tmp_path: Path) -> None:
    scheduler = scheduler_of(size_attr="width")
    scheduler.pool.add("a", "loop", {"width": 3}, 3)
    scheduler.pool.record("a", 1, (0.5, 7.0), 2.0)
    scheduler.save(str(tmp_path / "s.pkl"))
    other = scheduler_of()
    other.restore(str(tmp_path / "s.pkl"))
    copied = pickle.loads(pickle.dumps(scheduler))
    for one in (other, copied):
        assert one.debug_string() == scheduler.debug_string()
        assert one.pool.rows["a"].size_hint == 3
        assert one.pool.observation().digest() == scheduler.pool.observation().digest()


def test_refusals() -> None:
    with pytest.raises(ConfigError, match="no objective"):
        LampsScheduler({})
    with pytest.raises(ConfigError, match="direction 'low', expected 'min' or 'max'"):
        LampsScheduler({"error": "low"})
    with pytest.raises(ConfigError, match="last landmark is 4, expected max_t, 8"):
        scheduler_of(landmarks=(1, 2, 4))
    with pytest.raises(ConfigError, match="full effort is 0"):
        scheduler_of(max_t=0)
    assert scheduler_of().set_search_properties("error", "min") is False
    assert scheduler_of().set_search_properties(None, None) is True
