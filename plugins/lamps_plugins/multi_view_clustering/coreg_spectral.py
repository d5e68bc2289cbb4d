"""Co-regularised spectral clustering: each view's embedding is drawn towards the others'.

Paper: Kumar, Rai and Daume, Co-regularized multi-view spectral clustering, NeurIPS 2011,
section 3.1, the pairwise form.

    max sum_v tr(U_v' A_v U_v) + lambda sum_{v != w} tr(U_v U_v' U_w U_w'),   U_v' U_v = I      (1)

by turns over the views: ``U_v`` are the leading eigenvectors of ``A_v + lambda sum_w U_w U_w'``, a
sparse matrix plus one of rank K (V - 1) that is never formed. Ours, not the paper's: rows that
lack a view take no part in its embedding, and labels come from all embeddings stacked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lamps import space as hp
from lamps.method import MethodSpec, Paper
from lamps_plugins._views.clusterer import Clusterer, Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.linear import unit_rows
from lamps_plugins.multi_view_clustering._spectral import (
    labels_of,
    leading,
    neighbour_graph,
    normalised,
    stacked,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of co-regularised spectral clustering."""

    lam: float = hp.real(
        0.1, low=0.01, high=1.0, log=True, doc="lambda of equation (1), unitless."
    )
    neighbours: int = hp.integer(
        10, low=5, high=40, log=True, doc="Neighbours of a row in a view."
    )
    rounds: int = hp.integer(5, low=1, high=10, doc="Turns over all views.")
    restarts: int = hp.integer(
        10, low=1, high=30, log=True, doc="Runs of k-means; the best stays."
    )


class CoregSpectral(Clusterer[Params]):
    """Spectral clustering of co-regularised views."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="spectral embeddings of all views, each drawn towards the others",
        paper=Paper(
            title="Co-regularized multi-view spectral clustering",
            venue="NeurIPS 2011",
            section="3.1",
        ),
    )

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """Equation (1)."""
        p = self.params
        vectors = embeddings(data, p.neighbours, p.lam, p.rounds)
        # Rows of length 1 per view, as the paper clusters them.
        parts = [unit_rows(u) for u in vectors]
        together = stacked(parts, data.mask, data.n_clusters)
        labels, x = labels_of(together, data.n_clusters, rng, restarts=p.restarts)
        return Clustering(labels=labels, embedding=x)


def embeddings(
    data: ViewData, neighbours: int, lam: float, rounds: int
) -> list[NDArray[np.float64]]:
    """``U_v`` of equation (1), rows without the view 0. Shape: V times [n, K]."""
    seen = [np.flatnonzero(data.mask[:, v]) for v in range(data.n_views)]
    graphs = [
        normalised(neighbour_graph(array[rows], neighbours))
        for array, rows in zip(data.arrays, seen, strict=True)
    ]
    found = [np.zeros((data.n, data.n_clusters)) for _ in graphs]
    for turn in range(rounds + 1):
        for v, (graph, rows) in enumerate(zip(graphs, seen, strict=True)):
            others = [u[rows] for w, u in enumerate(found) if w != v]
            pull = np.sqrt(lam) * np.concatenate(others, axis=1) if turn and others else None
            count = min(data.n_clusters, len(rows))
            vectors = leading(_drawn(graph, pull), count)
            found[v][:] = 0.0
            found[v][rows, :count] = vectors
    return found


def _drawn(graph: Any, pull: NDArray[np.float64] | None) -> Any:
    """``A + P P'`` as an operator."""
    from scipy.sparse.linalg import LinearOperator

    if pull is None:
        return graph

    def apply(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(graph @ x + pull @ (pull.T @ x))

    return LinearOperator(graph.shape, matvec=apply, matmat=apply, dtype=np.float64)
