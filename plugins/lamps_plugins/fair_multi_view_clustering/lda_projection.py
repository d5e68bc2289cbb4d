"""Directions that tell the groups apart are taken out of every view, then k-means.

    x <- x - W W' x,      W orthonormal, spanning S_w^-1 (mu_g - mu) over groups g              (1)

``S_w`` is the covariance inside groups, shrunk towards a multiple of the unit matrix. After (1)
no linear rule of that view finds the discriminant again; with ``direction='mean'`` the group means
agree exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Tags
from lamps_plugins._views.clusterer import Clusterer, Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.linear import concatenated, kmeans
from lamps_plugins.fair_multi_view_clustering._groupwise import directions, without


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of the projection."""

    direction: str = hp.choice(
        "lda", ("lda", "mean"), doc="The discriminant, or the difference of means itself; eq. (1)."
    )
    shrinkage: float = hp.real(
        0.1, low=1e-3, high=1.0, log=True,
        doc="Share of the covariance that is replaced by a multiple of the unit matrix, unitless.",
    )  # fmt: skip
    rounds: int = hp.integer(1, low=1, high=5, doc="How often directions are found and taken out.")
    restarts: int = hp.integer(
        10, low=1, high=30, log=True, doc="Runs of k-means; the best stays."
    )


class LdaProjection(Clusterer[Params]):
    """K-means on what is left of the views."""

    spec = MethodSpec(
        family="fair-multi-view-clustering",
        summary="takes out the directions that tell groups apart, then k-means",
        tags=Tags(cheap=True, baseline=True),
    )

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """See the module."""
        p = self.params
        assert data.group is not None
        arrays = list(data.arrays)
        for _ in range(p.rounds):
            arrays = [
                without(x, directions(x, data.group, p.direction, p.shrinkage)) for x in arrays
            ]
        x = concatenated(arrays)
        labels, _ = kmeans(x, data.n_clusters, rng, restarts=p.restarts)
        return Clustering(labels=labels, embedding=x)
