"""K-means on image and text features side by side: text-aided clustering without training.

Paper: Li et al., Image Clustering with External Guidance, ICML 2024, arXiv 2310.11989, table 1,
the variant without training, which clusters ``[x; t]``. Very strong; it must be beaten.

    z_i = [x_i ; w t_i],    t_i the granularities side by side over sqrt(G), of length 1        (1)
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins._views.clusterer import Clusterer, Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins.image_clustering._kmeans import kmeans_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of k-means on images with texts."""

    weight: float = hp.real(
        1.0, low=0.25, high=4.0, log=True, doc="Length of the text part over the image's; eq. (1)."
    )
    restarts: int = hp.integer(
        10, low=1, high=30, log=True, doc="Runs of k-means; the best stays."
    )


class JointKmeans(Clusterer[Params]):
    """K-means on images with texts."""

    spec = MethodSpec(
        family="image-clustering",
        summary="k-means on image and text features side by side",
        paper=Paper(
            title="Image Clustering with External Guidance",
            arxiv="2310.11989",
            venue="ICML 2024",
            section="4",
        ),
        tags=Tags(cheap=True, baseline=True),
    )

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """See the module."""
        length = np.float32(self.params.weight / np.sqrt(data.n_views - 1))
        scaled = tuple(a if v == 0 else a * length for v, a in enumerate(data.arrays))
        joined = dataclasses.replace(data, arrays=scaled)
        views = tuple(range(data.n_views))
        return kmeans_of(joined, views, rng, restarts=self.params.restarts)
