"""Principal components of each view side by side, then k-means.

    s_iv = (x_iv - m_v) P_v,     P_v the directions that hold a share of the view's variance

Directions are found on the rows that have the view; hidden scores are 0, the mean.
"""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Tags
from lamps_plugins._views.clusterer import Clusterer, Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.linear import concatenated, kmeans
from lamps_plugins.multi_view_clustering._pca import bases, project


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of k-means on principal components."""

    variance: float = hp.real(0.95, low=0.5, high=0.99, doc="Share of a view's variance to keep.")
    components: int = hp.integer(30, low=2, high=60, log=True, doc="Components of a view at most.")
    restarts: int = hp.integer(
        10, low=1, high=30, log=True, doc="Runs of k-means; the best stays."
    )


class PcaKmeans(Clusterer[Params]):
    """Principal components and k-means."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="principal components of each view side by side, then k-means",
        tags=Tags(cheap=True),
    )

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """See the module."""
        p = self.params
        scores = project(data, bases(data, p.variance, p.components))
        # Divided by the root of what they came from, so that each view has the same variance.
        x = concatenated(
            [s / d**0.5 for s, d in zip(scores, data.dims, strict=True)], by_size=False
        )
        labels, _ = kmeans(x, data.n_clusters, rng, restarts=p.restarts)
        return Clustering(labels=labels, embedding=x)
