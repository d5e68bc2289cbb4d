"""The oracle finishes the true front and nothing else, and only where hindsight exists."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamps import pareto
from lamps import policy as policies
from lamps.errors import ConfigError, ProblemError
from lamps.pareto import Floats
from lamps.policy import Hindsight, Observation, Policy, Pool
from lamps.tables import LandmarkTable
from lamps.testing.pools import Curves, Make, play
from lamps.types import Objective


def oracle(**options: int) -> Make:
    text = ",".join(f"{k}={v}" for k, v in options.items())

    def make(seed: int) -> Policy:
        return policies.make(f"oracle({text})", seed=seed)

    return make


def truth(curves: Curves) -> Floats:
    """[n] bool: on the front of those that can finish."""
    sound = curves.fails_at == curves.values.shape[1]
    return pareto.is_nondominated(np.where(sound[:, None], curves.values[:, -1], np.nan))


# --- laws ----------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(1, 20),
    k=st.integers(2, 6),
    m=st.integers(1, 5),
    workers=st.integers(1, 4),
    seed=st.integers(0, 999),
    zero_shot=st.integers(0, 1),
)
def test_exactly_the_front_is_finished(
    n: int, k: int, m: int, workers: int, seed: int, zero_shot: int
) -> None:
    curves = Curves.falling(n, k, m, seed=seed, failing=0.3)
    seen = play(oracle(zero_shot=zero_shot), curves, workers=workers).seen
    assert np.array_equal(seen.complete, truth(curves))
    others = seen.landmark[~seen.complete]
    alive = ~seen.failed[~seen.complete]
    assert (others[alive] == zero_shot - 1).all(), "somebody was trained in vain"


@settings(max_examples=15, deadline=None)
@given(m=st.integers(1, 4), seed=st.integers(0, 999))
def test_each_step_gains_most_a_second(m: int, seed: int) -> None:
    """Against the definition, recomputed at every trial that is begun."""
    curves = Curves.falling(12, 4, m, seed=seed)
    started = play(oracle(zero_shot=0), curves).started
    ends, cost = curves.values[:, -1], curves.cost_s.sum(axis=1)
    reference = pareto.reference_point(ends)
    done: list[int] = []
    left = set(np.flatnonzero(truth(curves)).tolist())
    for trial in dict.fromkeys(started):
        before = pareto.hypervolume(ends[done], reference)
        rate = {
            i: (pareto.hypervolume(ends[[*done, i]], reference) - before) / cost[i] for i in left
        }
        assert rate[trial] >= max(rate.values()) * (1 - 1e-6)
        done.append(trial)
        left.remove(trial)
    assert not left


def test_no_policy_that_must_learn_the_front_is_cheaper() -> None:
    """It finishes the front, so whoever finds all of it has spent no less."""
    curves = Curves.falling(25, 6, 2, seed=1)
    spent = np.nansum(play(oracle(), curves).seen.cost_s)
    for name in ("exhaustive", "front-racing(depth=9)"):
        seen = play(lambda seed, n=name: policies.make(n, seed=seed), curves).seen
        assert seen.complete[truth(curves)].all()
        assert np.nansum(seen.cost_s) >= spent


def test_duplicates_of_the_front_are_members() -> None:
    curves = Curves.falling(4, 3, 2, seed=0)
    twins = Curves(
        np.repeat(curves.values[:1], 4, axis=0),
        curves.cost_s,
        curves.size,
        curves.fails_at,
        curves.candidates,
    )
    assert play(oracle(), twins).seen.complete.all()


# --- refusals ------------------------------------------------------------------------------------


def test_a_live_search_has_no_oracle() -> None:
    rule = policies.make("oracle")
    with pytest.raises(ConfigError, match="only a replay of a landmark table does") as caught:
        rule.prepare(Pool(("a", "b")))
    assert "\n" not in str(caught.value)
    seen = Observation.empty(2, np.array([0.0, 1.0]), 1)
    with pytest.raises(ConfigError, match="only a replay"):
        rule.propose(seen, seen.mask)


def test_another_pool_is_noticed() -> None:
    rule = policies.make("oracle")
    rule.prepare(Curves.falling(3, 2, 1).pool())
    seen = Observation.empty(2, np.array([0.0, 1.0]), 1)
    with pytest.raises(ConfigError, match="prepared for 3 trials, but the pool has 2"):
        rule.propose(seen, seen.mask)


# --- hindsight from tables -----------------------------------------------------------------------


def small_table() -> LandmarkTable:
    values = np.array([[[0.5, 10.0], [0.9, 20.0]], [[0.1, 1.0], [np.nan, np.nan]]])
    return LandmarkTable(
        name="small",
        candidates=("x", "y"),
        objectives=(Objective("accuracy", direction="maximize"), Objective("seconds", "s")),
        fidelities=np.array([0.0, 1.0]),
        values=values,
        cost_s=np.array([[1.0, 2.0], [3.0, np.nan]]),
        measured=np.isfinite(values).all(axis=2),
        size=np.full(2, np.nan),
    )


def test_hindsight_is_minimised_and_in_the_order_of_the_trials() -> None:
    seen = Hindsight.of_table(small_table(), ["y", "x"], ["seconds", "accuracy"], [0.0, 1.0])
    assert seen.values[1].tolist() == [[10.0, -0.5], [20.0, -0.9]]
    assert seen.values[0, 0].tolist() == [1.0, -0.1]
    assert seen.cost_s[1].tolist() == [1.0, 2.0]
    assert seen.finishes.tolist() == [False, True]


def test_hindsight_of_what_a_table_lacks_is_refused() -> None:
    with pytest.raises(ConfigError, match="no objective 'bytes', only"):
        Hindsight.of_table(small_table(), ["x"], ["bytes"], [0.0, 1.0])
    with pytest.raises(ProblemError, match="no candidate 'z'"):
        Hindsight.of_table(small_table(), ["z"], ["seconds"], [0.0, 1.0])
