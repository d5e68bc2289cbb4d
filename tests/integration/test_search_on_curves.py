"""Searches on recorded curves: laws that hold for every backend and policy."""

from __future__ import annotations

from pathlib import Path

import pytest

import lamps
from lamps import policy as policies
from lamps.errors import ConfigError, ProblemError, StateError, StoreError
from lamps.scheduler.progress import Progress
from lamps.types import Budget, Candidate


def curve(name: str, **params: object) -> Candidate:
    return Candidate("replay", "curve-replay", {"curve": name, **params})  # type: ignore[dict-item]


@pytest.mark.parametrize("policy", policies.names())
@pytest.mark.parametrize("backend", ["local", "replay"])
def test_every_policy_finds_the_front(
    policy: str, backend: str, curves: Path, store_url: str
) -> None:
    run = lamps.search(
        problem=f"replay:{curves}", policy=policy, backend=backend, store=store_url, name="r"
    )
    found = {m.candidate.params["curve"] for m in run.front()}
    # These throw losers away for good, as their papers do, and may lose a member with them.
    hasty = policy in ("mo-asha", "hyperband")
    assert found & {"a", "b"} if hasty else found >= {"a", "b"}
    assert run.record.state == "finished"
    assert lamps.open_store(store_url).check() == []


def test_exhaustive_front_is_that_of_the_table(curves: Path, store_url: str) -> None:
    run = lamps.search(
        problem=f"replay:{curves}", policy="exhaustive", backend="replay", store=store_url
    )
    assert [m.candidate.params["curve"] for m in run.front()] == ["b", "a", "d"]
    assert run.record.spent_wall_s == pytest.approx(8.0)
    assert run.record.reference_point == pytest.approx((0.8 + 0.06, 3 + 0.25))


def test_workers_shorten_simulated_time(curves: Path, store_url: str) -> None:
    run = lamps.search(
        problem=f"replay:{curves}",
        policy="exhaustive",
        backend="replay",
        workers=2,
        store=store_url,
    )
    assert run.record.spent_wall_s == pytest.approx(4.0)


def test_replay_equals_live(curves: Path, store_url: str) -> None:
    choices = []
    for backend in ("local", "replay"):
        # The learned policy looks at measured seconds, which no two runs share.
        run = lamps.search(
            problem=f"replay:{curves}",
            policy="front-racing",
            backend=backend,
            store=store_url,
            name=backend,
        )
        choices.append([(d.trial_index, d.landmark) for d in run.decisions()])
    assert choices[0] == choices[1]


@pytest.mark.parametrize("policy", policies.names())
def test_stop_and_resume_decides_as_without(policy: str, curves: Path, store_url: str) -> None:
    """12 landmarks = 5 + resume 7: the same decisions with one worker.

    The features' hash is left out: it holds the share of the budget, and the budgets differ.
    """
    common = {"problem": f"replay:{curves}", "policy": policy, "backend": "replay"}
    whole = lamps.search(
        **common, store=store_url, name="whole", seed=3, budget=Budget(landmarks=12)
    )
    parts = lamps.search(
        **common, store=store_url, name="parts", seed=3, budget=Budget(landmarks=5)
    )
    assert parts.record.state == "exhausted"
    assert parts.record.n_decisions == 5
    parts = lamps.resume("parts", store=store_url, budget=Budget(landmarks=12))
    want = [(d.seq, d.trial_index, d.landmark, d.policy, d.seed) for d in whole.decisions()]
    got = [(d.seq, d.trial_index, d.landmark, d.policy, d.seed) for d in parts.decisions()]
    assert got == want
    assert [m.index for m in parts.front()] == [m.index for m in whole.front()]


@pytest.mark.parametrize("policy", policies.names())
def test_interrupted_and_resumed_sees_and_decides_the_same(
    policy: str, curves: Path, store_url: str
) -> None:
    """Byte-equal decisions, the hash of what the policy saw included."""
    common = {"problem": f"replay:{curves}", "policy": policy, "backend": "replay", "seed": 3}
    whole = lamps.search(**common, store=store_url, name="whole")
    ended: list[str] = []

    def interrupt(progress: Progress) -> None:
        if progress.event == "ok":
            ended.append(progress.event)
            if len(ended) == 5:
                raise KeyboardInterrupt

    parts = lamps.search(**common, store=store_url, name="parts", listener=interrupt)
    assert parts.record.state == "interrupted"
    parts = lamps.resume("parts", store=store_url)
    assert [d.choice for d in parts.decisions()] == [d.choice for d in whole.decisions()]


def test_budgets_bound_what_they_name(curves: Path, store_url: str) -> None:
    common = {"problem": f"replay:{curves}", "policy": "exhaustive", "backend": "replay"}
    run = lamps.search(**common, store=store_url, budget=Budget(trials=2))
    assert run.record.counts == {"complete": 2, "waiting": 2}
    run = lamps.search(**common, store=store_url, budget=Budget(wall_s=3.0))
    assert run.record.counts["complete"] == 1
    assert run.outcome is not None
    assert run.outcome.reason == "budget used up: 3 wall seconds"


def test_a_finished_run_has_nothing_to_resume(curves: Path, store_url: str) -> None:
    lamps.search(problem=f"replay:{curves}", backend="replay", store=store_url, name="r")
    with pytest.raises(StateError, match="finished"):
        lamps.resume("r", store=store_url)


def test_changed_data_is_refused_on_resume(curves: Path, store_url: str) -> None:
    lamps.search(
        problem=f"replay:{curves}",
        backend="replay",
        store=store_url,
        name="r",
        budget=Budget(landmarks=2),
    )
    curves.write_text(curves.read_text().replace("0.9,1", "0.91,1", 1))
    with pytest.raises(ProblemError, match="has changed since the run began"):
        lamps.resume("r", store=store_url, budget=Budget(landmarks=9))


def test_faults_of_methods_fail_their_trial_only(curves: Path, store_url: str) -> None:
    pool = [
        curve("a"),
        curve("b", fault="raise"),
        curve("b", fault="exit"),
        curve("b", fault="nan"),
        curve("b", fault="inf"),
        curve("b", fault="text"),
        curve("b", fault="nothing"),
        curve("c", fault="huge"),
    ]
    run = lamps.search(
        problem=f"replay:{curves}",
        candidates=pool,
        policy="exhaustive",
        backend="local",
        store=store_url,
    )
    trials = run.trials()
    assert [t.state for t in trials] == ["complete", *["failed"] * 6, "complete"]
    errors = [(t.error or "").split("\n")[0] for t in trials[1:7]]
    assert errors == [
        "RuntimeError: curve-replay was told to raise",
        "the method called sys.exit(7)",
        "MethodFailed: not finite: error=nan, mb=nan",
        "MethodFailed: not finite: error=inf, mb=inf",
        "ContractError: curve-replay returned error='n/a', expected a number",
        "ContractError: curve-replay returned None from evaluate, expected an Evaluation",
    ]
    # Earlier landmarks of a failed trial are kept, the failed one is stored as it was measured.
    assert [e.state for e in trials[3].evaluations] == ["ok", "failed"]
    assert str(trials[3].evaluations[1].values["error"]) == "nan"
    assert trials[7].evaluations[1].values["error"] == 1e308
    assert lamps.open_store(store_url).check() == []


def test_all_failed_has_no_best(curves: Path, store_url: str) -> None:
    run = lamps.search(
        problem=f"replay:{curves}",
        candidates=[curve("a", fault="raise", fault_at=0), curve("b", fault="raise", fault_at=0)],
        backend="local",
        store=store_url,
    )
    assert len(run.front()) == len(run.front(unfinished=True)) == 0
    assert run.outcome is not None
    assert run.outcome.n_failed == 2


def test_damaged_checkpoint_costs_time_not_the_trial(curves: Path, store_url: str) -> None:
    options = {"problem": f"replay:{curves}", "backend": "local", "policy": "exhaustive"}
    run = lamps.search(**options, store=store_url, name="r", budget=Budget(landmarks=2))
    checkpoint = run.trials()[0].checkpoint
    assert checkpoint is not None
    path = Path(checkpoint.uri)
    path.write_bytes(path.read_bytes()[:20])
    run = lamps.resume("r", store=store_url, budget=Budget(landmarks=4))
    assert run.trials()[0].state == "complete"
    assert run.trials()[0].evaluations[-1].values["error"] == 0.30


def test_only_the_newest_checkpoint_is_kept(curves: Path, store_url: str, tmp_path: Path) -> None:
    run = lamps.search(problem=f"replay:{curves}", backend="local", store=store_url)
    files = list((tmp_path / "lamps-artifacts").rglob("*.*"))
    kept = {t.checkpoint.uri for t in run.trials() if t.checkpoint}
    assert {str(f) for f in files} == kept


def test_names_are_refused_or_kept_whatever_they_hold(curves: Path, store_url: str) -> None:
    name = ("ä/ö/../日本語 🙂 " * 20)[:200]
    problem = f"replay:{curves}"
    run = lamps.search(
        problem=problem, policy="exhaustive", backend="local", store=store_url, name=name
    )
    assert lamps.open_store(store_url).run(name).name == name
    assert all(t.state == "complete" for t in run.trials() if t.checkpoint)
    with pytest.raises(StoreError, match="resume"):
        lamps.search(problem=f"replay:{curves}", backend="local", store=store_url, name=name)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"methods": ["curve-repley"]}, LookupError, "Did you mean 'curve-replay'"),
        ({"policy": "front-racin"}, LookupError, "Did you mean 'front-racing'"),
        ({"policy": "front-racing(deep=1)"}, ConfigError, "deep"),
        ({"objectives": ["errror"]}, ProblemError, "error"),
        ({"backend": "lokal"}, LookupError, "Did you mean 'local'"),
        ({"budget": "soon"}, ConfigError, "30m"),
        ({"samples": 0}, ConfigError, "samples"),
        ({"target": "x"}, ConfigError, "no option 'target'"),
        ({"params": {"curve-replay": {"sleep": 1}}}, ConfigError, "sleep_s"),
        ({"problem": "replay:nowhere.csv"}, ProblemError, "nowhere.csv"),
        ({"problem": "repley:x"}, LookupError, "Did you mean 'replay'"),
        ({"problem": None}, ConfigError, "Families"),
        ({"backend": "local", "workers": 3}, ConfigError, "one landmark at a time"),
    ],
)
def test_bad_requests_are_refused_before_anything_is_stored(
    change: dict[str, object],
    error: type[Exception],
    text: str,
    curves: Path,
    store_url: str,
) -> None:
    options: dict[str, object] = {"problem": f"replay:{curves}", "backend": "replay"}
    with pytest.raises(error, match=text) as caught:
        lamps.search(**(options | change), store=store_url)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert lamps.open_store(store_url).runs() == []
