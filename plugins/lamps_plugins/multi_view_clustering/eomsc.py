"""One set of orthogonal anchors for all views, seen by each through a projection of its own.

Paper: Liu et al., Efficient one-pass multi-view subspace clustering with consensus anchors, AAAI
2022, equation (5), without its connectivity constraint.

    min sum_v a_v^2 sum_i m_iv ||x_iv - W_v A' z_i||^2                                          (1)
    W_v' W_v = I,   A' A = I,   z_i >= 0,  sum z_i = 1,   sum_v a_v = 1

by turns, each exact: ``W_v`` and ``A`` by an orthogonal Procrustes step, ``z_i`` by projection
onto the simplex, ``a_v`` inversely to the squared residual. Labels are k-means on the
leading singular vectors of Z. Ours, not the paper's: the mask ``m_iv``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins._views.clusterer import Clusterer, Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.linear import concatenated
from lamps_plugins._views.simplex import project
from lamps_plugins.multi_view_clustering._anchor_graphs import anchors_of, regressed_weights
from lamps_plugins.multi_view_clustering._spectral import labels_of, stacked

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of consensus anchors."""

    anchors: int = hp.integer(2, low=1, high=6, doc="Anchors, times K.")
    rounds: int = hp.integer(20, low=5, high=50, log=True, doc="Turns of equation (1).")
    restarts: int = hp.integer(
        10, low=1, high=30, log=True, doc="Runs of k-means; the best stays."
    )


class Eomsc(Clusterer[Params]):
    """Consensus anchors."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="orthogonal anchors that all views share, linear in the rows",
        paper=Paper(
            title="Efficient one-pass multi-view subspace clustering with consensus anchors",
            venue="AAAI 2022",
        ),
        tags=Tags(cheap=True),
    )

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """Equation (1)."""
        p = self.params
        z, trace = consensus(data, p.anchors * data.n_clusters, p.rounds, rng)
        vectors = stacked([z], np.ones((data.n, 1), dtype=np.bool_), data.n_clusters)
        labels, x = labels_of(vectors, data.n_clusters, rng, restarts=p.restarts)
        return Clustering(
            labels=labels,
            embedding=x,
            trace=tuple({"round": float(t), "objective": value} for t, value in enumerate(trace)),
        )


def procrustes(x: Floats) -> Floats:
    """The matrix with orthonormal columns that has the largest inner product with ``x``."""
    left, _, right = np.linalg.svd(x, full_matrices=False)
    return np.asarray(left @ right)


def consensus(
    data: ViewData, n_anchors: int, rounds: int, rng: Generator
) -> tuple[Floats, list[float]]:
    """``Z`` of equation (1), and the objective after each turn, which never rises.

    The latent space has one dimension an anchor; narrower views are padded with zeros.

    Shape:
        Returns [n, m], and a list of length ``rounds``.
    """
    start = concatenated(data.arrays)
    z = regressed_weights(start, anchors_of(start, n_anchors, rng), 0.01)
    m = z.shape[1]
    seen = data.mask.astype(np.float64)
    # A mixture of orthonormal anchors is at most 1 long; so should rows be.
    views = []
    for array in data.arrays:
        x = array.astype(np.float64) / np.sqrt(array.shape[1])
        views.append(np.pad(x, ((0, 0), (0, max(0, m - x.shape[1])))))
    anchors = procrustes(rng.normal(size=(m, m)))
    alpha = np.full(data.n_views, 1.0 / data.n_views)
    trace = []
    for _ in range(rounds):
        latent = z @ anchors
        maps = [procrustes(x.T @ (latent * seen[:, v, None])) for v, x in enumerate(views)]
        # Hidden rows of x are 0, so they pull nowhere.
        pulled = sum(a**2 * (x @ w) for a, x, w in zip(alpha, views, maps, strict=True))
        anchors = procrustes(z.T @ pulled)
        z = project((pulled / (seen @ alpha**2)[:, None]) @ anchors.T)
        latent = z @ anchors
        residual = np.array(
            [
                (seen[:, v] * ((x - latent @ w.T) ** 2).sum(axis=1)).sum()
                for v, (x, w) in enumerate(zip(views, maps, strict=True))
            ]
        )
        inverse = 1.0 / np.maximum(residual, 1e-12)
        alpha = inverse / inverse.sum()
        trace.append(float((alpha**2 * residual).sum()))
    return np.asarray(z), trace
