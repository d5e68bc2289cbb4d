"""Spectral clustering of one graph that averages the neighbour graphs of the observed views.

    S_ij = sum_v m_iv m_jv s^v_ij / max(1, sum_v m_iv m_jv)                                     (1)

with ``s^v`` the self-tuned affinities of the k nearest rows that have view v, and labels by
k-means on the leading eigenvectors of the normalised graph, rows of length 1, as in Ng, Jordan and
Weiss, On spectral clustering, NeurIPS 2001. Sparse throughout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Paper
from lamps_plugins._views.clusterer import Clusterer, Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins.multi_view_clustering._spectral import (
    labels_of,
    leading,
    neighbour_graph,
    normalised,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of spectral clustering of a fused graph."""

    neighbours: int = hp.integer(
        10, low=5, high=40, log=True, doc="Neighbours of a row in a view."
    )
    restarts: int = hp.integer(
        10, low=1, high=30, log=True, doc="Runs of k-means; the best stays."
    )


class FusedSpectral(Clusterer[Params]):
    """Spectral clustering of a fused graph."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="averages neighbour graphs over shared views, then spectral clustering",
        paper=Paper(title="On spectral clustering", venue="NeurIPS 2001"),
    )

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """Equation (1), and spectral clustering of it."""
        vectors = leading(normalised(fused(data, self.params.neighbours)), data.n_clusters)
        labels, x = labels_of(vectors, data.n_clusters, rng, restarts=self.params.restarts)
        return Clustering(labels=labels, embedding=x)


def fused(data: ViewData, neighbours: int) -> Any:
    """The graph of equation (1). Sparse [n, n]."""
    from scipy.sparse import coo_array, csr_array

    total = csr_array((data.n, data.n))
    for v, array in enumerate(data.arrays):
        rows = np.flatnonzero(data.mask[:, v])
        part = neighbour_graph(array[rows], neighbours).tocoo()
        total = (
            total
            + coo_array(
                (part.data, (rows[part.row], rows[part.col])), shape=(data.n, data.n)
            ).tocsr()
        )
    edges = total.tocoo()
    shared = (data.mask[edges.row] & data.mask[edges.col]).sum(axis=1)
    weights = edges.data / np.maximum(shared, 1)
    return coo_array((weights, (edges.row, edges.col)), shape=edges.shape).tocsr()
