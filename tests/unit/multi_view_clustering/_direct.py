"""The direct methods of the family, for laws that all of them obey."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from lamps_plugins._views.clusterer import Clusterer, Clustering
from lamps_plugins._views.data import ViewData

DIRECT = (
    "concat-kmeans", "mean-impute-kmeans", "single-view-kmeans", "knn-impute", "soft-impute",
    "ridge-impute", "pca-kmeans", "pca-gmm", "fused-spectral", "coreg-spectral", "lmvsc",
    "can-anchors", "eomsc", "nemo", "opimc", "lfimvc", "eeimvc", "simcadc",
)  # fmt: skip


def kind(name: str) -> type[Clusterer[Any]]:
    module = import_module(f"lamps_plugins.multi_view_clustering.{name.replace('-', '_')}")
    found: type[Clusterer[Any]] = getattr(module, name.title().replace("-", ""))
    return found


def clustered(name: str, data: ViewData, seed: int = 0, **params: Any) -> Clustering:
    return kind(name).from_params(params).cluster(data, rng=np.random.default_rng(seed))
