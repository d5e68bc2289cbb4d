"""K-means on image features alone: what texts must improve on.

Features have length 1, so squared distances are twice one minus the cosine.
"""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Tags
from lamps_plugins._views.clusterer import Clusterer, Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins.image_clustering._kmeans import kmeans_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of k-means on images."""

    restarts: int = hp.integer(
        10, low=1, high=30, log=True, doc="Runs of k-means; the best stays."
    )


class ImageKmeans(Clusterer[Params]):
    """K-means on images."""

    spec = MethodSpec(
        family="image-clustering",
        summary="k-means on image features, no text",
        tags=Tags(cheap=True, baseline=True),
    )

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """See the module."""
        return kmeans_of(data, (0,), rng, restarts=self.params.restarts)
