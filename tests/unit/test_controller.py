"""Whatever a policy, a backend or a listener does, the store is left consistent and resumable."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lamps.catalogue import open_problem
from lamps.errors import ContractError, StateError, StoreError
from lamps.method import Problem
from lamps.policy import STOP, WAIT, Policy, make
from lamps.policy.base import first_started
from lamps.scheduler import claim as claims
from lamps.scheduler.controller import MAX_ATTEMPTS, Controller
from lamps.scheduler.local import LocalBackend
from lamps.scheduler.progress import Progress
from lamps.scheduler.worker import LandmarkResult, LandmarkTask
from lamps.store import Run, RunSpec, Store
from lamps.types import Budget, Candidate, Cost, Evaluation, Resources

CURVES = ("a", "b", "c", "d")


class Script(Policy):
    """Answers what a function says."""

    name = "script"
    summary = "answers what a test says"

    def __init__(self, answer: Callable[..., int]) -> None:
        super().__init__(seed=0)
        self.answer = answer

    def propose(self, observation: Any, mask: Any) -> int:
        return self.answer(observation, mask)


class Bent(LocalBackend):
    """A backend with several workers that bends results before it reports them."""

    def __init__(
        self, bend: Callable[[LandmarkTask, LandmarkResult], LandmarkResult], workers: int = 1
    ) -> None:
        super().__init__()
        self.bend, self.workers = bend, workers

    @property
    def free(self) -> int:
        return self.workers - len(self._queue)

    def wait(self, timeout_s: float) -> list[LandmarkResult]:
        task = self._queue[0] if self._queue else None
        return [self.bend(task, r) for r in super().wait(timeout_s)] if task else []


class Bench:
    """A store, a problem, and runs on them."""

    def __init__(self, curves: Path, url: str, folder: Path) -> None:
        self.problem: Problem = open_problem(None, f"replay:{curves}", {}, "")[1]
        self.store = Store.open(url)
        self.artifacts = str(folder / "artifacts")

    def run(self, **changes: Any) -> Run:
        """A new run over the four curves."""
        problem = self.problem
        spec = RunSpec(
            **{
                "name": "r", "family": "replay", "problem_name": problem.name,
                "problem_reference": problem.reference(),
                "problem_fingerprint": problem.fingerprint(), "problem_card": problem.card(),
                "objectives": problem.objectives,
                "front_objectives": tuple(o.name for o in problem.objectives),
                "fidelities": problem.fidelities, "unit": problem.unit, "settings": {}, "seed": 0,
                "budget": Budget(), "policy": "script", "policy_version": "1", "workers": 1,
                "artifact_root": self.artifacts, "method_versions": {"curve-replay": "1"},
                "models": [], "size_hints": [1.0] * 4,
            } | changes
        )  # fmt: skip
        pool = [Candidate("replay", "curve-replay", {"curve": c}) for c in CURVES]
        return self.store.create_run(spec, pool, list(CURVES))

    def controller(
        self,
        policy: Policy,
        backend: LocalBackend | None = None,
        *,
        listener: Callable[[Progress], None] | None = None,
        baselines: Sequence[int] = (),
    ) -> Controller:
        """A controller on the run, as it is stored now."""
        return Controller(
            self.store, self.store.run("r"), self.problem, policy, backend or LocalBackend(),
            resources=[Resources()] * 4, listener=listener, baselines=baselines,
        )  # fmt: skip

    def at_rest(self, state: str) -> Run:
        """The run, which is in that state with nothing pending and nobody holding it."""
        run = self.store.run("r")
        assert run.state == state
        assert self.store.check() == []
        assert "running" not in {t.state for t in self.store.trials(run.id)}
        assert "pending" not in {d.state for d in self.store.decisions(run.id)}
        self.store.claim(run.id, "the next one")
        self.store.release(run.id, "the next one")
        return run


@pytest.fixture
def bench(curves: Path, store_url: str, tmp_path: Path) -> Bench:
    """A bench with one new run, ``r``."""
    made = Bench(curves, store_url, tmp_path)
    made.run()
    return made


def depth_first(observation: Any, mask: Any) -> int:
    """The policy ``exhaustive``."""
    return first_started(observation, mask, _order(observation))


def _order(observation: Any) -> Any:
    import numpy as np

    return np.arange(observation.n_trials)


# -- policies that break the rules ---------------------------------------------------------------


def after(n: int, then: int) -> Script:
    """``n`` good decisions, then another answer."""
    return Script(lambda obs, mask: depth_first(obs, mask) if obs.seq < n else then)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (WAIT, "policy 'script' waits while nothing is in flight"),
        (0, "policy 'script' chose trial 0, which may not advance"),  # it is complete
        (99, "policy 'script' chose trial 99, which may not advance"),
    ],
)
def test_a_policy_that_breaks_its_contract_interrupts_the_run(
    answer: int, said: str, bench: Bench
) -> None:
    with pytest.raises(ContractError, match=said):
        bench.controller(after(5, answer)).execute()
    assert said in bench.at_rest("interrupted").note
    assert len(bench.store.decisions(1)) == 5
    assert bench.controller(Script(depth_first)).execute().ending == "finished"
    bench.at_rest("finished")


def test_a_policy_that_raises_interrupts_the_run(bench: Bench) -> None:
    with pytest.raises(ZeroDivisionError):
        bench.controller(Script(lambda obs, mask: 1 // (3 - obs.seq) * 0)).execute()
    bench.at_rest("interrupted")


def test_a_listener_that_raises_interrupts_the_run(bench: Bench) -> None:
    def listen(progress: Progress) -> None:
        if progress.event == "ok" and progress.spent.landmarks == 3:
            raise RuntimeError("no more paper")

    with pytest.raises(RuntimeError, match="no more paper"):
        bench.controller(Script(depth_first), listener=listen).execute()
    bench.at_rest("interrupted")
    assert bench.controller(Script(depth_first)).execute().ending == "finished"
    assert len(bench.store.decisions(1)) == 16


# -- the loop ------------------------------------------------------------------------------------


def test_a_decision_is_stored_before_it_is_acted_on(bench: Bench) -> None:
    seen: list[str] = []

    class Watching(LocalBackend):
        def submit(self, task: LandmarkTask) -> None:
            if task.key > 0:
                with Store.open(bench.store._url.render_as_string(hide_password=False)) as other:
                    stored = {d.id: d.state for d in other.decisions(1)}
                seen.append(stored[task.key])
            super().submit(task)

    bench.controller(Script(depth_first), Watching()).execute()
    assert seen == ["pending"] * 16


def test_the_listener_hears_the_story_in_order(bench: Bench) -> None:
    heard: list[Progress] = []
    bench.controller(Script(depth_first), listener=heard.append).execute()
    events = [p.event for p in heard]
    assert (events[0], events[-1]) == ("start", "end")
    assert events[1:-1] == ["decide", "ok"] * 16 + ["test"] * 3
    assert all(sum(p.counts.values()) == 4 for p in heard)
    volumes = [p.front_size for p in heard]
    assert volumes == sorted(volumes) or max(volumes) == 3
    assert heard[-1].counts["complete"] == 4


def test_stop_decides_nothing_more(bench: Bench) -> None:
    stopped = bench.controller(Script(depth_first))
    stopped.stop("enough")
    stopped.stop("later reasons do not replace the first")
    outcome = stopped.execute()
    assert (outcome.ending, outcome.reason) == ("interrupted", "enough")
    assert bench.store.decisions(1) == []
    bench.at_rest("interrupted")


def test_stop_lets_what_is_in_flight_finish(bench: Bench) -> None:
    holder: list[Controller] = []

    def bend(task: LandmarkTask, result: LandmarkResult) -> LandmarkResult:
        holder[0].stop("enough")
        return result

    holder.append(bench.controller(Script(depth_first), Bent(bend)))
    assert holder[0].execute().ending == "interrupted"
    assert [d.state for d in bench.store.decisions(1)] == ["done"]
    bench.at_rest("interrupted")


def test_baselines_are_finished_before_the_policy_is_asked(bench: Bench) -> None:
    bench.controller(after(4, STOP), baselines=[2]).execute()
    made = [(d.trial_index, d.landmark, d.policy) for d in bench.store.decisions(1)]
    assert made == [(2, k, "baseline") for k in range(4)]
    states = [t.state for t in bench.store.trials(1)]
    assert states == ["stopped", "stopped", "complete", "stopped"]
    bench.at_rest("finished")


def test_a_run_that_is_over_is_refused_and_left_as_it_is(bench: Bench) -> None:
    bench.controller(Script(depth_first)).execute()
    with pytest.raises(StateError, match="finished"):
        bench.controller(Script(depth_first)).execute()
    bench.at_rest("finished")


def test_a_run_that_is_held_is_refused_and_its_holder_undisturbed(bench: Bench) -> None:
    bench.store.claim(1, "someone else")
    with pytest.raises(StateError, match="held by someone else"):
        bench.controller(Script(depth_first)).execute()
    bench.store.heartbeat(1, "someone else")
    assert bench.store.run("r").state == "created"


def test_a_run_that_was_taken_over_is_left_to_its_new_controller(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a night in which this machine slept and another one went on with the run."""
    monkeypatch.setattr(claims, "SILENCE_S", -1.0)

    def bend(task: LandmarkTask, result: LandmarkResult) -> LandmarkResult:
        if task.key == 3:
            with bench.store._engine.begin() as connection:
                connection.exec_driver_sql("UPDATE runs SET heartbeat_at = 0")
            bench.store.claim(1, "the other one")
        return result

    with pytest.raises(StateError, match="no longer held by"):
        bench.controller(Script(depth_first), Bent(bend)).execute()
    bench.store.heartbeat(1, "the other one")
    assert bench.store.run("r").state == "running"
    assert [d.state for d in bench.store.decisions(1)] == ["done", "done", "pending"]


def test_the_test_split_is_opened_once_per_member_of_the_front(bench: Bench) -> None:
    bench.controller(Script(depth_first)).execute()
    tested = [t.index for t in bench.store.trials(1) if t.test is not None]
    assert tested == [0, 1, 3]


# -- backends that bring bad news ----------------------------------------------------------------


def test_a_crash_is_retried_and_counted_once(bench: Bench) -> None:
    left = {"n": MAX_ATTEMPTS - 1}

    def bend(task: LandmarkTask, result: LandmarkResult) -> LandmarkResult:
        if task.key == 3 and left["n"]:
            left["n"] -= 1
            return LandmarkResult(key=task.key, kind="crashed", error="the worker vanished")
        return result

    outcome = bench.controller(Script(depth_first), Bent(bend)).execute()
    assert (outcome.ending, outcome.n_failed) == ("finished", 0)
    attempts = [d.attempt for d in bench.store.decisions(1)]
    assert attempts == [1, 1, MAX_ATTEMPTS] + [1] * 13
    assert bench.at_rest("finished").n_evaluations == 16


def test_a_landmark_that_always_crashes_is_given_up(bench: Bench) -> None:
    def bend(task: LandmarkTask, result: LandmarkResult) -> LandmarkResult:
        if task.candidate.params["curve"] == "b" and task.fidelity == 0.25:
            return LandmarkResult(key=task.key, kind="crashed", error="the worker vanished")
        return result

    outcome = bench.controller(Script(depth_first), Bent(bend)).execute()
    assert (outcome.ending, outcome.n_failed, outcome.n_complete) == ("finished", 1, 3)
    trial = bench.store.trials(1)[1]
    assert (trial.state, trial.attempts, trial.error) == (
        "crashed", MAX_ATTEMPTS, "the worker vanished",
    )  # fmt: skip
    bench.at_rest("finished")


def test_a_full_artifact_root_interrupts_the_run_and_blames_nobody(bench: Bench) -> None:
    full = {"yes": True}

    def bend(task: LandmarkTask, result: LandmarkResult) -> LandmarkResult:
        if full["yes"] and task.key >= 4:
            return LandmarkResult(key=task.key, kind="storage", error="disk full")
        return result

    with pytest.raises(StoreError, match="disk full"):
        bench.controller(Script(depth_first), Bent(bend, workers=3)).execute()
    assert bench.at_rest("interrupted").note == "disk full"
    assert "failed" not in {t.state for t in bench.store.trials(1)}
    full["yes"] = False
    assert bench.controller(Script(depth_first), Bent(bend)).execute().ending == "finished"
    assert bench.at_rest("finished").n_evaluations == 16


def test_a_cancelled_landmark_is_decided_again_and_costs_no_budget(bench: Bench) -> None:
    def bend(task: LandmarkTask, result: LandmarkResult) -> LandmarkResult:
        if task.key in (2, 5):
            return LandmarkResult(key=task.key, kind="cancelled")
        return result

    patient = bench.controller(Script(depth_first), Bent(bend))
    patient.budget = Budget(landmarks=17)
    assert patient.execute().n_complete == 4
    assert patient.spent.landmarks == 16
    states = [d.state for d in bench.store.decisions(1)]
    assert (states.count("done"), states.count("cancelled")) == (16, 2)
    bench.at_rest("finished")


def test_an_outcome_that_the_store_refuses_leaves_no_decision_open(bench: Bench) -> None:
    def bend(task: LandmarkTask, result: LandmarkResult) -> LandmarkResult:
        if task.key == 3:
            return LandmarkResult(
                key=3, kind="ok", evaluation=Evaluation({"error": 1.0, "mb": 1.0, "x": 1.0}),
                cost=Cost(wall_s=1.0),
            )  # fmt: skip
        return result

    with pytest.raises(StoreError, match="objectives"):
        bench.controller(Script(depth_first), Bent(bend)).execute()
    bench.at_rest("interrupted")
    assert bench.controller(Script(depth_first)).execute().ending == "finished"
    bench.at_rest("finished")


@pytest.mark.parametrize("attempts", [1, MAX_ATTEMPTS])
def test_a_crash_before_a_kill_is_dealt_with_by_the_next_controller(
    attempts: int, bench: Bench
) -> None:
    """The controller was killed after it had stored a crash and before it retried or gave up."""
    bench.store.claim(1, "dead", pid=2**22 + 1)
    bench.store.set_run_state(1, "running")
    decision = bench.store.decide(1, 0, 0, policy="script", features_hash="", seed=0)
    for n in range(attempts):
        bench.store.fail(decision.id, kind="crashed", error="the worker vanished")
        if n < attempts - 1:
            bench.store.retry(decision.id)
    outcome = bench.controller(Script(depth_first)).execute()
    again = attempts < MAX_ATTEMPTS
    assert (outcome.ending, outcome.n_failed) == ("finished", 0 if again else 1)
    first = bench.store.decisions(1)[0]
    assert (first.state, first.attempt) == (
        ("done", attempts + 1) if again else ("abandoned", attempts)
    )
    bench.at_rest("finished")


def test_a_crash_while_stopping_is_retried_by_the_resume(bench: Bench) -> None:
    holder: list[Controller] = []

    def bend(task: LandmarkTask, result: LandmarkResult) -> LandmarkResult:
        holder[0].stop("interrupted by the user")
        return LandmarkResult(key=task.key, kind="crashed", error="the worker vanished")

    holder.append(bench.controller(Script(depth_first), Bent(bend)))
    outcome = holder[0].execute()
    assert (outcome.ending, outcome.n_failed) == ("interrupted", 0)
    bench.at_rest("interrupted")
    assert bench.controller(Script(depth_first)).execute().n_complete == 4
    assert bench.store.decisions(1)[0].attempt == 2
    assert bench.at_rest("finished").n_evaluations == 16


@pytest.mark.parametrize("seed", range(12))
def test_through_any_weather_the_run_ends_whole(seed: int, bench: Bench) -> None:
    """Random news on two workers, interruptions, resumes: consistent after each, whole at last."""
    weather = random.Random(seed)
    kinds = ["ok"] * 12 + ["crashed", "cancelled", "failed", "storage", "stop"]
    for attempt in range(60):
        controllers: list[Controller] = []

        def bend(
            task: LandmarkTask, result: LandmarkResult, held: list[Controller] = controllers
        ) -> LandmarkResult:
            kind = weather.choice(kinds) if task.key > 0 else "ok"
            if kind == "stop":
                held[0].stop("told to")
            if kind in ("ok", "stop"):
                return result
            return LandmarkResult(key=task.key, kind=kind, error=f"news: {kind}")  # type: ignore[arg-type]

        policy = make("random", seed=attempt)
        controllers.append(bench.controller(policy, Bent(bend, workers=2)))
        before = controllers[0].spent.landmarks
        ending = "interrupted"
        with contextlib.suppress(StoreError):
            ending = controllers[0].execute().ending
        run = bench.at_rest(ending)
        states = [d.state for d in bench.store.decisions(run.id)]
        taken = len(states) - states.count("cancelled")
        assert taken == controllers[0].spent.landmarks >= before
        if ending == "finished":
            break
    assert bench.store.run("r").state == "finished"
    ended = {t.state for t in bench.store.trials(1)}
    assert ended <= {"complete", "failed", "crashed", "stopped"}
