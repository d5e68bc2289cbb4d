"""Extrapolation of landmark curves: exact where the law holds, cautious where it does not."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamps.errors import ConfigError
from lamps.pareto import Floats
from lamps.policy import Observation
from lamps.policy.curves import KINDS, Kind, extrapolate, predict, remaining_cost_s

SHARES = np.array([0.0, *0.5 ** np.arange(7.0, -1.0, -1.0)])  # 0, 1/128, ..., 1/2, 1
every_kind = pytest.mark.parametrize("kind", KINDS)


def law(exponent: float, offset: float = 0.0, c: float = 0.2, a: float = 0.1) -> Floats:
    """c + a (x + offset)^-b at all shares; the untouched landmark of a power law is far off."""
    return c + a * (np.maximum(SHARES, 0.0 if offset else 1e-3) + offset) ** -exponent


def predicted(curve: Floats, landmark: int, kind: Kind) -> tuple[float, float]:
    mean, spread = extrapolate(curve[None], SHARES, np.array([landmark]), kind)
    return float(mean[0]), float(spread[0])


# --- oracles -------------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [0.1, 0.17, 0.25, 0.4, 0.6, 0.9])
@pytest.mark.parametrize("landmark", [6, 7])
def test_a_power_law_is_recovered(exponent: float, landmark: int) -> None:
    """Off the grid: up to a third of what is still to come, and the spread says so."""
    curve = law(exponent)
    mean, spread = predicted(curve, landmark, "power")
    assert abs(mean - curve[-1]) < 0.35 * (curve[landmark] - curve[-1])
    assert abs(mean - curve[-1]) < 2 * spread


@pytest.mark.parametrize("column", [0, 7, 15, 23])
def test_a_power_law_on_the_grid_is_recovered_exactly(column: int) -> None:
    exponent = np.geomspace(0.1, 2.0, 24)[column]
    curve = law(exponent)
    mean, _ = predicted(curve, 6, "power")
    assert mean == pytest.approx(curve[-1], abs=2e-3 * (curve[6] - curve[-1]))


@pytest.mark.parametrize("offset", np.geomspace(0.003, 0.3, 5)[[1, 2, 3]])
@pytest.mark.parametrize("column", [1, 10, 19])
def test_a_rectified_power_law_on_the_grid_is_recovered_exactly(
    column: int, offset: float
) -> None:
    curve = law(np.geomspace(0.1, 2.0, 24)[column], offset)
    mean, _ = predicted(curve, 7, "rectified")
    assert mean == pytest.approx(curve[-1], abs=0.02 * (curve[7] - curve[-1]))


@pytest.mark.parametrize("offset", [0.01, 0.05, 0.1])
@pytest.mark.parametrize("exponent", [0.2, 0.35, 0.5])
def test_a_rectified_power_law_is_recovered(exponent: float, offset: float) -> None:
    curve = law(exponent, offset)
    mean, spread = predicted(curve, 7, "rectified")
    assert abs(mean - curve[-1]) < 0.5 * (curve[7] - curve[-1])
    assert abs(mean - curve[-1]) < 2 * spread


@pytest.mark.parametrize("exponent", [0.2, 0.5])
def test_the_rectified_law_knows_flat_starts(exponent: float) -> None:
    """Where the start is flat, a plain power law expects too little of what is to come."""
    curve = law(exponent, 0.1)
    plain, _ = predicted(curve, 6, "power")
    rectified, _ = predicted(curve, 6, "rectified")
    assert plain > curve[-1] + 0.5 * (curve[6] - curve[-1])
    assert abs(rectified - curve[-1]) < 0.25 * (curve[6] - curve[-1])


@every_kind
def test_constant_curves_stay(kind: Kind) -> None:
    values = np.repeat(np.array([[3.0], [-1.0], [0.0]]), len(SHARES), axis=1)
    mean, spread = extrapolate(values, SHARES, np.array([1, 4, 7]), kind)
    assert mean.tolist() == [3.0, -1.0, 0.0]
    assert spread.tolist() == [0.0, 0.0, 0.0]


@every_kind
def test_rising_curves_stay_where_they_are(kind: Kind) -> None:
    rising = np.linspace(1.0, 2.0, len(SHARES))
    mean, _ = predicted(rising, 5, kind)
    assert mean == rising[5]


@every_kind
def test_finished_trials_are_worth_what_they_are(kind: Kind) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(5, len(SHARES)))
    mean, spread = extrapolate(values, SHARES, np.full(5, len(SHARES) - 1), kind)
    assert np.array_equal(mean, values[:, -1])
    assert not spread.any()


@every_kind
def test_one_landmark_says_nothing(kind: Kind) -> None:
    """The last value, with the spread of all that was seen in the pool."""
    values = np.array([[1.0] * 9, [4.0] * 9, [2.0] * 9])
    mean, spread = extrapolate(values, SHARES, np.array([0, 0, -1]), kind)
    assert mean[:2].tolist() == [1.0, 4.0]
    assert spread[:2].tolist() == [3.0, 3.0]
    assert np.isnan(mean[2])
    assert np.isnan(spread[2])


# --- laws ----------------------------------------------------------------------------------------


def random_pool(
    seed: int, n: int = 12
) -> tuple[Floats, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    rng = np.random.default_rng(seed)
    k = len(SHARES)
    end = rng.normal(size=(n, 1))
    values = end + rng.uniform(0, 2, (n, 1)) * (1 - SHARES) ** rng.uniform(1, 6, (n, 1))
    values += 0.05 * rng.normal(size=(n, k))
    values[rng.uniform(size=(n, k)) < 0.1] = np.nan
    return values, rng.integers(-1, k, n)


@every_kind
@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    scale=st.sampled_from([1e-9, 0.5, 3.0, 1e12]),
    shift=st.sampled_from([-5.0, 0.0, 0.25, 100.0]),
)
def test_scale_and_shift_go_through(kind: Kind, seed: int, scale: float, shift: float) -> None:
    values, landmark = random_pool(seed)
    mean, spread = extrapolate(values, SHARES, landmark, kind)
    moved, wider = extrapolate((values + shift) * scale, SHARES, landmark, kind)
    # Shifting costs digits, and a sharp likelihood makes something of each of them.
    close = 1e-5 * (1 + abs(shift))
    np.testing.assert_allclose(moved / scale, mean + shift, atol=close, rtol=close)
    np.testing.assert_allclose(wider / scale, spread, atol=close, rtol=close)


@every_kind
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_what_lies_ahead_is_not_read(kind: Kind, seed: int) -> None:
    values, landmark = random_pool(seed)
    ahead = np.arange(values.shape[1]) > landmark[:, None]
    first = extrapolate(values, SHARES, landmark, kind)
    second = extrapolate(np.where(ahead, 1e9, values), SHARES, landmark, kind)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


@every_kind
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_no_curve_is_expected_to_get_worse(kind: Kind, seed: int) -> None:
    values, landmark = random_pool(seed)
    mean, spread = extrapolate(values, SHARES, landmark, kind)
    known = np.isfinite(values) & (np.arange(values.shape[1]) <= landmark[:, None])
    for i in np.flatnonzero(known.any(axis=1)):
        last = values[i, np.flatnonzero(known[i])[-1]]
        assert mean[i] <= last
        gained = np.ptp(values[i][known[i]])
        assert mean[i] >= values[i][known[i]].min() - 3 * gained - 1e-12
        assert spread[i] >= 0


@every_kind
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_rows_may_come_in_any_order(kind: Kind, seed: int) -> None:
    values, landmark = random_pool(seed)
    order = np.random.default_rng(seed).permutation(len(values))
    mean, spread = extrapolate(values, SHARES, landmark, kind)
    moved, wider = extrapolate(values[order], SHARES, landmark[order], kind)
    np.testing.assert_allclose(moved, mean[order], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(wider, spread[order], rtol=1e-6, atol=1e-9)


@every_kind
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_odd_numbers_do_no_harm(kind: Kind, seed: int) -> None:
    """NaN, infinities and the largest floats: an answer for whoever has a finite value."""
    rng = np.random.default_rng(seed)
    odd = [np.nan, np.inf, -np.inf, 1e308, -1e308, 0.0, 1.0, 5e-324]
    values = rng.choice(odd, (6, len(SHARES)))
    landmark = rng.integers(-1, len(SHARES), 6)
    mean, spread = extrapolate(values, SHARES, landmark, kind)
    known = np.isfinite(values) & (np.arange(len(SHARES)) <= landmark[:, None])
    assert np.array_equal(np.isfinite(mean), known.any(axis=1))
    assert np.array_equal(np.isfinite(spread), known.any(axis=1))


@every_kind
def test_the_spread_shrinks_as_landmarks_arrive(kind: Kind) -> None:
    curve = law(0.5, 0.03)
    spreads = [predicted(curve, landmark, kind)[1] for landmark in (4, 6, 7)]
    assert spreads[0] > spreads[1] > spreads[2] > 0


@every_kind
def test_the_spread_is_about_right_under_noise(kind: Kind) -> None:
    """Most ends lie within two spreads, and the spreads are not absurd."""
    rng = np.random.default_rng(0)
    n = 400
    x = np.maximum(SHARES, 1e-3)
    b, c = rng.uniform(0.2, 1.0, (n, 1)), rng.uniform(0, 1, (n, 1))
    truth = c + 0.1 * (x + 0.02) ** -b
    noisy = truth + 0.02 * np.ptp(truth, axis=1, keepdims=True) * rng.normal(size=truth.shape)
    mean, spread = extrapolate(noisy, SHARES, np.full(n, 6), kind)
    off = np.abs(mean - truth[:, -1]) / spread
    assert np.mean(off < 2) > 0.8
    assert np.mean(off < 0.5) < 0.9


def test_extrapolation_beats_the_last_value() -> None:
    rng = np.random.default_rng(1)
    n = 300
    truth = rng.uniform(0, 1, (n, 1)) + 0.1 * (SHARES + 0.03) ** -rng.uniform(0.2, 1.2, (n, 1))
    for landmark, share in ((5, 0.7), (6, 0.4), (7, 0.25)):
        mean, _ = extrapolate(truth, SHARES, np.full(n, landmark), "rectified")
        missed = np.abs(mean - truth[:, -1]).mean()
        assert missed < share * np.abs(truth[:, landmark] - truth[:, -1]).mean()


def test_other_kinds_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"'exponential' are unknown, expected one of"):
        extrapolate(np.zeros((1, 2)), np.array([0.0, 1.0]), np.array([0]), "exponential")  # type: ignore[arg-type]


@every_kind
def test_two_thousand_curves_take_less_than_fifty_milliseconds(kind: Kind) -> None:
    rng = np.random.default_rng(0)
    values, landmark = rng.uniform(size=(2000, 30)), rng.integers(-1, 30, 2000)
    best = np.inf
    for _ in range(5):
        began = time.perf_counter()
        extrapolate(values, np.linspace(0, 1, 30), landmark, kind)
        best = min(best, time.perf_counter() - began)
    assert best < 0.05


# --- pools and costs -----------------------------------------------------------------------------


def test_every_objective_is_extrapolated_on_its_own() -> None:
    seen = Observation.empty(2, SHARES, 2)
    seen.values[..., 0], seen.values[..., 1] = law(0.5), 7.0
    seen.landmark[:] = 6
    mean, spread = predict(seen, "power")
    assert mean[:, 0] == pytest.approx(predicted(law(0.5), 6, "power")[0])
    assert mean[:, 1].tolist() == [7.0, 7.0]
    assert spread[:, 1].tolist() == [0.0, 0.0]


@every_kind
def test_finished_trials_correct_the_law(kind: Kind) -> None:
    """Curves that fall in a straight line look flat early; the finished ones tell."""
    rng = np.random.default_rng(0)
    end = rng.uniform(size=(30, 1))
    line = end + (1.0 + 0.05 * rng.normal(size=(30, 1))) * (1 - SHARES)
    seen = Observation.empty(30, SHARES, 1)
    seen.values[..., 0] = line
    seen.landmark[:] = 5
    alone, _ = predict(seen, kind)
    seen.landmark[:6] = len(SHARES) - 1
    mean, spread = predict(seen, kind)
    left = slice(6, None)
    before = np.abs(alone[left, 0] - end[left, 0]).mean()
    assert np.abs(mean[left, 0] - end[left, 0]).mean() < 0.5 * before
    assert (mean[:6] == line[:6, -1:]).all()
    assert not spread[:6].any()


def test_a_law_that_holds_needs_no_correction() -> None:
    seen = Observation.empty(8, SHARES, 1)
    exponents = np.geomspace(0.1, 2.0, 24)[[1, 4, 7, 10, 13, 16, 19, 22]]
    seen.values[..., 0] = [law(b) for b in exponents]
    seen.landmark[:] = [8, 8, 8, 6, 6, 6, 6, 6]
    mean, _ = predict(seen, "power")
    alone, _ = extrapolate(seen.values[..., 0], SHARES, seen.landmark, "power")
    np.testing.assert_allclose(mean[:, 0], alone, atol=1e-3)


def test_remaining_seconds() -> None:
    seen = Observation.empty(4, np.array([0.0, 0.25, 0.5, 1.0]), 1)
    seen.landmark[:] = [2, 1, -1, 3]
    # 8 seconds a run; 4 a run; unknown: the median of the others; finished: what a step costs.
    seen.cost_s[0, :3], seen.cost_s[1, :2], seen.cost_s[3] = [0.1, 2, 2], [0.1, 1], [0, 1, 1, 2]
    assert remaining_cost_s(seen).tolist() == pytest.approx([4.0, 3.0, 4.0, 1.0])


def test_remaining_seconds_follow_the_size_where_nothing_was_measured() -> None:
    sizes = np.array([1.0, 2.0, 4.0, np.nan])
    seen = Observation.empty(4, np.array([0.0, 0.5, 1.0]), 1, sizes)
    assert remaining_cost_s(seen).tolist() == [0.5, 1.0, 2.0, 1.0]
    seen.landmark[1], seen.cost_s[1, :2] = 1, [0.0, 3.0]
    assert remaining_cost_s(seen).tolist() == [3.0, 3.0, 12.0, 6.0]


def test_nothing_known_costs_the_same_for_all() -> None:
    seen = Observation.empty(3, np.array([0.0, 1.0]), 1)
    assert remaining_cost_s(seen).tolist() == [1.0, 1.0, 1.0]
    assert (remaining_cost_s(Observation.empty(2, np.ones(1), 1)) > 0).all()
