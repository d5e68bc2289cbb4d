"""Pareto maths: laws first, then oracles by brute force, then every edge case by name."""

from __future__ import annotations

import itertools
import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lamps import pareto
from lamps.errors import ProblemError
from lamps.pareto import Floats

LARGEST = sys.float_info.max
NAN, INF = math.nan, math.inf
Values = st.SearchStrategy[Floats]


def grids(low: int = 0, high: int = 5, max_m: int = 4, max_n: int = 8) -> Values:
    """Small integer points: many ties, duplicates and dominated ones."""
    shape = st.tuples(st.integers(0, max_n), st.integers(1, max_m))
    return shape.flatmap(
        lambda s: arrays(np.float64, s, elements=st.integers(low, high).map(float))
    )


ANY = st.floats() | st.sampled_from([0.0, -0.0, NAN, INF, -INF, 1e308, -1e308, 5e-324, LARGEST])


def any_values(max_n: int = 8) -> Values:
    shape = st.tuples(st.integers(0, max_n), st.integers(1, 6))
    return shape.flatmap(lambda s: arrays(np.float64, s, elements=ANY))


def dominates(a: Floats, b: Floats) -> bool:
    return bool((a <= b).all() and (a < b).any())


def brute_front(values: Floats) -> list[bool]:
    finite = [r for r in values if np.isfinite(r).all()]
    return [
        bool(np.isfinite(row).all()) and not any(dominates(o, row) for o in finite)
        for row in values
    ]


def brute_volume(values: Floats, reference: Floats) -> float:
    """Inclusion and exclusion over all subsets of boxes."""
    boxes = [r for r in np.unique(values, axis=0) if (r < reference).all()]
    total = 0.0
    for size in range(1, len(boxes) + 1):
        for subset in itertools.combinations(boxes, size):
            corner = np.max(subset, axis=0)
            total -= (-1.0) ** size * float(np.prod(reference - corner))
    return total


# --- laws -------------------------------------------------------------------------------------


@given(any_values())
def test_front_is_what_nothing_dominates(values: Floats) -> None:
    assert pareto.is_nondominated(values).tolist() == brute_front(values)


@given(any_values())
def test_ranks_are_fronts_peeled_one_by_one(values: Floats) -> None:
    expected = np.full(len(values), -1)
    left = np.flatnonzero(np.isfinite(values).all(axis=1))
    for level in itertools.count():
        if not len(left):
            break
        front = np.array(brute_front(values[left]))
        expected[left[front]] = level
        left = left[~front]
    assert pareto.ranks(values).tolist() == expected.tolist()


@given(grids())
def test_volume_is_that_of_inclusion_and_exclusion(values: Floats) -> None:
    reference = np.full(values.shape[1], 4.0)
    assert pareto.hypervolume(values, reference) == brute_volume(values, reference)


@given(grids(low=0, high=3, max_m=3))
def test_volume_is_the_number_of_dominated_cells(values: Floats) -> None:
    """On integers, the volume counts the unit cells above a point."""
    cells = itertools.product(range(3), repeat=values.shape[1])
    count = sum(any((row <= cell).all() for row in values) for cell in cells)
    assert pareto.hypervolume(values, [3.0] * values.shape[1]) == count


@given(grids(), st.randoms(use_true_random=False))
def test_volume_ignores_order_duplicates_and_dominated_points(
    values: Floats, random: object
) -> None:
    reference = np.full(values.shape[1], 6.0)
    volume = pareto.hypervolume(values, reference)
    order = list(range(len(values)))
    random.shuffle(order)  # type: ignore[attr-defined]
    assert pareto.hypervolume(values[order], reference) == pytest.approx(volume)
    assert pareto.hypervolume(np.repeat(values, 2, axis=0), reference) == pytest.approx(volume)
    worse = np.concatenate([values, values + 1.0, np.full_like(values, 9.0)])
    assert pareto.hypervolume(worse, reference) == pytest.approx(volume)
    front = values[pareto.is_nondominated(values)]
    assert pareto.hypervolume(front, reference) == pytest.approx(volume)


@given(grids(max_n=6), st.integers(0, 6))
def test_volume_never_shrinks_when_points_are_added(values: Floats, keep: int) -> None:
    reference = np.full(values.shape[1], 5.0)
    some = pareto.hypervolume(values[:keep], reference)
    assert some <= pareto.hypervolume(values, reference) * (1 + 1e-12)


@given(grids(), st.integers(-1000, 1000), st.sampled_from([0.25, 2.0, 8.0]))
def test_volume_moves_and_scales_with_its_points(values: Floats, by: int, scale: float) -> None:
    reference = np.full(values.shape[1], 6.0)
    volume = pareto.hypervolume(values, reference)
    moved = pareto.hypervolume(values + by, reference + by)
    assert moved == pytest.approx(volume)
    scaled = pareto.hypervolume(values * scale, reference * scale)
    assert scaled == pytest.approx(volume * scale ** values.shape[1])


@given(grids(), st.lists(st.booleans(), min_size=4, max_size=4))
def test_flipping_twice_changes_nothing(values: Floats, flips: list[bool]) -> None:
    directions = ["maximize" if f else "minimize" for f in flips[: values.shape[1]]]
    once = pareto.to_minimization(values, directions)  # type: ignore[arg-type]
    assert (pareto.to_minimization(once, directions) == values).all()  # type: ignore[arg-type]
    assert pareto.is_nondominated(once).sum() >= min(len(values), 1)


@given(any_values())
def test_reference_point_is_worse_than_every_finite_point(values: Floats) -> None:
    """Strictly, for negative, tiny and huge values too; and it can be stored and used."""
    reference = pareto.reference_point(values)
    assert np.isfinite(reference).all()
    rows = values[np.isfinite(values).all(axis=1)]
    # Nothing is worse than the largest float; a point that holds it adds no volume.
    assert ((rows < reference) | (rows == LARGEST)).all()
    assert pareto.hypervolume(values, reference) >= 0.0


def test_volume_beside_the_largest_float_is_a_number() -> None:
    values = [[1.0, 0.0, 1.48569681e308, 0.0, 0.0], [0.0] * 5]
    reference = pareto.reference_point(values)
    assert np.isfinite(pareto.hypervolume(values, reference))


@given(any_values())
def test_extreme_rows_and_front_keep_the_reference_point(values: Floats) -> None:
    reference = pareto.reference_point(values)
    keep = np.union1d(np.flatnonzero(pareto.is_nondominated(values)), pareto.extreme_rows(values))
    assert pareto.reference_point(values[keep]).tolist() == reference.tolist()
    assert len(pareto.extreme_rows(values)) <= 2 * values.shape[1]


@given(grids(max_n=12))
def test_reference_point_moves_outward_by_a_tenth(values: Floats) -> None:
    if len(values):
        span = values.max(axis=0) - values.min(axis=0)
        moved = pareto.reference_point(values) - values.max(axis=0)
        assert (moved[span > 0] == pytest.approx(0.1 * span[span > 0])) or not (span > 0).any()


@given(any_values())
def test_crowding_is_a_number_and_ends_are_infinite(values: Floats) -> None:
    distance = pareto.crowding_distance(values)
    rank = pareto.ranks(values)
    assert not np.isnan(distance).any()
    assert (distance >= 0).all()
    assert (distance[rank == -1] == 0).all()
    for level in range(rank.max(initial=-1) + 1):
        assert np.isinf(distance[rank == level]).any()


@given(any_values())
def test_no_input_is_written_to(values: Floats) -> None:
    values.flags.writeable = False
    before = values.tobytes()
    for call in (
        pareto.is_nondominated,
        pareto.ranks,
        pareto.reference_point,
        pareto.extreme_rows,
        pareto.crowding_distance,
        pareto.finite_rows,
        lambda v: pareto.hypervolume(v, np.ones(v.shape[1])),
    ):
        call(values)
    assert values.tobytes() == before


# --- six objectives against a random estimate ---------------------------------------------------


def test_six_objectives_agree_with_monte_carlo() -> None:
    rng = np.random.default_rng(5)
    points = rng.uniform(0, 1, (12, 6))
    draws = rng.uniform(0, 1, (200_000, 6))
    hit = np.zeros(len(draws), dtype=bool)
    for point in points:
        hit |= (point <= draws).all(axis=1)
    error = 4 * math.sqrt(hit.mean() * (1 - hit.mean()) / len(draws))
    assert abs(pareto.hypervolume(points, np.ones(6)) - hit.mean()) < error


# --- edges by name -------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 2, 3, 6])
def test_no_rows(m: int) -> None:
    empty = np.empty((0, m))
    assert pareto.is_nondominated(empty).tolist() == []
    assert pareto.ranks(empty).tolist() == []
    assert pareto.crowding_distance(empty).tolist() == []
    assert pareto.extreme_rows(empty).tolist() == []
    assert pareto.reference_point(empty).tolist() == [1.0] * m
    assert pareto.hypervolume(empty, [1.0] * m) == 0.0
    assert pareto.hypervolume([], [1.0] * m) == 0.0
    assert pareto.to_minimization([], ["minimize"] * m).shape == (0, m)


@pytest.mark.parametrize("m", [1, 2, 6])
def test_one_point(m: int) -> None:
    point = np.full((1, m), 2.0)
    assert pareto.is_nondominated(point).tolist() == [True]
    assert pareto.ranks(point).tolist() == [0]
    assert pareto.reference_point(point) == pytest.approx(np.full(m, 2.2))
    assert pareto.hypervolume(point, np.full(m, 4.0)) == 2.0**m
    assert pareto.extreme_rows(point).tolist() == [0]
    assert np.isinf(pareto.crowding_distance(point)).all()


def test_one_objective() -> None:
    column = [[3.0], [1.0], [NAN], [1.0], [2.0]]
    assert pareto.is_nondominated(column).tolist() == [False, True, False, True, False]
    assert pareto.ranks(column).tolist() == [2, 0, -1, 0, 1]
    assert pareto.hypervolume(column, [4.0]) == 3.0


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_rows_that_are_not_finite_never_count(bad: float) -> None:
    values = [[1.0, 2.0], [bad, 0.0], [0.0, bad]]
    assert pareto.is_nondominated(values).tolist() == [True, False, False]
    assert pareto.ranks(values).tolist() == [0, -1, -1]
    assert pareto.hypervolume(values, [3.0, 3.0]) == 2.0
    assert pareto.reference_point(values) == pytest.approx([1.1, 2.2])
    assert pareto.extreme_rows(values).tolist() == [0]
    assert pareto.is_nondominated(values[1:]).tolist() == [False, False]
    assert pareto.reference_point(values[1:]).tolist() == [1.0, 1.0]


def test_duplicates_and_ties_are_kept() -> None:
    values = [[1, 2], [1, 2], [1, 3], [2, 1], [2, 1]]
    assert pareto.is_nondominated(values).tolist() == [True, True, False, True, True]
    assert pareto.ranks(values).tolist() == [0, 0, 1, 0, 0]
    assert pareto.hypervolume(values, [3, 3]) == 3.0


def test_negative_zero_ties_with_zero() -> None:
    assert pareto.is_nondominated([[0.0, 1.0], [-0.0, 1.0]]).tolist() == [True, True]
    assert pareto.ranks([[0.0, 1.0], [-0.0, 1.0]]).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[0.0], [10.0]], [11.0]),
        ([[-10.0], [0.0]], [1.0]),
        ([[-20.0], [-10.0]], [-9.0]),
        ([[5.0], [5.0]], [5.5]),
        ([[-5.0]], [-4.5]),
        ([[0.0]], [0.1]),
    ],
)
def test_reference_point_for_both_signs(values: list[list[float]], expected: list[float]) -> None:
    assert pareto.reference_point(values) == pytest.approx(expected)


def test_reference_point_of_a_maximised_objective_is_below_its_worst() -> None:
    values = pareto.to_minimization([[0.6, 1.0], [0.8, 2.0]], ["maximize", "minimize"])
    assert -pareto.reference_point(values)[0] == pytest.approx(0.58)


def test_points_on_the_reference_add_nothing() -> None:
    assert pareto.hypervolume([[0, 3], [3, 0], [4, 1]], [3, 3]) == 0.0


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_reference_that_is_not_finite_is_refused(bad: float) -> None:
    with pytest.raises(ProblemError, match="not finite"):
        pareto.hypervolume([[1, 2]], [1.0, bad])


@pytest.mark.parametrize(
    ("values", "columns", "text"),
    [
        ([1.0, 2.0], None, r"shape \(2,\), expected \[n, m\]"),
        ([[[1.0]]], None, "shape"),
        ([[1.0, 2.0]], 3, "2 columns, expected 3"),
        (np.zeros((2, 32)), None, "32 objectives, at most 31"),
    ],
)
def test_wrong_shapes_are_refused(values: object, columns: int | None, text: str) -> None:
    with pytest.raises(ProblemError, match=text):
        pareto.as_values(values, columns)  # type: ignore[arg-type]


def test_crowding_by_hand() -> None:
    """Deb et al. 2002, III-B: the sum over objectives of the gap between neighbours."""
    values = [[0.0, 10.0], [1.0, 6.0], [4.0, 5.0], [10.0, 0.0], [11.0, 11.0]]
    expected = [INF, 4 / 10 + 5 / 10, 9 / 10 + 6 / 10, INF, INF]
    assert pareto.crowding_distance(values) == pytest.approx(expected)


def test_normalized_maps_the_ends_and_survives_a_range_of_zero() -> None:
    values = [[0.0, 5.0], [10.0, 5.0], [5.0, 5.0]]
    scaled = pareto.normalized(values, [0, 5], [10, 5])
    assert scaled.tolist() == [[0, 0], [1, 0], [0.5, 0]]
    huge = pareto.normalized([[-1e308], [0.0], [1e308]], [-1e308], [1e308])
    assert huge.reshape(-1) == pytest.approx([0, 0.5, 1])


def test_volumes_beyond_the_largest_float_are_infinite() -> None:
    """1e308 is a value that a method may return; its front must still be printable."""
    values = [[-1e308, 0.0, 1e308], [1e308, -1e308, 0.0]]
    reference = pareto.reference_point(values)
    assert pareto.hypervolume(values, reference) == INF
    assert pareto.hypervolume([[-1e308]], [1e308]) == INF
    # The box is beyond the largest float, the front in it is not.
    flat = [[0.0, 1e200 * (1 - 1e-9)], [1e200 * (1 - 1e-9), 0.0]]
    assert pareto.hypervolume(flat, [1e200, 1e200]) == INF
    assert pareto.hypervolume([[0.0, 1.0], [1e308, 0.0]], [1.5e308, 1.5]) == pytest.approx(
        1.25e308
    )


def test_crowding_of_the_largest_range() -> None:
    values = [[-1e308, 1.5e308], [0.0, 0.0], [1e308, -1.5e308]]
    assert pareto.crowding_distance(values) == pytest.approx([INF, 2.0, INF])


def test_ten_thousand_points_in_a_blink() -> None:
    import time

    values = np.random.default_rng(0).uniform(size=(10_000, 3))
    started = time.perf_counter()
    front = pareto.is_nondominated(values)
    assert time.perf_counter() - started < 1.0
    assert 10 < front.sum() < 1000
