"""Laws that every direct method obeys, on views with clear clusters and half of the rows cut."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from lamps_plugins._views.data import ViewData, standardised
from lamps_plugins._views.masks import missing_mask
from lamps_plugins._views.metrics import accuracy, ari
from lamps_plugins._views.toy import toy_views

from ._direct import DIRECT, clustered

RESTLESS = ("lfimvc", "simcadc")
"""Far from any optimum on the toy: what they find depends on where they begin."""


def views(n: int = 120, protocol: str = "sample-rate") -> tuple[ViewData, np.ndarray]:
    data, truth = toy_views(1, n=n)
    mask = missing_mask(protocol, 0.5, n, data.n_views, 0)
    return dataclasses.replace(data, mask=mask), truth


def junk(data: ViewData) -> ViewData:
    rng = np.random.default_rng(1)
    arrays = [
        np.where(data.mask[:, v, None], a, 1e6 * rng.normal(size=a.shape)).astype(np.float32)
        for v, a in enumerate(data.arrays)
    ]
    return dataclasses.replace(data, arrays=tuple(arrays))


@pytest.mark.parametrize("name", DIRECT)
def test_what_stands_in_hidden_cells_does_not_count(name: str) -> None:
    data, _ = views()
    first, second = (clustered(name, standardised(d)) for d in (data, junk(data)))
    assert (first.labels == second.labels).all()
    assert (first.embedding == second.embedding).all()


@pytest.mark.parametrize("name", [n for n in DIRECT if n not in RESTLESS])
def test_clear_clusters_are_found(name: str) -> None:
    data, truth = views()
    found = clustered(name, standardised(data))
    assert accuracy(truth, found.labels) > 0.9
    assert len(found.embedding) == 120
    if found.soft is not None:
        assert found.soft.sum(axis=1) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("name", [n for n in DIRECT if n not in RESTLESS])
def test_the_order_of_rows_does_not_count(name: str) -> None:
    data, _ = views()
    order = np.random.default_rng(2).permutation(data.n)
    first = clustered(name, standardised(data)).labels
    moved = clustered(name, standardised(data).take(order)).labels
    assert ari(first[order], moved) > 0.9


@pytest.mark.parametrize("name", [n for n in DIRECT if n not in (*RESTLESS, "single-view-kmeans")])
def test_the_order_of_views_does_not_count(name: str) -> None:
    data, _ = views()
    first = clustered(name, standardised(data)).labels
    moved = clustered(name, standardised(data).only([2, 0, 1])).labels
    assert ari(first, moved) > 0.9


@pytest.mark.parametrize("name", DIRECT)
def test_repeated_rows_narrow_views_and_no_complete_row_are_no_error(name: str) -> None:
    data, _ = views(60, "no-complete")
    twice = data.take(np.r_[np.arange(60), np.arange(30)])
    narrow = dataclasses.replace(twice, arrays=(*twice.arrays[:2], twice.arrays[2][:, :1]))
    found = clustered(name, standardised(narrow))
    assert found.labels.shape == (90,)
    assert np.isfinite(found.embedding).all()


@pytest.mark.parametrize("name", DIRECT)
def test_a_seed_fixes_the_labels(name: str) -> None:
    data, _ = views()
    first, second = (clustered(name, standardised(data), seed=3) for _ in range(2))
    assert (first.labels == second.labels).all()


@pytest.mark.parametrize(
    "name", ["mean-impute-kmeans", "knn-impute", "soft-impute", "ridge-impute"]
)
def test_observed_cells_are_never_overwritten(name: str) -> None:
    data, _ = views()
    data = standardised(data)
    found = clustered(name, data).imputed
    assert found is not None
    for v, (array, filled) in enumerate(zip(data.arrays, found, strict=True)):
        seen = data.mask[:, v]
        assert filled[seen] == pytest.approx(array[seen], abs=1e-5)
