"""What a policy is shown of the pool before its first decision, by the controller."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lamps_plugins.replay._problem import ReplayProblem

import lamps
from lamps.errors import ConfigError
from lamps.method import Problem
from lamps.policy import Pool
from lamps.policy.exhaustive import Exhaustive
from lamps.types import Budget


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Pool]:
    """All pools that the exhaustive policy is prepared with."""
    pools: list[Pool] = []
    monkeypatch.setattr(Exhaustive, "prepare", lambda self, pool: pools.append(pool))
    return pools


def test_the_pool_comes_with_its_hindsight(
    curves: Path, store_url: str, shown: list[Pool]
) -> None:
    run = lamps.search(
        problem=f"replay:{curves}", policy="exhaustive", backend="replay", store=store_url
    )
    (pool,) = shown
    trials = run.trials()
    assert pool.candidates == tuple(t.candidate for t in trials)
    assert pool.labels == tuple(t.candidate.label for t in trials)
    assert pool.hindsight is not None
    assert pool.hindsight.finishes.all()
    for trial in trials:
        last = trial.evaluations[-1].values
        # Both objectives of these curves are minimised, so nothing is flipped.
        assert pool.hindsight.values[trial.index, -1].tolist() == list(last.values())
    assert np.nansum(pool.hindsight.cost_s) == pytest.approx(run.record.spent_wall_s)


def test_hindsight_is_that_of_the_front_objectives(
    curves: Path, store_url: str, shown: list[Pool]
) -> None:
    common = {"problem": f"replay:{curves}", "policy": "exhaustive", "backend": "replay"}
    run = lamps.search(**common, store=store_url)
    (name, *_) = reversed(run.record.front_objectives)
    lamps.search(**common, store=store_url, objectives=[name], name="one")
    both, one = (pool.hindsight for pool in shown)
    assert both is not None
    assert one is not None
    np.testing.assert_array_equal(one.values[..., 0], both.values[..., -1])


def test_a_resumed_search_is_prepared_again(
    curves: Path, store_url: str, shown: list[Pool]
) -> None:
    lamps.search(
        problem=f"replay:{curves}",
        policy="exhaustive",
        backend="replay",
        store=store_url,
        name="r",
        budget=Budget(landmarks=3),
    )
    lamps.resume("r", store=store_url, budget=Budget(landmarks=30))
    first, second = shown
    assert first.candidates == second.candidates
    assert first.hindsight is not None
    assert second.hindsight is not None
    np.testing.assert_array_equal(first.hindsight.values, second.hindsight.values)


def test_a_search_without_a_table_has_no_oracle(
    curves: Path, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run says why it stands still, and another policy is the user's choice."""
    monkeypatch.setattr(ReplayProblem, "landmark_table", Problem.landmark_table)
    with pytest.raises(ConfigError, match="only a replay of a landmark table does"):
        lamps.search(
            problem=f"replay:{curves}", policy="oracle", backend="local", store=store_url, name="r"
        )
    record = lamps.open_store(store_url).run("r").record
    assert record.state == "interrupted"
    assert record.n_decisions == 0


def test_the_oracle_replays_the_front_and_nothing_more(curves: Path, store_url: str) -> None:
    run = lamps.search(
        problem=f"replay:{curves}", policy="oracle", backend="replay", store=store_url
    )
    assert {m.candidate.params["curve"] for m in run.front()} == {"a", "b", "d"}
    assert run.record.counts["complete"] == 3
