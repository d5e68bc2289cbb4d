"""K-means on texts alone: where it wins, "image clustering" is text clustering.

Texts of the granularities asked for stand side by side, each of length 1. Images without text are
assigned by class means of the images, so all rows get an answer.
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
    """Hyperparameters of k-means on texts."""

    granularities: str = hp.choice(
        "all", ("all", "fine", "coarse"), doc="Texts that are used: all, the last view, the first."
    )
    restarts: int = hp.integer(
        10, low=1, high=30, log=True, doc="Runs of k-means; the best stays."
    )


class TextKmeans(Clusterer[Params]):
    """K-means on texts."""

    spec = MethodSpec(
        family="image-clustering",
        summary="k-means on text features, no image",
        tags=Tags(cheap=True, baseline=True),
    )

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """See the module."""
        every = tuple(range(1, data.n_views))
        views = {"all": every, "fine": every[-1:], "coarse": every[:1]}[self.params.granularities]
        return kmeans_of(data, views, rng, restarts=self.params.restarts)
