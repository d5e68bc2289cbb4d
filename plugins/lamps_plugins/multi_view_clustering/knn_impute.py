"""K-nearest-neighbour imputation of missing views, then k-means: a strong, simple baseline.

Paper: Troyanskaya et al., Missing value estimation methods for DNA microarrays, Bioinformatics
2001, section "KNNimpute".

    d(i, j)^2 = (V D / |shared features|) sum over features that both rows have of (x_i - x_j)^2
    x_i,hidden = mean over the k nearest rows that have it

Distances and means are `sklearn.impute.KNNImputer`'s, computed on views side by side; all features
of a view are missing together, so one matrix of distances per pair of views is enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins._views.clusterer import Clusterer, Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.linear import concatenated, kmeans
from lamps_plugins.multi_view_clustering._impute import knn


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of nearest-neighbour imputation."""

    neighbours: int = hp.integer(10, low=2, high=40, log=True, doc="Rows that are averaged, k.")
    restarts: int = hp.integer(
        10, low=1, high=30, log=True, doc="Runs of k-means; the best stays."
    )
    weights: str = hp.choice(
        "equal", ("by_size", "equal"), doc="Whether a view is divided by sqrt of its features."
    )


class KnnImpute(Clusterer[Params]):
    """Nearest-neighbour imputation and k-means."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="fills missing views from the nearest rows that have them, then k-means",
        paper=Paper(
            title="Missing value estimation methods for DNA microarrays",
            venue="Bioinformatics 2001",
        ),
        tags=Tags(baseline=True),
    )

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """See the module."""
        filled = tuple(a.astype(np.float32) for a in knn(data, self.params.neighbours))
        x = concatenated(filled, by_size=self.params.weights == "by_size")
        labels, _ = kmeans(x, data.n_clusters, rng, restarts=self.params.restarts)
        return Clustering(labels=labels, embedding=x, imputed=filled)
