"""K-means on all views side by side, where hidden cells do not count.

Paper: Chi, Chi and Baraniuk, k-POD: A method for k-means clustering of missing data, The American
Statistician 2016, arXiv 1411.7013, algorithm 1.

    min over labels, centres of  sum_i sum_{v observed in i} ||x_iv - m_v(label_i)||^2 / d_v    (1)

by turns: hidden cells take the value of their cluster's centre, k-means goes on from the centres.
With nothing missing this is plain k-means on concatenated views.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins._views.clusterer import Clusterer, Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.linear import concatenated, kmeans, lloyd


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of k-means on concatenated views."""

    weights: str = hp.choice(
        "by_size", ("by_size", "equal"), doc="Whether a view is divided by sqrt of its features."
    )
    restarts: int = hp.integer(
        10, low=1, high=30, log=True, doc="Runs of k-means; the best stays."
    )
    rounds: int = hp.integer(30, low=1, high=100, log=True, doc="Turns of equation (1), at most.")


class ConcatKmeans(Clusterer[Params]):
    """K-means on concatenated views."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="k-means on all views side by side, hidden cells do not count",
        paper=Paper(
            title="k-POD: A method for k-means clustering of missing data",
            arxiv="1411.7013",
            venue="The American Statistician 2016",
            section="algorithm 1",
        ),
        tags=Tags(cheap=True),
    )

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """Equation (1)."""
        x = seen = concatenated(data.arrays, by_size=self.params.weights == "by_size")
        hidden = ~np.repeat(data.mask, data.dims, axis=1)
        labels, centres = kmeans(x, data.n_clusters, rng, restarts=self.params.restarts)
        for _ in range(self.params.rounds if hidden.any() else 0):
            x = np.where(hidden, centres[labels], x).astype(np.float32)
            again, centres = lloyd(x, centres[: labels.max() + 1], data.n_clusters)
            if np.array_equal(again, labels):
                break
            labels = again
        # Cells at their own cluster's centre would flatter any label-free score.
        return Clustering(labels=labels, embedding=seen)
