"""Landmarks for the trials of an Optuna study: laws first, then refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.trial import TrialState

from lamps import pareto
from lamps.errors import ConfigError, StateError, UnknownMethod
from lamps.integrations.optuna import LampsAllocator, StopWhenDone

LANDMARKS = (1, 2, 4, 8)
N = 8


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)


def study_of(n_objectives: int, url: str | None = None, seed: int = 0) -> optuna.Study:
    directions = ["minimize", "maximize", "minimize"][:n_objectives]
    return optuna.create_study(
        directions=directions,
        storage=url,
        study_name="s",
        load_if_exists=True,
        sampler=optuna.samplers.RandomSampler(seed=seed),
    )


def curve(number: int, until: float, n_objectives: int) -> list[float]:
    """A curve that follows from the number of a trial, so a study can be compared with a table."""
    rng = np.random.default_rng(number)
    floor, speed = rng.uniform(0.1, 0.9), rng.uniform(0.2, 1.0)
    return [floor + (1 - floor) * until**-speed, -10 * floor, 1 + number % 3][:n_objectives]


def work(pool: LampsAllocator, n_objectives: int, steps: int | None = None) -> list[object]:
    """Train what is handed out, at most so many landmarks; what was handed out."""
    seen: list[object] = []
    for trial, until in pool:
        if len(seen) == steps:
            break
        x = trial.suggest_float("x", 0, 1)
        seen.append((trial.number, until, x))
        pool.tell(trial, curve(trial.number, until, n_objectives), cost_s=float(until))
    return seen


@pytest.mark.parametrize("n_objectives", [1, 2, 3])
def test_exhaustive_allocation_is_plain_training(n_objectives: int) -> None:
    study = study_of(n_objectives)
    pool = LampsAllocator(study, n_trials=N, landmarks=LANDMARKS, policy="exhaustive")
    seen = work(pool, n_objectives)
    assert len(seen) == N * len(LANDMARKS)
    assert {t.state for t in study.trials} == {TrialState.COMPLETE}
    finals = [curve(t.number, 8, n_objectives) for t in study.trials]
    assert [t.values for t in study.trials] == finals
    directions = ("minimize", "maximize", "minimize")[:n_objectives]
    front = np.flatnonzero(pareto.is_nondominated(pareto.to_minimization(finals, directions)))
    assert sorted(t.number for t in study.best_trials) == front.tolist()


@pytest.mark.parametrize("policy", ["lamps", "front-racing", "mo-asha", "ehvi", "optuna:tpe"])
def test_trials_keep_params_and_climb_one_landmark_at_a_time(policy: str) -> None:
    study = study_of(2)
    seen = work(LampsAllocator(study, n_trials=N, landmarks=LANDMARKS, policy=policy), 2)
    for number in {s[0] for s in seen}:  # type: ignore[index]
        mine = [s for s in seen if s[0] == number]  # type: ignore[index]
        assert tuple(s[1] for s in mine) == LANDMARKS[: len(mine)]  # type: ignore[index]
        assert len({s[2] for s in mine}) == 1  # type: ignore[index]
        state = TrialState.COMPLETE if len(mine) == len(LANDMARKS) else TrialState.PRUNED
        assert study.trials[number].state == state


@settings(max_examples=25)
@given(cut=st.integers(0, 24), policy=st.sampled_from(["lamps", "front-racing", "mo-asha"]))
def test_a_study_that_is_loaded_goes_on_as_if_nothing_had_happened(cut: int, policy: str) -> None:
    storage = optuna.storages.InMemoryStorage()

    def allocator(study: optuna.Study) -> LampsAllocator:
        return LampsAllocator(study, n_trials=N, landmarks=LANDMARKS, policy=policy)

    def steps(seen: list[object]) -> list[object]:
        return [s[:2] for s in seen]  # type: ignore[index]

    whole = work(allocator(study_of(2)), 2)
    study = optuna.create_study(directions=["minimize", "maximize"], storage=storage)
    before = work(allocator(study), 2, steps=cut)
    again = optuna.load_study(study_name=study.study_name, storage=storage)
    after = work(allocator(again), 2)
    assert steps(before + after) == steps(whole)


def test_sqlite_remembers_landmarks_and_the_end(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/optuna.db"
    first = LampsAllocator(study_of(2, url), n_trials=4, landmarks=LANDMARKS, policy="random")
    assert len(work(first, 2, steps=3)) == 3
    second = LampsAllocator(study_of(2, url), n_trials=4, landmarks=LANDMARKS, policy="random")
    assert sum(r.landmark + 1 for r in second.pool.rows.values()) == 3
    assert len(work(second, 2)) == 13
    study = study_of(2, url)
    assert [t.state for t in study.trials] == [TrialState.COMPLETE] * 4
    curves = [t.user_attrs["lamps:landmarks"] for t in study.trials]
    assert [[c[0] for c in k] for k in curves] == [
        [curve(n, u, 2) for u in LANDMARKS] for n in range(4)
    ]
    third = LampsAllocator(study, n_trials=4, landmarks=LANDMARKS)
    assert third.ask() is None
    assert len(work(LampsAllocator(study, n_trials=5, landmarks=LANDMARKS), 2)) >= 1
    with pytest.raises(ConfigError, match="was allocated with landmarks"):
        LampsAllocator(study, n_trials=5, landmarks=(1, 2))
    with pytest.raises(ConfigError, match="give at least as many"):
        LampsAllocator(study, n_trials=3, landmarks=LANDMARKS)


def test_an_end_that_the_study_did_not_hear_of_is_told(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/optuna.db"
    study = study_of(2, url)
    pool = LampsAllocator(study, n_trials=1, landmarks=(1,))
    task = pool.ask()
    assert task is not None
    task[0].set_user_attr("lamps:landmarks", [[[0.5, 0.5], 1.0]])  # and killed before tell
    LampsAllocator(study_of(2, url), n_trials=1, landmarks=(1,))
    assert [t.values for t in study.trials] == [[0.5, 0.5]]


def test_failures_fail_their_trial_alone() -> None:
    study = study_of(2)
    pool = LampsAllocator(study, n_trials=4, landmarks=LANDMARKS, policy="exhaustive")
    for trial, until in pool:
        values: list[float] | None = curve(trial.number, until, 2)
        if trial.number == 1:
            values = None
        if trial.number == 2 and until == 4:
            values = [float("nan"), 0.0]
        pool.tell(trial, values)
    done, fail = TrialState.COMPLETE, TrialState.FAIL
    assert [t.state for t in study.trials] == [done, fail, fail, done]
    assert len(study.trials[2].user_attrs["lamps:landmarks"]) == 2


def test_a_body_that_raises_leaves_its_trial_open() -> None:
    study = study_of(2)
    pool = LampsAllocator(study, n_trials=2, landmarks=LANDMARKS, policy="exhaustive")

    def broken() -> None:
        for _ in pool:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    again = LampsAllocator(study, n_trials=2, landmarks=LANDMARKS, policy="exhaustive")
    assert len(work(again, 2)) == 2 * len(LANDMARKS)


def test_several_trials_can_be_out() -> None:
    study = study_of(2)
    pool = LampsAllocator(study, n_trials=2, landmarks=(1, 2), policy="exhaustive")
    tasks = [pool.ask(), pool.ask()]
    assert [t[0].number for t in tasks if t] == [0, 1]
    with pytest.raises(StateError, match=r"trials \[0, 1\] were handed out"):
        pool.ask()
    assert tasks[1] is not None
    pool.tell(tasks[1][0], (0.0, 0.0))
    with pytest.raises(StateError, match="trial 1 was not handed out"):
        pool.tell(tasks[1][0], (0.0, 0.0))


def test_refusals() -> None:
    study = study_of(2)
    with pytest.raises(ConfigError, match="n_trials is 0"):
        LampsAllocator(study, n_trials=0, landmarks=LANDMARKS)
    for landmarks in ((), (2, 1), (0, 1), (1, float("inf")), ("a",)):
        with pytest.raises(ConfigError, match="landmarks are"):
            LampsAllocator(study, n_trials=2, landmarks=landmarks)  # type: ignore[arg-type]
    with pytest.raises(UnknownMethod, match="no policy 'lams'"):
        LampsAllocator(study, n_trials=2, landmarks=LANDMARKS, policy="lams")
    pool = LampsAllocator(study, n_trials=2, landmarks=LANDMARKS)
    task = pool.ask()
    assert task is not None
    with pytest.raises(ConfigError, match="1 values were told, the study has 2 objectives"):
        pool.tell(task[0], 0.5)
    with pytest.raises(ConfigError, match="cost_s is -1"):
        pool.tell(task[0], (0.5, 0.5), cost_s=-1)
    pool.tell(task[0], (0.5, 0.5))
    with pytest.raises(ConfigError, match="n_trials is True"):
        StopWhenDone(True)
    with pytest.raises(UnknownMethod, match="no policy"):
        StopWhenDone(5, policy="nothing")


@pytest.mark.parametrize("n_objectives", [1, 2, 3])
def test_the_callback_stops_by_the_policys_rule(n_objectives: int) -> None:
    def objective(trial: optuna.Trial) -> list[float]:
        trial.suggest_float("x", 0, 1)
        if trial.number == 0:
            raise ZeroDivisionError
        return curve(trial.number, 8, n_objectives)

    counts = []
    for policy in ("lamps(doubt=1.0)", "front-racing"):
        study = study_of(n_objectives)
        callback = StopWhenDone(N, policy=policy)
        study.optimize(objective, 2 * N, callbacks=[callback], catch=(ZeroDivisionError,))
        counts.append(len(study.trials))
    # One that is content with the first finished trial, and one that wants all of the pool.
    assert counts == [2, N]
