"""Spectral clustering of images by their nearest neighbours, without text.

Paper: Ng, Jordan and Weiss, On Spectral Clustering: Analysis and an Algorithm, NIPS 2001, on the
symmetric graph of the k nearest cosine neighbours.

    S = (A + A') / 2,    U = K leading eigenvectors of D^-1/2 S D^-1/2,  rows to length 1, k-means
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy.sparse import csr_matrix, diags
from scipy.sparse.linalg import eigsh

from lamps import space as hp
from lamps.errors import ProblemError
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins._views.clusterer import Clusterer, Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.linear import kmeans, unit_rows
from lamps_plugins.image_clustering._guided import neighbours


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of spectral clustering."""

    neighbours: int = hp.integer(10, low=5, high=50, log=True, doc="Nearest images in the graph.")
    restarts: int = hp.integer(
        10, low=1, high=30, log=True, doc="Runs of k-means; the best stays."
    )


class ImageSpectral(Clusterer[Params]):
    """Spectral clustering of images."""

    spec = MethodSpec(
        family="image-clustering",
        summary="spectral clustering of the nearest-neighbour graph of images, no text",
        paper=Paper(title="On Spectral Clustering: Analysis and an Algorithm", venue="NIPS 2001"),
        tags=Tags(cheap=True, baseline=True),
    )

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """See the module."""
        n, k, p = data.n, data.n_clusters, self.params
        if n <= max(p.neighbours, k + 1):
            raise ProblemError(
                f"{n} images for {p.neighbours} neighbours and {k} clusters; lower neighbours, or "
                "give more images"
            )
        near = neighbours(data.arrays[0], p.neighbours)
        rows = np.repeat(np.arange(n), p.neighbours)
        graph = csr_matrix((np.ones(near.size), (rows, near.ravel())), shape=(n, n))
        graph = (graph + graph.T) / 2.0
        scale = diags(1.0 / np.sqrt(np.asarray(graph.sum(axis=1)).ravel()))
        _, vectors = eigsh(scale @ graph @ scale, k=k, which="LA", v0=rng.uniform(0.5, 1.0, n))
        vectors *= np.where(vectors[np.abs(vectors).argmax(axis=0), np.arange(k)] < 0, -1.0, 1.0)
        embedding = unit_rows(vectors)
        labels, _ = kmeans(embedding, k, rng, restarts=p.restarts)
        return Clustering(labels=labels, embedding=embedding.astype(np.float32))
