"""Expected hypervolume improvement against its definition, and what the policy makes of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamps import pareto
from lamps import policy as policies
from lamps.pareto import Floats
from lamps.policy import STOP, WAIT, Observation
from lamps.policy.ehvi import expected_improvement, psi
from lamps.testing.pools import Curves, play


def gained(front: Floats, point: Floats, reference: Floats) -> float:
    """The definition, for a known point."""
    both = np.vstack([front, point[None]])
    return pareto.hypervolume(both, reference) - pareto.hypervolume(front, reference)


def simulated(mean: Floats, spread: Floats, front: Floats, reference: Floats, n: int) -> float:
    """The definition, by drawing the point."""
    rng = np.random.default_rng(1)
    draws = mean + spread * rng.standard_normal((n, len(mean)))
    return float(np.mean([gained(front, point, reference) for point in draws]))


# --- oracles -------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(m=st.sampled_from([1, 2]), seed=st.integers(0, 10_000), f=st.integers(0, 8))
def test_without_spread_it_is_the_improvement(m: int, seed: int, f: int) -> None:
    """Also for points beyond the reference, dominated ones and copies of the front."""
    rng = np.random.default_rng(seed)
    front, reference = rng.integers(0, 6, (f, m)).astype(float), np.full(m, 5.0)
    points = np.vstack([rng.integers(-1, 7, (6, m)).astype(float), front])
    got = expected_improvement(points, np.zeros(points.shape), front, reference)
    want = [gained(front, point, reference) for point in points]
    np.testing.assert_allclose(got, want, atol=1e-9)


@pytest.mark.parametrize("m", [1, 2])
def test_the_closed_forms_agree_with_drawing(m: int) -> None:
    rng = np.random.default_rng(m)
    front, reference = rng.uniform(0.2, 0.9, (5, m)), np.ones(m)
    mean, spread = rng.uniform(0, 1, (4, m)), rng.uniform(0.05, 0.3, (4, m))
    got = expected_improvement(mean, spread, front, reference)
    want = [simulated(mean[i], spread[i], front, reference, 2000) for i in range(4)]
    np.testing.assert_allclose(got, want, rtol=0.15, atol=2e-3)


@pytest.mark.parametrize("m", [3, 4, 6])
def test_the_integral_agrees_with_the_definition(m: int) -> None:
    """On average over the points drawn: the estimate has no bias to speak of."""
    rng = np.random.default_rng(m)
    front, reference = rng.uniform(0.3, 0.9, (6, m)), np.ones(m)
    points = rng.uniform(0.1, 0.6, (5, m))
    got = np.mean(
        [
            expected_improvement(
                points,
                np.zeros(points.shape),
                front,
                reference,
                rng=np.random.default_rng(seed),
            )
            for seed in range(40)
        ],
        axis=0,
    )
    want = [gained(front, point, reference) for point in points]
    np.testing.assert_allclose(got, want, rtol=0.1, atol=1e-4)


def test_tiny_corners_are_found() -> None:
    """Each point is best at one objective alone: the volumes are 1e-5 of the box."""
    points = 1.0 - np.eye(6)
    got = expected_improvement(points, np.zeros((6, 6)), points[:1], np.full(6, 1.1))
    assert got[0] == 0.0
    np.testing.assert_allclose(got[1:], 1.1 * 0.1**5 - 0.1**6, rtol=0.4)


# --- laws ----------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(m=st.integers(1, 5), seed=st.integers(0, 10_000))
def test_a_longer_front_leaves_less_to_gain(m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    front, reference = rng.uniform(size=(6, m)), np.ones(m)
    mean, spread = rng.uniform(size=(8, m)), rng.uniform(0, 0.3, (8, m))
    long = expected_improvement(mean, spread, front, reference)
    short = expected_improvement(mean, spread, front[:3], reference)
    assert (long >= 0).all()
    slack = 1e-12 if m <= 2 else 0.6 * short.max() + 1e-6
    assert (long <= short + slack).all()


@settings(max_examples=40, deadline=None)
@given(bound=st.floats(-5, 5), mean=st.floats(-5, 5), spread=st.floats(0, 3))
def test_psi_lies_between_its_bounds(bound: float, mean: float, spread: float) -> None:
    value = float(psi(np.array([bound]), np.array([mean]), np.array([spread]))[0])
    assert value >= max(bound - mean, 0.0) - 1e-12
    assert value <= max(bound - mean, 0.0) + 0.4 * spread + 1e-12


def test_nobody_is_beyond_the_reference() -> None:
    mean = np.full((3, 4), 2.0)
    none = expected_improvement(mean, np.zeros((3, 4)), np.empty((0, 4)), np.ones(4))
    assert none.tolist() == [0.0, 0.0, 0.0]


# --- the policy ----------------------------------------------------------------------------------


def half_way(ends: Floats, cost: Floats) -> Observation:
    """Constant curves at half of the effort, so that their ends are known. Shape: [n, m], [n]."""
    seen = Observation.empty(len(ends), np.array([0.0, 0.25, 0.5, 1.0]), ends.shape[1])
    seen.landmark[:] = 2
    seen.values[:, :3] = ends[:, None]
    seen.cost_s[:, :3] = cost[:, None] * np.array([0.0, 0.25, 0.25])
    return seen


def finish(seen: Observation, trial: int) -> None:
    seen.landmark[trial] = 3
    seen.values[trial, 3] = seen.values[trial, 2]
    seen.cost_s[trial, 3] = 2 * seen.cost_s[trial, 2]


def test_the_best_gain_per_second_goes_first() -> None:
    ends = np.array([[0.0, 1.0], [1.0, 0.0], [0.4, 0.4], [1.0, 1.0]])
    seen = half_way(ends, np.array([1.0, 1.0, 1.0, 1.0]))
    finish(seen, 0)
    finish(seen, 1)
    policy = policies.make("ehvi")
    assert policy.propose(seen, seen.mask) == 2
    finish(seen, 2)
    assert policy.propose(seen, seen.mask) == STOP  # nobody gains by what is dominated


def test_cost_decides_between_equal_gains() -> None:
    ends = np.array([[0.5, 0.5], [0.2, 0.8], [0.8, 0.2]])
    seen = half_way(ends, np.array([1.0, 5.0, 1.0]))
    finish(seen, 0)
    assert policies.make("ehvi").propose(seen, seen.mask) == 2


def test_workers_do_not_go_for_the_same_gap() -> None:
    """What is under way counts with its predicted end."""
    ends = np.array([[0.0, 1.0], [1.0, 0.0], [0.3, 0.3], [0.3, 0.31]])
    seen = half_way(ends, np.ones(4))
    finish(seen, 0)
    finish(seen, 1)
    seen.in_flight[2] = True
    assert policies.make("ehvi").propose(seen, seen.mask) == WAIT


def test_a_higher_threshold_stops_earlier() -> None:
    curves = Curves.falling(30, 6, 2, seed=3)
    spent = [
        len(play(lambda seed, g=gain: policies.make(f"ehvi(gain={g})", seed=seed), curves).started)
        for gain in (0.0, 0.01, 0.3)
    ]
    assert spent[0] >= spent[1] >= spent[2]
    assert spent[0] > spent[2]


@pytest.mark.parametrize("m", [2, 3])
def test_it_finds_most_of_the_front_for_part_of_the_cost(m: int) -> None:
    curves = Curves.falling(40, 7, m, seed=m)
    seen = play(lambda seed: policies.make("ehvi", seed=seed), curves).seen
    ends = curves.values[:, -1]
    reference = pareto.reference_point(ends)
    best = pareto.hypervolume(ends, reference)
    assert pareto.hypervolume(ends[seen.complete], reference) > 0.97 * best
    assert np.nansum(seen.cost_s) < 0.95 * curves.cost_s.sum()
