"""Whatever is called in whatever order, the store agrees with a small model of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from _store_samples import FIDELITIES, complete, decide, started
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from lamps.errors import StateError
from lamps.store import Decision, Run, Store

N_TRIALS = 3
names = itertools.count()

OTHERS = "fail crash retry give_up cancel requeue cancel_trial stop finish"

operations = st.tuples(
    st.sampled_from(["decide"] * 6 + ["complete"] * 5 + OTHERS.split()),
    st.integers(0, N_TRIALS - 1),
    st.integers(0, len(FIDELITIES) - 1),
)


@dataclass
class Expected:
    """One trial as it should be."""

    state: str = "waiting"
    landmark: int = -1
    decision: Decision | None = None
    given_up: bool = False


class Model:
    """The oracle: which calls are legal, and what they lead to."""

    def __init__(self, store: Store, run: Run) -> None:
        self.store, self.run = store, run
        self.trials = [Expected() for _ in range(N_TRIALS)]
        self.finished = False
        self.evaluations = 0

    def apply(self, name: str, index: int, landmark: int) -> None:
        legal = self.legal(name, self.trials[index], landmark)
        if legal is None:
            return
        if legal:
            self.call(name, index, landmark)
            return
        with pytest.raises(StateError):
            self.call(name, index, landmark)

    def legal(self, name: str, trial: Expected, landmark: int) -> bool | None:
        """Whether a call is allowed; None where there is no decision to call it with."""
        if name == "decide":
            ready = trial.state in ("waiting", "paused") and landmark > trial.landmark
            return ready and not self.finished
        if name == "finish":
            busy = any(t.state in ("waiting", "paused", "running") for t in self.trials)
            return not busy and not self.finished
        if name in ("requeue", "stop", "cancel_trial"):
            return True
        if trial.decision is None:
            return None
        if name in ("retry", "give_up"):
            crashed = trial.state == "crashed" and not trial.given_up
            return crashed and not (name == "retry" and self.finished)
        return trial.state == "running"

    def call(self, name: str, index: int, landmark: int) -> None:
        store, run, trial = self.store, self.run, self.trials[index]
        known = trial.decision
        match name:
            case "decide":
                trial.decision = decide(store, run, index, landmark)
                trial.state = "running"
            case "finish":
                store.set_run_state(run.id, "finished")
                self.finished = True
            case "requeue":
                pending = [
                    t.decision.id for t in self.trials if t.state == "running" and t.decision
                ]
                assert sorted(d.id for d in store.requeue(run.id)) == sorted(pending)
            case "stop":
                waiting = [t for t in self.trials if t.state in ("waiting", "paused")]
                assert store.stop_trials(run.id) == len(waiting)
                for other in waiting:
                    other.state = "stopped"
            case "cancel_trial":
                rests = trial.state in ("waiting", "paused")
                assert store.cancel_trial(run.id, index) == rests
                trial.state = "cancelled" if rests else trial.state
            case _ if known is not None:
                self.outcome(name, trial, known)

    def outcome(self, name: str, trial: Expected, known: Decision) -> None:
        match name:
            case "complete":
                complete(self.store, known, checkpoint=(f"c{known.id}", "0" * 64, 1))
                trial.landmark = known.landmark
                trial.state = "complete" if known.landmark == len(FIDELITIES) - 1 else "paused"
                self.evaluations += 1
            case "fail":
                self.store.fail(known.id, kind="failed", error="raised")
                trial.state = "failed"
            case "crash":
                self.store.fail(known.id, kind="crashed", error="lost")
                trial.state = "crashed"
            case "retry":
                trial.decision = self.store.retry(known.id)
                trial.state = "running"
            case "give_up":
                self.store.give_up(known.id)
                trial.given_up = True
            case "cancel":
                self.store.cancel(known.id)
                trial.state = "waiting" if trial.landmark < 0 else "paused"


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
)
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    """One store for all examples; each has a run of its own."""
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").url()
    else:
        url = f"sqlite:///{tmp_path_factory.mktemp('laws')}/lamps.db"
    with Store.open(url) as store:
        yield store
        assert store.check() == []


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(operations, max_size=25))
def test_any_sequence_of_calls_keeps_the_laws(
    shared: Store, steps: list[tuple[str, int, int]]
) -> None:
    name = f"run {next(names)}"
    run = started(shared, name, n=N_TRIALS)
    model = Model(shared, run)
    for step in steps:
        model.apply(*step)
    trials = shared.trials(run.id)
    assert [(t.state, t.landmark) for t in trials] == [(t.state, t.landmark) for t in model.trials]
    again = shared.run(name)
    assert again.n_evaluations == model.evaluations
    assert sum(again.counts.values()) == N_TRIALS
    assert [d.seq for d in shared.decisions(run.id)] == list(range(1, again.n_decisions + 1))
    final = shared.final_values(run.id, finished_only=False)
    assert final.landmark.tolist() == [t.landmark for t in model.trials if t.landmark >= 0]
    assert shared.check() == []


@pytest.mark.parametrize(
    ("damage", "finding"),
    [
        (
            "UPDATE trials SET state = 'running' WHERE trial_index = 2",
            "without a pending decision",
        ),
        ("UPDATE trials SET state = 'paused' WHERE trial_index = 1", "its trial is paused"),
        (
            "UPDATE trials SET state = 'failed' WHERE trial_index = 2",
            "without a decision that says",
        ),
        ("UPDATE trials SET landmark = 2 WHERE trial_index = 0", "last ok evaluation is at 0"),
        ("UPDATE decisions SET seq = 7 WHERE seq = 2", "expected 1, 2, 3"),
        ("UPDATE decisions SET state = 'done' WHERE seq = 2", "its evaluation is missing"),
        ("DELETE FROM costs", "has no cost"),
        ("UPDATE checkpoints SET landmark = 3", "is at landmark 3, the trial at 0"),
        ("UPDATE runs SET state = 'finished'", "is finished, but trial"),
        ("UPDATE evaluations SET landmark = 1", "another trial or landmark"),
    ],
)
def test_check_finds_damage(sqlite_url: str, damage: str, finding: str) -> None:
    with Store.open(sqlite_url) as store:
        run = started(store)
        complete(store, decide(store, run, 0, 0), checkpoint=("c", "0" * 64, 1))
        decide(store, run, 1, 0)
        assert store.check() == []
        store._write(lambda c: c.execute(text(damage)))
        findings = store.check()
        assert any(finding in line for line in findings), findings
        assert all("\n" not in line for line in findings)
