"""Large-scale multi-view subspace clustering: rows as mixtures of a few anchors in each view.

Paper: Kang et al., Large-scale multi-view subspace clustering in linear time, AAAI 2020,
arXiv 1911.09290, section 3.

    Z_v = argmin ||X_v - Z A_v||^2 + alpha ||Z||^2,   Z >= 0, rows of Z sum to 1                (1)
    labels: k-means on the leading left singular vectors of [Z_1, ..., Z_V] / sqrt(V)           (2)

Ours, not the paper's: rows that lack a view have zeros there and are divided by the root of the
number of views that they have. Time and memory are linear in the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins._views.clusterer import Clusterer, Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins.multi_view_clustering._anchor_graphs import (
    anchors_of,
    regressed_weights,
    spread,
)
from lamps_plugins.multi_view_clustering._spectral import labels_of, stacked


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of clustering by regressed anchors."""

    anchors: int = hp.integer(5, low=1, high=20, log=True, doc="Anchors of a view, times K.")
    alpha: float = hp.real(
        0.01, low=1e-4, high=1.0, log=True,
        doc="Penalty of equation (1), relative to the anchors' mean squared length.",
    )  # fmt: skip
    restarts: int = hp.integer(
        10, low=1, high=30, log=True, doc="Runs of k-means; the best stays."
    )


class Lmvsc(Clusterer[Params]):
    """Anchor graphs by simplex regression, stacked."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="rows as mixtures of anchors in each view, linear in the rows",
        paper=Paper(
            title="Large-scale multi-view subspace clustering in linear time",
            arxiv="1911.09290",
            venue="AAAI 2020",
            section="3",
        ),
        tags=Tags(cheap=True),
    )

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """Equations (1) and (2)."""
        p = self.params
        parts = []
        for v, array in enumerate(data.arrays):
            x = array[data.mask[:, v]]
            anchors = anchors_of(x, p.anchors * data.n_clusters, rng)
            parts.append(spread(data, v, regressed_weights(x, anchors, p.alpha)))
        vectors = stacked(parts, data.mask, data.n_clusters)
        labels, x = labels_of(vectors, data.n_clusters, rng, restarts=p.restarts)
        return Clustering(labels=labels, embedding=x)
