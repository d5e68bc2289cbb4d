"""What a run can rely on: every value comes back, every outcome is counted once."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from _store_samples import (
    COST,
    FIDELITIES,
    MODEL,
    OBJECTIVES,
    candidates,
    complete,
    decide,
    spec,
    started,
)

from lamps.errors import StateError, StoreError
from lamps.store import Store


def test_a_run_comes_back_as_it_was_given(store: Store) -> None:
    given = spec(size_hints=(1.0, math.nan, math.inf))
    run = store.create_run(given, candidates(), labels=["a", "b", "c"])
    again = store.run("first")
    assert again.size_hints[0] == 1.0
    assert math.isnan(again.size_hints[1])
    assert again.size_hints[2] == math.inf
    for name in (
        "family", "problem_name", "problem_reference", "problem_card", "problem_fingerprint",
        "objectives", "front_objectives", "fidelities", "unit", "settings", "seed", "budget",
        "policy", "policy_version", "workers", "artifact_root", "method_versions", "models",
    ):  # fmt: skip
        assert getattr(again, name) == getattr(given, name), name
    assert (run.id, again.state, again.counts) == (again.id, "created", {"waiting": 3})
    trials = store.trials(run.id)
    assert [t.candidate for t in trials] == candidates()
    assert [t.label for t in trials] == ["a", "b", "c"]
    assert [t.landmark for t in trials] == [-1, -1, -1]


def test_a_second_run_of_the_same_name_is_refused_with_advice(store: Store) -> None:
    store.create_run(spec(), candidates())
    with pytest.raises(StoreError, match=r"exists already .* lamps resume 'first'.* another name"):
        store.create_run(spec(), candidates())
    with pytest.raises(StoreError, match="Did you mean 'first'"):
        store.run("frist")


def test_runs_share_problems_candidates_and_models(store: Store) -> None:
    for name in ("one", "two"):
        store.create_run(spec(name), candidates())
    newest, oldest = store.runs()
    assert (newest.name, oldest.name) == ("two", "one")
    assert newest.n_trials == 3
    assert store.run("one").models == store.run("two").models == (MODEL,)


def test_two_thousand_candidates_are_quick(store: Store) -> None:
    begin = time.perf_counter()
    store.create_run(spec(), candidates(2000))
    assert time.perf_counter() - begin < 10


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"front_objectives": ("speed",)}, "not measured"),
        ({"fidelities": (0.5, 0.5)}, "do not increase"),
        ({"objectives": ()}, "at least one"),
        ({"size_hints": (1.0,)}, "1 size hints for 3"),
        ({"method_versions": {}}, "lacks 'curve-replay'"),
        ({"family": "other"}, "not 'other'"),
        ({"name": ""}, "not empty"),
        ({"name": "a\x00b"}, "NUL"),
        ({"settings": {"path": object()}}, "as JSON"),
    ],
)
def test_a_contradictory_spec_is_refused(
    store: Store, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(StoreError, match=message):
        store.create_run(spec(**changes), candidates())
    assert store.runs() == []


def test_a_trial_goes_through_its_landmarks(store: Store) -> None:
    run = started(store)
    for landmark in range(4):
        decision = decide(store, run, 1, landmark)
        assert (decision.seq, decision.attempt) == (landmark + 1, 1)
        assert store.trials(run.id)[1].state == "running"
        old = complete(
            store, decision, 0.1, float(landmark), 2.0,
            checkpoint=(f"file:///c{landmark}", "1" * 64, 5), signals={"grad": math.inf},
        )  # fmt: skip
        assert old == (f"file:///c{landmark - 1}" if landmark else None)
    trial = store.trials(run.id)[1]
    assert (trial.state, trial.landmark, trial.attempts) == ("complete", 3, 1)
    assert trial.checkpoint is not None
    assert (trial.checkpoint.uri, trial.checkpoint.landmark) == ("file:///c3", 3)
    assert [e.fidelity for e in trial.evaluations] == list(FIDELITIES)
    assert trial.evaluations[2].values == {"val_error": 0.1, "latency_ms": 2.0, "gain": 2.0}
    assert trial.evaluations[2].signals == {"grad": math.inf}
    assert trial.evaluations[2].cost == COST
    again = store.run("first")
    assert (again.n_decisions, again.n_evaluations) == (4, 4)
    assert (again.cost_wall_s, again.cost_device_s) == (6.0, 5.0)
    with pytest.raises(StateError, match="complete is final"):
        decide(store, run, 1, 3)


def test_an_outcome_is_counted_once(store: Store) -> None:
    run = started(store)
    decision = decide(store, run, 0, 0)
    complete(store, decision)
    with pytest.raises(StateError, match="done is final"):
        complete(store, decision, 9.0, 9.0, 9.0)
    with pytest.raises(StateError, match="done is final"):
        store.fail(decision.id, kind="failed", error="late")
    assert store.run("first").n_evaluations == 1
    assert store.trials(run.id)[0].evaluations[0].values["val_error"] == 0.5


def test_a_trial_has_one_landmark_in_flight(store: Store) -> None:
    run = started(store)
    decide(store, run, 0, 0)
    with pytest.raises(StateError, match="running"):
        decide(store, run, 0, 1)
    assert len(store.decisions(run.id)) == 1


def test_landmarks_only_go_up(store: Store) -> None:
    run = started(store)
    complete(store, decide(store, run, 0, 1))
    for landmark in (0, 1, 4):
        with pytest.raises(StateError, match="expected a later one"):
            decide(store, run, 0, landmark)


def test_a_failed_trial_keeps_its_earlier_landmarks(store: Store) -> None:
    run = started(store)
    complete(store, decide(store, run, 0, 0), 0.5, 1.0, 1.0)
    decision = decide(store, run, 0, 1)
    store.fail(
        decision.id, kind="failed", error="loss is nan",
        values={"val_error": math.nan, "latency_ms": "n/a", "gain": -math.inf}, cost=COST,
    )  # fmt: skip
    trial = store.trials(run.id)[0]
    assert (trial.state, trial.landmark, trial.error) == ("failed", 0, "loss is nan")
    ok, failed = trial.evaluations
    assert (ok.state, failed.state) == ("ok", "failed")
    assert [str(v) for v in failed.values.values()] == ["nan", "nan", "-inf"]
    assert failed.signals == {"reported": {"latency_ms": "n/a"}}
    final = store.final_values(run.id, finished_only=False)
    assert final.values.tolist() == [[0.5, 1.0, 1.0]]
    assert store.final_values(run.id).values.shape == (0, 3)


def test_a_crash_is_retried_and_its_cost_counted_once_each(store: Store) -> None:
    run = started(store)
    decision = decide(store, run, 0, 0)
    store.fail(decision.id, kind="crashed", error="worker lost", cost=COST)
    with pytest.raises(StateError, match="retry or give up"):
        decide(store, run, 0, 0)
    again = store.retry(decision.id)
    assert (again.id, again.seq, again.attempt) == (decision.id, decision.seq, 2)
    complete(store, again)
    trial = store.trials(run.id)[0]
    assert (trial.state, trial.attempts, trial.error) == ("paused", 2, None)
    assert trial.evaluations[0].cost == COST
    assert store.run("first").cost_wall_s == 3.0
    assert store.run("first").n_evaluations == 1
    with pytest.raises(StateError):
        store.retry(decision.id)


def test_a_crash_that_was_given_up_is_final(store: Store) -> None:
    run = started(store)
    decision = decide(store, run, 0, 0)
    store.fail(decision.id, kind="crashed", error="gone")
    store.give_up(decision.id)
    assert store.trials(run.id)[0].state == "crashed"
    with pytest.raises(StateError):
        store.retry(decision.id)


def test_a_cancelled_landmark_leaves_the_trial_where_it_was(store: Store) -> None:
    run = started(store)
    store.cancel(decide(store, run, 0, 0).id)
    assert store.trials(run.id)[0].state == "waiting"
    complete(store, decide(store, run, 0, 0))
    store.cancel(decide(store, run, 0, 1).id)
    assert store.trials(run.id)[0].state == "paused"
    assert [d.state for d in store.decisions(run.id)] == ["cancelled", "done", "cancelled"]


def test_what_a_dead_controller_left_is_requeued_in_order(store: Store) -> None:
    run = started(store)
    first, second = decide(store, run, 2, 0), decide(store, run, 0, 0)
    complete(store, decide(store, run, 1, 0))
    again = store.requeue(run.id)
    assert [(d.id, d.attempt) for d in again] == [(first.id, 2), (second.id, 2)]
    for decision in again:
        complete(store, decision)
    assert store.requeue(run.id) == []
    assert store.run("first").n_evaluations == 3


def test_a_run_finishes_when_every_trial_is_at_rest(store: Store) -> None:
    run = started(store)
    complete(store, decide(store, run, 0, 3))
    decision = decide(store, run, 1, 0)
    with pytest.raises(StateError, match="2 trials that wait or run"):
        store.set_run_state(run.id, "finished")
    store.cancel(decision.id)
    assert store.cancel_trial(run.id, 1)
    assert store.stop_trials(run.id) == 1
    store.set_run_state(run.id, "finished", note="budget")
    again = store.run("first")
    assert again.counts == {"complete": 1, "cancelled": 1, "stopped": 1}
    assert (again.state, again.note) == ("finished", "budget")
    assert again.finished_at is not None
    with pytest.raises(StateError, match="finished"):
        decide(store, run, 1, 1)
    store.record_test(run.id, 0, {"test_error": 0.25}, {"test_error_low": math.nan})
    assert store.run("first").tests[0].values == {"test_error": 0.25}
    assert math.isnan(store.trials(run.id)[0].test.signals["test_error_low"])  # type: ignore[union-attr]
    with pytest.raises(StateError, match="opens once"):
        store.record_test(run.id, 0, {"test_error": 0.2}, {})


def test_spending_adds_up(store: Store) -> None:
    run = started(store)
    store.add_spent(run.id, wall_s=1.5)
    store.add_spent(run.id, wall_s=1.0, device_s=2.0)
    store.set_reference_point(run.id, (1.1, math.inf))
    again = store.run("first")
    assert (again.spent_wall_s, again.spent_device_s) == (2.5, 2.0)
    assert again.reference_point == (1.1, math.inf)
    with pytest.raises(StoreError, match="finite"):
        store.add_spent(run.id, wall_s=math.nan)


def test_policy_state_is_kept_with_the_decision(store: Store) -> None:
    run = started(store)
    decide(store, run, 0, 0, policy_state={"rungs": [1, 2], "best": math.inf})
    decide(store, run, 1, 0)
    assert store.run("first").policy_state == {"rungs": [1, 2], "best": math.inf}


def test_decisions_come_back_for_comparison(store: Store) -> None:
    run = started(store)
    decide(store, run, 1, 0, seed=2**64 - 1, note="largest slope")
    (record,) = store.decisions(run.id)
    assert record.choice == (1, 1, 0, "round-robin", "abc", 2**64 - 1)
    assert (record.note, record.state, record.finished_at) == ("largest slope", "pending", None)


def test_outcomes_must_be_complete(store: Store) -> None:
    run = started(store)
    decision = decide(store, run, 0, 0)
    with pytest.raises(StoreError, match="expected exactly"):
        store.complete(decision.id, values={"val_error": 1.0}, signals={}, cost=COST)
    numbers: dict[str, object] = {o.name: "n/a" for o in OBJECTIVES}
    with pytest.raises(StoreError, match="no number"):
        store.complete(decision.id, values=numbers, signals={}, cost=COST)  # type: ignore[arg-type]
    assert store.trials(run.id)[0].state == "running"
    with pytest.raises(StoreError, match="expected 'failed' or 'crashed'"):
        store.fail(decision.id, kind="odd", error="")  # type: ignore[arg-type]


def test_what_does_not_exist_is_named(store: Store) -> None:
    run = started(store)
    with pytest.raises(StoreError, match="no trial 9"):
        decide(store, run, 9, 0)
    with pytest.raises(StoreError, match="no run with id 99"):
        store.trials(99)
    with pytest.raises(StoreError, match="no decision with id 99"):
        store.cancel(99)
    with pytest.raises(StoreError, match=r"no objective 'val_eror'.*Did you mean 'val_error'"):
        store.final_values(run.id, ["val_eror"])


def test_final_values_follow_names_and_trials(store: Store) -> None:
    run = started(store, n=4)
    complete(store, decide(store, run, 3, 3), 0.3, 30.0, 3.0)
    complete(store, decide(store, run, 1, 0), 0.9, 10.0, 1.0)
    complete(store, decide(store, run, 1, 2), 0.1, 10.0, 1.0)
    final = store.final_values(run.id, ["gain", "val_error"], finished_only=False)
    assert final.names == ("gain", "val_error")
    assert final.trial_index.tolist() == [1, 3]
    assert final.landmark.tolist() == [2, 3]
    assert final.values.tolist() == [[1.0, 0.1], [3.0, 0.3]]
    assert final.values.dtype == np.float64
    assert store.final_values(run.id).trial_index.tolist() == [3]


def test_policies_are_registered_once(store: Store) -> None:
    store.add_policy("lamps", "1", weights_sha256="a" * 64, training_tables=["t1"], score=math.nan)
    (policy,) = store.policies()
    assert math.isnan(policy.score)
    assert list(policy.training_tables) == ["t1"]
    with pytest.raises(StoreError, match="exists already"):
        store.add_policy("lamps", "1", weights_sha256="b", training_tables=[], score=0.0)


def test_threads_share_a_store(store: Store) -> None:
    run = started(store, n=40)

    def work(first: int) -> None:
        for trial in range(first, 40, 4):
            complete(store, decide(store, run, trial, 0))
            store.run(run.name)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert [d.seq for d in store.decisions(run.id)] == list(range(1, 41))
