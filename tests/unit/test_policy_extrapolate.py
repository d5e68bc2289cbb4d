"""Finish the predicted front: who is on it, who is next, when it stops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamps import pareto
from lamps import policy as policies
from lamps.policy import STOP, WAIT, Observation
from lamps.policy.extrapolate import first_landmarks, unbeaten
from lamps.testing.pools import Curves, play

DOUBLING = np.array([0.0, *0.5 ** np.arange(7.0, -1.0, -1.0)])


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 15), m=st.integers(1, 4), seed=st.integers(0, 10_000))
def test_without_doubt_it_is_the_pareto_front(n: int, m: int, seed: int) -> None:
    ends = np.random.default_rng(seed).integers(0, 4, (n, m)).astype(float)
    ends[0] = np.nan
    assert np.array_equal(unbeaten(ends, ends), pareto.is_nondominated(ends))


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 15), m=st.integers(1, 4), seed=st.integers(0, 10_000))
def test_doubt_spares_more(n: int, m: int, seed: int) -> None:
    """Against the definition, pair by pair; who is spared with less doubt is spared with more."""
    rng = np.random.default_rng(seed)
    ends, spread = rng.uniform(size=(n, m)), rng.uniform(size=(n, m))
    few, many = (unbeaten(ends, ends - doubt * spread) for doubt in (0.2, 1.0))
    assert not (few & ~many).any()
    hopes = ends - spread
    for i in range(n):
        beaten = [
            bool((ends[j] <= hopes[i]).all() and (ends[j] < hopes[i]).any()) for j in range(n)
        ]
        assert many[i] == (not any(beaten))


def test_everybody_gets_the_first_landmarks() -> None:
    seen = Observation.empty(2, DOUBLING, 1)
    assert first_landmarks(0, seen) == 5  # 0, 1/128, 1/64, 1/32, 1/16
    assert first_landmarks(3, seen) == 3
    assert first_landmarks(50, seen) == 9
    assert first_landmarks(0, Observation.empty(2, np.array([0.0, 0.5, 1.0]), 1)) == 2
    assert first_landmarks(0, Observation.empty(2, np.linspace(0, 1, 30), 1)) == 10
    assert first_landmarks(0, Observation.empty(2, np.ones(1), 1)) == 1


@pytest.mark.parametrize("name", ["extrapolate(first=2)", "ehvi(first=2)"])
def test_breadth_comes_before_depth(name: str) -> None:
    curves = Curves.falling(12, 5, 2, seed=0)
    started = play(lambda seed: policies.make(name, seed=seed), curves).started
    assert sorted(started[:24]) == sorted([*range(12), *range(12)])
    cheap_first = np.argsort(curves.size)
    assert started[:12] == cheap_first.tolist()


def flat(ends: list[list[float]], cost: list[float]) -> Observation:
    """Curves that never move, half way; costs are seconds of a full run."""
    values = np.array(ends)
    seen = Observation.empty(len(values), np.array([0.0, 0.25, 0.5, 1.0]), values.shape[1])
    seen.landmark[:] = 2
    seen.values[:, :3] = values[:, None]
    seen.cost_s[:, :3] = np.array(cost)[:, None] * np.array([0.0, 0.25, 0.25])
    return seen


def test_the_cheapest_of_the_front_is_next_and_then_it_stops() -> None:
    seen = flat([[0, 2], [1, 1], [2, 0], [2, 2]], [3.0, 1.0, 2.0, 0.1])
    policy = policies.make("extrapolate")
    for trial in (1, 2, 0):
        assert policy.propose(seen, seen.mask) == trial
        seen.landmark[trial] = 3
        seen.values[trial, 3] = seen.values[trial, 2]
    assert policy.propose(seen, seen.mask) == STOP


def test_it_waits_for_what_may_change_the_front() -> None:
    seen = flat([[0, 2], [1, 1], [2, 2]], [1.0, 1.0, 1.0])
    seen.landmark[0] = 3
    seen.values[0, 3] = seen.values[0, 2]
    seen.in_flight[1] = True
    assert policies.make("extrapolate").propose(seen, seen.mask) == WAIT


def test_failed_trials_beat_nobody() -> None:
    seen = flat([[0, 0], [1, 1]], [1.0, 1.0])
    seen.failed[0] = True
    assert policies.make("extrapolate").propose(seen, seen.mask) == 1


def test_a_curve_that_falls_late_is_followed() -> None:
    """Worse than the other so far, but still falling fast: it is on the predicted front."""
    seen = Observation.empty(2, DOUBLING, 1)
    slow = 0.30 + 0.02 * (DOUBLING + 0.01) ** -0.2
    fast = 0.05 + 0.10 * (DOUBLING + 0.05) ** -0.6
    seen.values[..., 0] = [slow, fast]
    seen.landmark[:] = 5
    assert fast[5] > slow[5] > fast[-1]
    assert policies.make("extrapolate(doubt=0)").propose(seen, seen.mask) == 1
