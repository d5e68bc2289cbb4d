"""Anchor graphs with adaptive neighbours: closed-form weights of the nearest anchors.

Paper: Nie, Wang and Huang, Clustering and projected clustering with adaptive neighbors, KDD 2014,
section 2.1, with anchors in place of rows.

    z_ij = (d_i,k+1 - d_ij)_+ / (k d_i,k+1 - sum_{h <= k} d_ih)                                 (1)

Labels are k-means on the leading left singular vectors of the views' graphs side by side, columns
over the root of their sum; rows that lack a view have zeros there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins._views.clusterer import Clusterer, Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins.multi_view_clustering._anchor_graphs import (
    adaptive_weights,
    anchors_of,
    spread,
)
from lamps_plugins.multi_view_clustering._spectral import labels_of, stacked


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of clustering by adaptive anchors."""

    anchors: int = hp.integer(10, low=2, high=30, log=True, doc="Anchors of a view, times K.")
    neighbours: int = hp.integer(5, low=2, high=15, log=True, doc="Anchors of a row, k in (1).")
    restarts: int = hp.integer(
        10, low=1, high=30, log=True, doc="Runs of k-means; the best stays."
    )


class CanAnchors(Clusterer[Params]):
    """Anchor graphs by adaptive neighbours, stacked."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="closed-form weights of a row's nearest anchors, linear in the rows",
        paper=Paper(
            title="Clustering and projected clustering with adaptive neighbors",
            venue="KDD 2014",
            section="2.1",
        ),
        tags=Tags(cheap=True),
    )

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """Equation (1)."""
        p = self.params
        parts = []
        for v, array in enumerate(data.arrays):
            x = array[data.mask[:, v]]
            anchors = anchors_of(x, p.anchors * data.n_clusters, rng)
            weights = adaptive_weights(x, anchors, p.neighbours)
            # Z D^(-1) Z' is then the normalised graph between rows.
            load = np.sqrt(np.maximum(weights.sum(axis=0), 1e-12))
            parts.append(spread(data, v, weights / load))
        vectors = stacked(parts, data.mask, data.n_clusters)
        labels, x = labels_of(vectors, data.n_clusters, rng, restarts=p.restarts)
        return Clustering(labels=labels, embedding=x)
