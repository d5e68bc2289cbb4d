from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lamps_plugins._views.data import ViewData, standardised
from lamps_plugins._views.masks import missing_mask
from lamps_plugins._views.toy import toy_views
from lamps_plugins.multi_view_clustering import _impute
from sklearn.impute import KNNImputer


def views(seed: int, n: int, protocol: str = "sample-rate") -> ViewData:
    data, _ = toy_views(seed, n=n)
    mask = missing_mask(protocol, 0.6, n, data.n_views, seed)
    return standardised(dataclasses.replace(data, mask=mask))


@given(seed=st.integers(0, 50), n=st.integers(10, 60), k=st.integers(1, 8))
@settings(max_examples=25, deadline=None)
def test_nearest_rows_are_those_of_scikit_learn(seed: int, n: int, k: int) -> None:
    data = views(seed, n)
    table = np.concatenate(data.arrays, axis=1).astype(np.float64)
    table[~np.repeat(data.mask, data.dims, axis=1)] = np.nan
    expected = KNNImputer(n_neighbors=k).fit_transform(table)
    assert np.concatenate(_impute.knn(data, k), axis=1) == pytest.approx(expected, abs=1e-4)


def test_rows_are_imputed_alike_in_any_portion(monkeypatch: pytest.MonkeyPatch) -> None:
    data = views(0, 60)
    whole = _impute.knn(data, 5)
    monkeypatch.setattr(_impute, "_ROWS_AT_ONCE", 7)
    for a, b in zip(whole, _impute.knn(data, 5), strict=True):
        assert (a == b).all()


def test_views_that_no_row_shares_get_the_mean() -> None:
    data, _ = toy_views(0, n=20)
    mask = np.zeros((20, 3), bool)
    mask[:10, 0] = mask[10:, 1] = True
    data = dataclasses.replace(data, mask=mask).only([0, 1])
    filled = _impute.knn(data, 3)
    assert filled[1][:10] == pytest.approx(
        np.tile(data.arrays[1][10:].mean(axis=0), (10, 1)), abs=1e-5
    )


def test_low_rank_views_are_completed() -> None:
    rng = np.random.default_rng(0)
    whole = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 30))
    mask = missing_mask("sample-rate", 0.5, 200, 3, 0)
    arrays = tuple(whole[:, a : a + 10].astype(np.float32) for a in (0, 10, 20))
    data = ViewData(names=("a", "b", "c"), arrays=arrays, mask=mask, n_clusters=2)
    filled = np.concatenate(_impute.soft(data, 0.01, 600), axis=1)
    hidden = ~np.repeat(mask, 10, axis=1)
    error = np.linalg.norm((filled - whole)[hidden]) / np.linalg.norm(whole[hidden])
    assert error < 0.1


def test_linear_views_are_predicted() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5))
    arrays = (x.astype(np.float32), (x @ rng.normal(size=(5, 4))).astype(np.float32))
    mask = missing_mask("sample-rate", 0.5, 300, 2, 0)
    data = standardised(ViewData(names=("a", "b"), arrays=arrays, mask=mask, n_clusters=2))
    whole = standardised(
        ViewData(names=("a", "b"), arrays=arrays, mask=np.ones_like(mask), n_clusters=2)
    )
    filled = _impute.ridge(data, 1e-6)
    hidden = ~mask[:, 1]
    error = filled[1][hidden] - whole.arrays[1][hidden]
    assert np.abs(error).mean() < 0.1  # scaled by observed rows, so not to the last digit


@pytest.mark.parametrize(("rows", "features"), [(30, 8), (8, 30)])
def test_both_forms_of_ridge_agree(rows: int, features: int) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(rows, features)), rng.normal(size=(rows, 2))
    new = rng.normal(size=(3, features))
    centred = x - x.mean(axis=0)
    penalty = 0.5 * rows / features
    beta = np.linalg.solve(
        centred.T @ centred + penalty * np.eye(features), centred.T @ (y - y.mean(axis=0))
    )
    expected = (new - x.mean(axis=0)) @ beta + y.mean(axis=0)
    assert _impute._ridge(x, y, new, 0.5) == pytest.approx(expected)


@pytest.mark.parametrize("shape", [(20, 6), (6, 20)])
def test_lowering_singular_values_is_the_full_decomposition(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).normal(size=shape)
    left, values, right = np.linalg.svd(x, full_matrices=False)
    expected = (left * np.maximum(values - 2.0, 0.0)) @ right
    assert _impute.shrunk(x, 2.0) == pytest.approx(expected)
    assert not _impute.shrunk(np.zeros(shape), 0.0).any()
