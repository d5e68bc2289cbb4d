"""What the replication measures with: its front, its growing data, its quadratic opponent."""

from __future__ import annotations

import numpy as np
import pytest
from lamps_plugins._views import metrics
from lamps_plugins.fair_multi_view_clustering._data import builtin
from lamps_plugins.fair_multi_view_clustering._replications import _growth
from lamps_plugins.fair_multi_view_clustering._replications.cdal import (
    RUNS,
    CdalReplication,
    _front,
    views_of,
)

from lamps.plugins import registry
from lamps.replication import Ask


def test_it_is_found_beside_its_method() -> None:
    found = registry("").load_replication("fair-multi-view-clustering", "cdal")
    assert isinstance(found, CdalReplication)
    assert [c.id for c in found.claims if c.control] == ["N3", "N1", "N2"]
    assert len(found.seeds("quick")) == 5


def test_every_run_has_params_in_range() -> None:
    for kind, params in RUNS.values():
        kind.from_params(params)


def test_a_front_leaves_out_what_another_point_beats() -> None:
    points = {"a": (1.0, 0.0), "b": (0.5, 0.5), "c": (0.4, 0.5), "d": (0.5, 0.5), "e": (0.0, 0.9)}
    assert _front(points) == ["a", "b", "d", "e"]


def test_tiled_rows_are_the_same_rows_with_noise() -> None:
    data = views_of(builtin("toy"))
    grown = _growth.tiled(data, 700, seed=0)
    assert grown.n == 700
    assert grown.group is not None
    assert data.group is not None
    assert np.bincount(grown.group).min() > 300
    assert grown.arrays[0].std() == pytest.approx(1.0, abs=0.05)


def test_the_dense_opponent_clusters() -> None:
    found = builtin("toy")
    labels = _growth.dense_spectral(views_of(found), seed=0)
    assert metrics.nmi(found.truth, labels) > 0.3


def test_memory_and_seconds_are_measured() -> None:
    assert _growth.peak_bytes(lambda: np.zeros(1_000_000)) > 8e6
    assert _growth.seconds(lambda: np.linalg.svd(np.ones((200, 200)))) > 0.0


def test_what_is_known_is_not_measured_again() -> None:
    claims = frozenset(c.id for c in CdalReplication.claims)
    units = {"C3": "tiled src2", "C3m": "tiled src2", "N3": "tiled src2"}
    units |= {"C5p": "plant", "C6": "plant"}
    known = frozenset((c, units.get(c, "src2")) for c in claims)
    ask = Ask(profile="quick", seed=0, claims=claims, known=known)
    assert list(CdalReplication().measure(ask)) == []
