"""K-means on all views side by side, blind to groups: what fairness is measured against.

x_i = [x_i1 / sqrt(d_1), ..., x_iV / sqrt(d_V)],   labels by k-means++ and Lloyd's iterations
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
    """Hyperparameters of blind k-means."""

    weights: str = hp.choice(
        "by_size", ("by_size", "equal"), doc="Whether a view is divided by sqrt of its features."
    )
    restarts: int = hp.integer(
        10, low=1, high=30, log=True, doc="Runs of k-means; the best stays."
    )


class BlindKmeans(Clusterer[Params]):
    """K-means without a look at the groups."""

    spec = MethodSpec(
        family="fair-multi-view-clustering",
        summary="k-means on all views side by side, blind to groups",
        tags=Tags(cheap=True, baseline=True),
    )

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """See the module."""
        x = concatenated(data.arrays, by_size=self.params.weights == "by_size")
        labels, _ = kmeans(x, data.n_clusters, rng, restarts=self.params.restarts)
        return Clustering(labels=labels, embedding=x)
