"""Sparse spectral clustering: neighbour graphs, their normalised form, leading eigenvectors.

    s_ij = exp(-||x_i - x_j||^2 / (t_i t_j)),   t_i the distance to the k-th neighbour
    A = D^(-1/2) S D^(-1/2)

Self-tuning widths: Zelnik-Manor and Perona, Self-tuning spectral clustering, NeurIPS 2004.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lamps_plugins._views.linear import kmeans, unit_rows

__all__ = ["labels_of", "leading", "neighbour_graph", "normalised", "stacked"]

Floats = NDArray[np.float64]

_DENSE = 400  # below this many rows a full decomposition is quicker than Lanczos


def neighbour_graph(x: NDArray[np.float32], neighbours: int) -> Any:
    """Symmetric affinities of the k nearest rows, larger of both directions. Sparse [n, n]."""
    from scipy.sparse import csr_array
    from sklearn.neighbors import NearestNeighbors

    n = len(x)
    k = min(neighbours, n - 1)
    if k < 1:
        return csr_array((n, n))
    distance, near = NearestNeighbors(n_neighbors=k + 1).fit(x).kneighbors(x)
    # A row is its own neighbour unless others equal it; drop it wherever it stands.
    own = near == np.arange(n)[:, None]
    own[~own.any(axis=1), -1] = True
    distance, near = distance[~own].reshape(n, k), near[~own].reshape(n, k)
    width = np.maximum(distance[:, -1], 1e-12)
    weights = np.exp(-(distance**2) / (width[:, None] * width[near]))
    rows = np.repeat(np.arange(n), k)
    graph = csr_array((weights.ravel(), (rows, near.ravel())), shape=(n, n))
    return graph.maximum(graph.T)


def normalised(graph: Any) -> Any:
    """``D^(-1/2) S D^(-1/2)``; rows without neighbours stay 0."""
    from scipy.sparse import diags_array

    degree = np.asarray(graph.sum(axis=1)).ravel()
    scale = np.where(degree > 0.0, 1.0 / np.sqrt(np.maximum(degree, 1e-300)), 0.0)
    half = diags_array(scale)
    return half @ graph @ half


def leading(operator: Any, count: int) -> Floats:
    """Eigenvectors of the largest eigenvalues of a symmetric operator. Shape: [n, count].

    Lanczos from a fixed start, so the same operator gives the same vectors. A graph of several
    parts has one eigenvalue several times, of which Lanczos sees one: what was found is taken out
    and the rest asked for something larger, until there is nothing.

    Args:
        operator: Sparse array or `scipy.sparse.linalg.LinearOperator`. Shape: [n, n].
        count: How many; at most n.
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    n = operator.shape[0]
    if n <= max(_DENSE, 2 * count):
        dense = operator @ np.eye(n)
        return np.asarray(np.linalg.eigh((dense + dense.T) / 2.0)[1][:, ::-1][:, :count])
    rng = np.random.default_rng(0)

    def largest(of: Any, k: int) -> tuple[Floats, Floats]:
        found = eigsh(of, k=k, which="LA", v0=rng.uniform(0.5, 1.0, n), maxiter=50 * n, tol=1e-6)
        return np.asarray(found[0]), np.asarray(found[1])

    values, vectors = largest(operator, count)
    for _ in range(count):
        low = values + np.abs(values).max()  # moves what was found below all else

        def rest(x: Floats, vectors: Floats = vectors, low: Floats = low) -> Floats:
            return np.asarray(operator @ x - vectors @ (low * (vectors.T @ x)))

        more, other = largest(LinearOperator((n, n), matvec=rest, dtype=np.float64), 1)
        if more[0] <= values.min() + 1e-5:
            break
        place = int(values.argmin())
        values[place], vectors[:, place] = more[0], other[:, 0]
    # What was replaced may leave the others a little askew.
    vectors = np.linalg.qr(vectors)[0]
    values, turn = np.linalg.eigh(vectors.T @ (operator @ vectors))
    return np.asarray(vectors @ turn[:, np.argsort(-values, kind="stable")])


def stacked(parts: list[Floats], mask: NDArray[np.bool_], count: int) -> Floats:
    """One embedding of several: leading left singular vectors of the parts side by side.

    Rows of views that were not observed are 0, and each row is divided by the root of how many
    were, so that all weigh alike.

    Shape:
        parts: V times [n, m_v]; mask: [n, V]; Returns [n, count].
    """
    z = np.concatenate([p * mask[:, v, None] for v, p in enumerate(parts)], axis=1)
    z = z / np.sqrt(np.maximum(mask.sum(axis=1), 1))[:, None]
    values, vectors = np.linalg.eigh(z.T @ z)
    order = np.argsort(-values, kind="stable")[:count]
    scale = np.sqrt(np.maximum(values[order], 1e-12 * max(values.max(), 1e-300)))
    return np.asarray(z @ vectors[:, order] / scale)


def labels_of(
    vectors: Floats, n_clusters: int, rng: Generator, *, restarts: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """K-means on rows of length 1: labels [n], and those rows [n, count] float32."""
    x = unit_rows(vectors)
    labels, _ = kmeans(x, n_clusters, rng, restarts=restarts)
    return labels, x.astype(np.float32)
