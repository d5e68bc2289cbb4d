"""K-means on all views side by side, hidden cells at the mean of what was observed.

    x_i = [x_i1, ..., x_iV],    hidden cells 0, which is the mean of a standardised feature

The weakest sensible way to fill what is missing, and what others are compared with: rows that lack
much lie near the middle and form clusters of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Tags
from lamps_plugins._views.clusterer import Clusterer, Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.linear import concatenated, kmeans


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of k-means after mean imputation."""

    weights: str = hp.choice(
        "equal", ("by_size", "equal"), doc="Whether a view is divided by sqrt of its features."
    )
    restarts: int = hp.integer(
        10, low=1, high=30, log=True, doc="Runs of k-means; the best stays."
    )


class MeanImputeKmeans(Clusterer[Params]):
    """Mean imputation and k-means."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="fills missing views with the mean, then k-means",
        tags=Tags(cheap=True),
    )

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """See the module."""
        x = concatenated(data.arrays, by_size=self.params.weights == "by_size")
        labels, _ = kmeans(x, data.n_clusters, rng, restarts=self.params.restarts)
        return Clustering(labels=labels, embedding=x, imputed=data.arrays)
