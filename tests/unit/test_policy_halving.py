"""Asynchronous halving and Hyperband: rungs, quotas, brackets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamps import policy as policies
from lamps.policy import STOP, Observation, Policy
from lamps.policy.hyperband import bracket_sizes
from lamps.policy.mo_asha import best_first, rung_levels
from lamps.testing.pools import Curves, Make, play

DOUBLING = np.array([0.0, 0.0625, 0.125, 0.25, 0.5, 1.0])


def named(text: str) -> Make:
    def make(seed: int) -> Policy:
        return policies.make(text, seed=seed)

    return make


# --- rungs ---------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    k=st.integers(1, 30),
    eta=st.floats(1.1, 6.0),
    n=st.integers(1, 500),
    seed=st.integers(0, 99),
)
def test_rungs_are_at_least_eta_apart(k: int, eta: float, n: int, seed: int) -> None:
    shares = np.sort(np.random.default_rng(seed).uniform(0.001, 1, k))
    shares /= shares[-1]
    levels = rung_levels(shares, eta, n)
    assert levels[-1] == k - 1
    assert (np.diff(levels) > 0).all()
    assert (shares[levels[1:]] / shares[levels[:-1]] >= eta * (1 - 1e-6)).all()
    assert eta ** (len(levels) - 1) <= n * (1 + 1e-6), "nobody would be left at the top"


def test_rungs_of_doubling_landmarks() -> None:
    assert rung_levels(DOUBLING, 2.0, 100).tolist() == [1, 2, 3, 4, 5]
    assert rung_levels(DOUBLING, 3.0, 100).tolist() == [1, 3, 5]
    assert rung_levels(DOUBLING, 4.0, 100).tolist() == [1, 3, 5]
    assert rung_levels(DOUBLING, 3.0, 3).tolist() == [3, 5]
    assert rung_levels(DOUBLING, 3.0, 2).tolist() == [5]
    assert rung_levels(np.array([1.0]), 3.0, 9).tolist() == [0]


def test_the_best_come_first() -> None:
    values = np.array([[2.0, 2.0], [np.nan, 0.0], [1.0, 0.0], [0.0, 1.0], [3.0, 3.0]])
    order = best_first(values, np.arange(5)).tolist()
    assert set(order[:2]) == {2, 3}
    assert order[2:] == [0, 4, 1]


# --- mo-asha -------------------------------------------------------------------------------------


def test_a_third_of_each_rung_is_promoted() -> None:
    """With one worker and one objective, rungs hold n, n/3, n/9 trials; a mistake costs extra."""
    curves = Curves.falling(27, 6, 1, seed=0)
    seen = play(named("mo-asha"), curves).seen
    held = [int((seen.landmark >= level).sum()) for level in (1, 3, 5)]
    assert held[0] == 27
    assert 9 <= held[1] <= 16
    assert 3 <= held[2] <= held[1] / 2
    assert seen.complete[np.argmin(curves.values[:, 1, 0])]


def test_it_promotes_before_the_rung_is_full() -> None:
    """That is what asynchronous means: something is finished before everybody has started."""
    curves = Curves.falling(27, 6, 2, seed=0)
    started = play(named("mo-asha"), curves).started
    finished = next(i for i in range(len(started)) if started[: i + 1].count(started[i]) == 6)
    assert len(set(started[:finished])) < 27


@pytest.mark.parametrize("workers", [1, 3])
def test_losers_stay_behind_unless_they_are_admitted_again(workers: int) -> None:
    curves = Curves.falling(20, 5, 2, seed=2)
    assert not play(named("mo-asha"), curves, workers=workers).seen.complete.all()
    again = play(named("mo-asha(readmit=1)"), curves, workers=workers)
    assert again.seen.complete.all()
    plain = play(named("mo-asha"), curves).started
    again = play(named("mo-asha(readmit=1)"), curves)
    assert again.started[: len(plain)] == plain, "it differs before the classical rule stops"


def test_small_pools_finish_somebody() -> None:
    for n in (1, 2, 3, 4):
        assert play(named("mo-asha"), Curves.falling(n, 5, 2, seed=n)).seen.complete.any()


def test_failed_trials_leave_their_rung() -> None:
    """Of three at a rung, one has been promoted and fails: the next best takes its place."""
    seen = Observation.empty(3, DOUBLING, 1)
    for level in range(4):
        seen.values[:, level, 0] = [0.0, 1.0, 2.0]
    seen.landmark[:] = 3
    policy = policies.make("mo-asha")
    assert policy.propose(seen, seen.mask) == 0
    seen.failed[0] = True
    assert policy.propose(seen, seen.mask) == 1
    seen.values[1, 4:, 0], seen.landmark[1] = 1.0, 5
    assert policy.propose(seen, seen.mask) == STOP


# --- hyperband -----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 3000), rungs=st.integers(1, 8), eta=st.floats(1.5, 5.0))
def test_brackets_divide_the_pool(n: int, rungs: int, eta: float) -> None:
    sizes = bracket_sizes(n, rungs, eta)
    assert len(sizes) == rungs
    assert sum(sizes) == n
    assert min(sizes) >= 0
    if n > 50 * rungs and eta >= 3:
        assert (np.diff(sizes) <= 1).all(), "hasty brackets are no smaller, up to rounding"


def test_the_last_bracket_finishes_all_of_its_trials() -> None:
    curves = Curves.falling(44, 6, 2, seed=0)
    seen = play(named("hyperband"), curves, seed=4).seen
    sizes = bracket_sizes(44, 3, 3.0)
    order = np.random.default_rng(4).permutation(44)
    first, second, last = np.split(order, np.cumsum(sizes)[:-1])
    assert seen.complete[last].all()
    assert seen.complete[second].sum() == len(second) // 3
    assert seen.complete[first].sum() == len(first) // 9
    assert (seen.landmark[first] >= 3).sum() == len(first) // 3


def test_each_rung_keeps_its_best() -> None:
    curves = Curves.falling(44, 6, 1, seed=1)
    seen = play(named("hyperband"), curves, seed=4).seen
    first = np.random.default_rng(4).permutation(44)[: bracket_sizes(44, 3, 3.0)[0]]
    went_on = seen.landmark[first] > 1
    at_rung = curves.values[first, 1, 0]
    assert at_rung[went_on].max() < at_rung[~went_on].min()


def test_free_workers_begin_the_next_bracket() -> None:
    """A rung of three waits for its last one; the other workers are not left idle."""
    curves = Curves.falling(30, 5, 2, seed=5)
    actions = play(named("hyperband"), curves, workers=8).actions
    assert len([a for a in actions if a >= 0]) > 30
    assert actions[:20].count(-2) == 0
