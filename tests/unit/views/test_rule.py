from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.linear import concatenated, kmeans, lloyd, unit_rows
from lamps_plugins._views.masks import missing_mask
from lamps_plugins._views.rule import ClassMeans, softmax
from lamps_plugins._views.toy import toy_views


def views(n: int = 60) -> tuple[ViewData, np.ndarray]:
    data, truth = toy_views(0, n=n)
    mask = missing_mask("sample-rate", 0.7, n, data.n_views, 0)
    return dataclasses.replace(data, mask=mask), truth


def test_distances_equal_those_by_hand() -> None:
    data, truth = views()
    rule = ClassMeans.fit(data, truth)
    found = rule.distances(data)
    for i in (0, 7, 31):
        for k in range(3):
            parts = []
            for v in np.flatnonzero(data.mask[i]):
                own = data.mask[:, v] & (truth == k)
                mean = data.arrays[v][own].mean(axis=0)
                parts.append(((data.arrays[v][i] - mean) ** 2).mean())
            assert found[i, k] == pytest.approx(np.mean(parts), rel=1e-4)


def test_labels_of_clear_clusters_are_assigned_again() -> None:
    data, truth = views()
    labels, soft = ClassMeans.fit(data, truth).assign(data)
    assert (labels == truth).mean() > 0.95
    assert (soft.argmax(axis=1) == labels).all()
    assert soft.sum(axis=1) == pytest.approx(1.0, abs=1e-5)


def test_a_cluster_without_rows_is_never_assigned() -> None:
    data, truth = views()
    four = dataclasses.replace(data, n_clusters=4)
    labels, soft = ClassMeans.fit(four, truth).assign(four)
    assert labels.max() <= 2
    assert not soft[:, 3].any()


def test_a_cluster_that_never_shows_a_view_takes_the_overall_mean_there() -> None:
    data, truth = views()
    mask = data.mask.copy()
    mask[:] = True
    mask[truth == 0, 1] = False
    cut = dataclasses.replace(data, mask=mask)
    rule = ClassMeans.fit(cut, truth)
    overall = cut.arrays[1][mask[:, 1]].mean(axis=0)
    assert rule.means[1][0] == pytest.approx(overall, abs=1e-5)


def test_softmax_survives_large_and_infinite_scores() -> None:
    found = softmax(np.array([[1e4, 0.0, -np.inf], [0.0, 0.0, 0.0]]))
    assert found[0].tolist() == [1.0, 0.0, 0.0]
    assert found[1] == pytest.approx(1 / 3)


def test_wide_views_weigh_as_much_as_narrow_ones() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(4000, d)).astype(np.float32) for d in (2, 50)]
    x = concatenated(parts)
    assert (x[:, :2] ** 2).sum(axis=1).mean() == pytest.approx(1.0, abs=0.1)
    assert (x[:, 2:] ** 2).sum(axis=1).mean() == pytest.approx(1.0, abs=0.1)
    assert (concatenated(parts, by_size=False)[:, 2:] == parts[1]).all()


def test_fewer_distinct_rows_than_clusters_leave_clusters_empty() -> None:
    x = np.repeat(np.eye(2, dtype=np.float32), 30, axis=0)
    labels, centres = kmeans(x, 5, np.random.default_rng(0))
    assert len(np.unique(labels)) == 2
    assert centres.shape == (5, 2)
    again, _ = lloyd(x, centres[:2], 5)
    assert (again == labels).all()


def test_rows_of_zeros_stay_when_rows_get_length_1() -> None:
    found = unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    assert found.tolist() == [[0.6, 0.8], [0.0, 0.0]]
