"""Scores of searches: laws of the curves, and cases that can be done by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from lamps import policy as policies
from lamps.policy.recorded import Recorded, recorded
from lamps.policy.scoring import curve, target_of
from lamps.policy.simulate import simulate
from lamps.tables import LandmarkTable
from lamps.testing.pools import Curves
from lamps.types import Objective


def pool(n: int = 10, k: int = 4, m: int = 2, seed: int = 0, failing: float = 0.0) -> Recorded:
    made = Curves.falling(n, k, m, seed=seed, failing=failing)
    values = made.values.copy()
    for i, at in enumerate(made.fails_at):
        values[i, at:] = np.nan
    return Recorded(
        "made-up",
        "made-up",
        tuple("abcdef"[:m]),
        values,
        made.cost_s,
        np.ones(made.cost_s.shape, dtype=bool),
        np.linspace(0, 1, k),
        made.size,
        tuple(f"c{i}" for i in range(n)),
    )


def two(error: tuple[float, float] = (0.1, 0.3)) -> Recorded:
    """Two trials of two landmarks; the second is cheaper, smaller and worse."""
    values = np.array([[[0.9, 2.0], [error[0], 2.0]], [[0.9, 1.0], [error[1], 1.0]]])
    cost = np.array([[1.0, 9.0], [1.0, 4.0]])
    return Recorded(
        "two", "two", ("error", "size"), values, cost, np.ones((2, 2), dtype=bool),
        np.array([0.0, 1.0]), np.array([2.0, 1.0]), ("a", "b"),
    )  # fmt: skip


def test_a_search_by_hand() -> None:
    record = two()
    target = target_of(record)
    assert target.exhaustive_s == 15.0
    assert target.n_front == 2
    # In units of the range the finals are (0, 1) and (1, 0), the reference is (1.1, 1.1).
    assert target.optimum == pytest.approx(1.1 * 0.1 + 0.1 * 1.1 - 0.1 * 0.1)
    trace = simulate(policies.make("smallest-first"), record)
    assert trace.trial.tolist() == [1, 1, 0, 0]
    assert trace.at_s.tolist() == [1.0, 5.0, 6.0, 15.0]
    found = curve(trace, record, target)
    assert found.at_s.tolist() == [5.0, 15.0]
    assert found.share[0] == pytest.approx(0.11 / 0.21)
    assert found.time_to(0.99) == 15.0
    assert found.area(15.0) == pytest.approx((10 * 0.11 / 0.21) / 15)


def test_unfinished_trials_can_count_as_they_stood_untouched() -> None:
    record = two(error=(0.1, 0.9))  # the small one gains nothing by training
    target = target_of(record)
    trace = simulate(policies.make("exhaustive"), record)
    finished = curve(trace, record, target)
    zero = curve(trace, record, target, zero_shot=True)
    assert zero.time_to(0.3) <= finished.time_to(0.3)
    assert zero.final == pytest.approx(1.0)
    assert finished.final == pytest.approx(1.0)


@pytest.mark.parametrize("workers", [1, 2, 8])
@pytest.mark.parametrize("name", ["exhaustive", "random", "front-racing", "lamps"])
def test_the_share_only_grows_and_ends_at_one(name: str, workers: int) -> None:
    record = pool(14, failing=0.2)
    target = target_of(record)
    trace = simulate(policies.make(name), record, workers=workers, spend=True)
    found = curve(trace, record, target)
    assert (np.diff(found.share) >= -1e-12).all()
    assert found.final == pytest.approx(1.0)
    assert (np.diff(found.at_s) >= 0).all()
    assert 0 <= found.area(target.exhaustive_s) <= 1
    assert found.end_s <= target.exhaustive_s + 1e-9


def test_more_workers_never_take_longer_in_sum() -> None:
    record = pool(20)
    ends = [
        simulate(policies.make("exhaustive"), record, workers=w).at_s[-1] for w in (1, 2, 8, 64)
    ]
    assert ends[0] == pytest.approx(record.cost_s.sum())
    assert all(a >= b for a, b in itertools.pairwise(ends))
    assert ends[3] >= record.cost_s.sum(axis=1).max() - 1e-9


def test_a_level_that_is_never_reached_takes_forever() -> None:
    record = two()
    trace = simulate(policies.make("front-racing(first=1,depth=0)"), record)
    found = curve(trace, record, target_of(record))
    assert math.isinf(found.time_to(1.01))


def test_a_pool_where_nothing_can_be_finished_has_nothing_to_find() -> None:
    record = two(error=(math.nan, math.nan))
    target = target_of(record)
    assert target.optimum == 0
    assert target.n_front == 0
    trace = simulate(policies.make("exhaustive"), record)
    assert curve(trace, record, target).final == 0.0


def test_order_of_candidates_does_not_change_what_there_is_to_find() -> None:
    record = pool(12, m=3)
    order = np.random.default_rng(1).permutation(12)
    assert target_of(record.rows(order)).optimum == pytest.approx(target_of(record).optimum)


def test_gaps_in_curves_cost_nothing_and_repeat_the_value() -> None:
    """Two candidates with grids of their own."""
    nan = math.nan
    table = LandmarkTable(
        "t",
        ("a", "b"),
        (Objective("e"),),
        np.array([0.0, 0.3, 0.5, 1.0]),
        np.array([[[3.0], [2.0], [nan], [1.0]], [[4.0], [nan], [2.5], [nan]]]),
        np.array([[1.0, 2.0, nan, 5.0], [1.0, nan, 4.0, nan]]),
        np.array([[True, True, False, True], [True, False, True, False]]),
        np.array([nan, nan]),
    )
    found = recorded(table)
    assert found.values[0, :, 0].tolist() == [3.0, 2.0, 2.0, 1.0]
    assert found.cost_s[0].tolist() == [1.0, 2.0, 0.0, 5.0]
    assert found.measured.tolist() == [[True] * 4, [True, True, True, False]]
    assert found.last_level.tolist() == [3, 2]
    assert found.whole.tolist() == [True, False]


def test_maximised_objectives_are_flipped_once() -> None:
    table = LandmarkTable(
        "t",
        ("a",),
        (Objective("acc", "1", "maximize"), Objective("e")),
        np.array([0.0, 1.0]),
        np.array([[[0.5, 2.0], [0.9, 1.0]]]),
        np.ones((1, 2)),
        np.ones((1, 2), dtype=bool),
        np.array([1.0]),
    )
    assert recorded(table).values[0, 1].tolist() == [-0.9, 1.0]
    assert recorded(table, ["e"]).objectives == ("e",)
    assert recorded(table, most_landmarks=2).values.shape == (1, 2, 2)
