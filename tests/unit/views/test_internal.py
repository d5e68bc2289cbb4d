from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lamps_plugins._views.internal import internal_score, view_separation
from lamps_plugins._views.toy import toy_views


def blobs(seed: int, n: int = 90, spread: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    x = np.eye(3)[y] + spread * rng.normal(size=(n, 3))
    return x.astype(np.float32), y.astype(np.int64)


@given(st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_the_order_of_rows_and_the_names_of_clusters_do_not_count(seed: int) -> None:
    x, y = blobs(seed)
    rng = np.random.default_rng(seed)
    order, names = rng.permutation(len(y)), rng.permutation(3)
    first, moved = internal_score(y, x, 3), internal_score(names[y][order], x[order], 3)
    assert first.silhouette == pytest.approx(moved.silhouette, abs=1e-9)
    assert first.stability == pytest.approx(moved.stability, abs=1e-9)
    assert first.separation == pytest.approx(moved.separation, abs=1e-9)
    assert 0.0 <= first.total <= 1.0


def test_clear_clusters_score_higher_than_blurred_ones_and_those_than_noise() -> None:
    (x, y), (blurred, z) = blobs(0, spread=0.05), blobs(0, spread=0.5)
    rng = np.random.default_rng(0)
    clear = internal_score(y, x, 3).total
    middle = internal_score(z, blurred, 3).total
    noise = internal_score(rng.permutation(y), x, 3).total
    assert clear > middle > noise


def test_what_holds_no_clusters_scores_0() -> None:
    x, y = blobs(1)
    assert internal_score(np.zeros_like(y), x, 3).total == 0.0
    assert internal_score(y, np.ones_like(x), 3).total == 0.0
    assert internal_score(np.arange(4), x[:4], 4).total == 0.0


def test_more_rows_than_it_looks_at() -> None:
    x, y = blobs(2, n=2600)
    order = np.random.default_rng(0).permutation(len(y))
    first, moved = internal_score(y, x, 3), internal_score(y[order], x[order], 3)
    assert first.total == pytest.approx(moved.total)


def test_rows_of_zeros_and_repeated_rows_are_no_error() -> None:
    x, y = blobs(3)
    x[:5] = 0.0
    x[10:40] = x[10]
    assert 0.0 <= internal_score(y, x, 3).total <= 1.0


def test_separation_in_the_views_is_one_minus_the_within_share() -> None:
    data, truth = toy_views(0, n=60)
    shares = []
    for array in data.arrays:
        x = array.astype(np.float64)
        within = sum(((x[truth == k] - x[truth == k].mean(0)) ** 2).sum() for k in range(3))
        shares.append(1.0 - within / ((x - x.mean(0)) ** 2).sum())
    assert view_separation(data, truth) == pytest.approx(np.mean(shares))
    assert view_separation(data, np.zeros_like(truth)) == pytest.approx(0.0)
    order = np.random.default_rng(0).permutation(60)
    assert view_separation(data.take(order), truth[order]) == pytest.approx(np.mean(shares))


def test_separation_in_the_views_looks_at_observed_rows_only() -> None:
    data, truth = toy_views(0, n=60)
    mask = np.ones((60, 3), bool)
    mask[30:, 1] = False
    cut = dataclasses.replace(data, mask=mask)
    alone = view_separation(data.take(np.arange(30)).only([1]), truth[:30])
    others = view_separation(data.only([0, 2]), truth)
    assert view_separation(cut, truth) == pytest.approx((alone + 2 * others) / 3)
    mask = np.zeros((60, 3), bool)
    mask[:, 0] = mask[0, 1] = True
    lone = dataclasses.replace(data, mask=mask)
    assert view_separation(lone, truth) == pytest.approx(view_separation(data.only([0]), truth))
