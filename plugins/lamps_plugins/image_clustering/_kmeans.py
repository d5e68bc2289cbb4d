"""K-means where some rows lack a view: those are assigned by class means of what they have."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lamps.errors import ProblemError
from lamps_plugins._views.clusterer import Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.linear import kmeans
from lamps_plugins._views.rule import ClassMeans

__all__ = ["kmeans_of"]


def kmeans_of(
    data: ViewData, views: tuple[int, ...], rng: Generator, *, restarts: int
) -> Clustering:
    """K-means on some views side by side.

    Rows that lack one of them take part by `ClassMeans` over all their views; their embedding
    holds zeros where a view is missing.

    Raises:
        ProblemError: Fewer rows than clusters have these views.
    """
    x = np.hstack([data.arrays[v] for v in views])
    whole = np.flatnonzero(data.mask[:, list(views)].all(axis=1))
    if len(whole) < data.n_clusters:
        names = ", ".join(data.names[v] for v in views)
        raise ProblemError(
            f"{len(whole)} rows have {names}, expected at least the {data.n_clusters} clusters"
        )
    labels: NDArray[np.int64] = np.empty(data.n, dtype=np.int64)
    labels[whole], _ = kmeans(x[whole], data.n_clusters, rng, restarts=restarts)
    rest = np.setdiff1d(np.arange(data.n), whole)
    if len(rest):
        rule = ClassMeans.fit(data.take(whole), labels[whole])
        labels[rest] = rule.assign(data.take(rest))[0]
    return Clustering(labels=labels, embedding=x)
