"""What a run may spend: shares, ends, and the bound on trials that ends nothing."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamps.errors import ConfigError
from lamps.scheduler.budget import Spent
from lamps.types import Budget

seconds = st.floats(0, 1e9)
counts = st.integers(0, 10**6)
bounds = st.none() | st.floats(1e-6, 1e9)
whole = st.none() | st.integers(1, 10**6)
budgets = st.builds(Budget, wall_s=bounds, device_s=bounds, landmarks=whole, trials=whole)
amounts = st.builds(Spent, wall_s=seconds, device_s=seconds, landmarks=counts, trials=counts)


@given(budgets, amounts)
def test_a_run_is_over_exactly_when_a_bound_other_than_trials_is_used_up(
    budget: Budget, spent: Spent
) -> None:
    pairs = [
        (spent.wall_s, budget.wall_s),
        (spent.device_s, budget.device_s),
        (spent.landmarks, budget.landmarks),
    ]
    over = any(bound is not None and used >= bound for used, bound in pairs)
    assert (spent.exhausted(budget) is not None) is over
    may_start = budget.trials is None or spent.trials < budget.trials
    assert spent.may_start_trial(budget) is may_start


@given(budgets, amounts)
def test_the_share_says_how_near_the_end_is(budget: Budget, spent: Spent) -> None:
    share = spent.used_share(budget)
    assert share >= 0
    if spent.exhausted(budget) or not spent.may_start_trial(budget):
        assert share >= 1
    if share < 1:
        assert spent.exhausted(budget) is None


@given(amounts)
def test_without_a_bound_nothing_ends(spent: Spent) -> None:
    assert spent.exhausted(Budget()) is None
    assert spent.used_share(Budget()) == 0.0
    assert spent.may_start_trial(Budget())


@given(budgets, amounts, st.floats(0, 1e6))
def test_spending_more_never_takes_an_end_back(budget: Budget, spent: Spent, more: float) -> None:
    before = spent.used_share(budget)
    ended = spent.exhausted(budget)
    spent.wall_s += more
    spent.landmarks += 1
    assert spent.used_share(budget) >= before
    assert not ended or spent.exhausted(budget)


def test_the_reason_names_bound_and_unit() -> None:
    assert Spent(wall_s=90).exhausted(Budget(wall_s=90)) == "budget used up: 90 wall seconds"
    assert Spent(landmarks=3).exhausted(Budget(landmarks=3)) == "budget used up: 3 landmarks"


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
@pytest.mark.parametrize("name", ["wall_s", "device_s", "landmarks", "trials"])
def test_a_bound_is_positive_and_finite(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"budget {name} is "):
        Budget(**{name: value})
