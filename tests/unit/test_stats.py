"""Intervals hold what they promise; tests know when nothing differs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamps.stats import bootstrap_interval, index_bootstrap, paired_pvalue

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    """Means of 60 coin flips with a known share: 95 % intervals cover it in about 95 of 100."""
    rng = np.random.default_rng(1)
    hits = {0.95: 0, 0.5: 0}
    rounds = 300
    for _ in range(rounds):
        sample = (rng.uniform(size=60) < 0.3).astype(float)
        for confidence in hits:
            low, high = bootstrap_interval(sample, confidence=confidence, n_resamples=300)
            hits[confidence] += low <= 0.3 <= high
    for confidence, count in hits.items():
        # Percentile intervals are a little short; four standard errors and that allowance.
        slack = 4 * math.sqrt(confidence * (1 - confidence) / rounds) + 0.02
        assert abs(count / rounds - confidence) < slack, (confidence, count)


def test_index_intervals_cover_too() -> None:
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(200):
        sample = rng.normal(1.0, 1.0, 50)
        low, high = index_bootstrap(50, lambda rows, s=sample: float(s[rows].mean()))  # type: ignore[misc]
        hits += low <= 1.0 <= high
    assert 0.88 <= hits / 200 <= 0.99


@given(NUMBERS, st.integers(0, 5))
def test_an_interval_lies_within_its_samples(samples: list[float], seed: int) -> None:
    low, high = bootstrap_interval(samples, n_resamples=50, seed=seed)
    slack = 1e-9 * max(1.0, max(map(abs, samples)))
    assert min(samples) - slack <= low <= high <= max(samples) + slack
    assert (low, high) == bootstrap_interval(samples, n_resamples=50, seed=seed)


@given(st.floats(-1e6, 1e6), st.integers(1, 20))
def test_equal_samples_are_their_own_interval(value: float, n: int) -> None:
    low, high = bootstrap_interval([value] * n)
    assert low == high == pytest.approx(value)


def test_nothing_has_no_interval() -> None:
    assert all(math.isnan(v) for v in bootstrap_interval([]))


def test_another_statistic() -> None:
    low, high = bootstrap_interval(np.arange(101.0), np.median, n_resamples=200)
    assert 30 < low < 50 < high < 70


@given(NUMBERS)
def test_a_sample_does_not_differ_from_itself(samples: list[float]) -> None:
    assert paired_pvalue(samples, samples) == 1.0


def test_paired_values_that_differ_and_that_do_not() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=40)
    assert paired_pvalue(a, a + 1.0) < 1e-6
    assert paired_pvalue(a, a + 1.0) == paired_pvalue(a + 1.0, a)
    assert paired_pvalue([], []) == 1.0
    p = [paired_pvalue(rng.normal(size=20), rng.normal(size=20)) for _ in range(200)]
    assert np.mean(np.array(p) < 0.05) < 0.12
