"""The label-free score of a clustering: what a search without labels optimises.

    S = (silhouette + stability + separation) / 3,     each in [0, 1], higher is better

- silhouette: mean over rows of (b - a) / max(a, b) with cosine distances, moved to [0, 1];
- stability: mean adjusted Rand index, not below 0, between the labels and the labels of k-means
  fitted on either half of the embedding, over the three pairs;
- separation: between-cluster over total sum of squares, which is a monotone form of the
  Calinski-Harabasz index for fixed n and K.

One cluster, or an embedding that is constant, scores 0. Rows are brought into an order that their
content fixes, so permuting them changes nothing. It needs no truth, and it is no error rate: how
well it follows accuracy is a measured quantity of each data set.

S looks at every method in an embedding of its own making. Beside it stands a score in the one
space that all methods share, the views themselves:

    T = mean_v (between-cluster / total sum of squares of the observed rows of view v)
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lamps_plugins._views.data import ViewData
from lamps_plugins._views.metrics import ari

__all__ = ["MOST_ROWS", "InternalScore", "internal_score", "view_separation"]

MOST_ROWS = 2000
"""Rows that are looked at; of more, a subset that their content fixes."""


@dataclass(frozen=True, slots=True)
class InternalScore:
    """S and its parts, each in [0, 1]."""

    silhouette: float
    stability: float
    separation: float

    @property
    def total(self) -> float:
        """S."""
        return (self.silhouette + self.stability + self.separation) / 3.0


def internal_score(
    labels: NDArray[np.int64], embedding: NDArray[np.float32], n_clusters: int
) -> InternalScore:
    """S of a labelling in its own embedding.

    Args:
        labels: Shape: [n].
        embedding: What the labels were read off; any finite values. Shape: [n, q].
        n_clusters: K of the k-means that tells stability.

    Example:
        >>> import numpy as np
        >>> y = np.repeat([0, 1], 20)
        >>> x = np.eye(2)[y] + np.random.default_rng(0).normal(size=(40, 2)) * 0.01
        >>> internal_score(y, x.astype(np.float32), 2).total > 0.95
        True
    """
    rows = _canonical(embedding)[:MOST_ROWS]
    x, y = np.asarray(embedding, dtype=np.float64)[rows], np.asarray(labels)[rows]
    varies = bool(np.ptp(x, axis=0).max(initial=0.0) > 0.0)
    if not varies or len(np.unique(y)) < 2 or len(y) <= len(np.unique(y)):
        return InternalScore(0.0, 0.0, 0.0)
    return InternalScore(_silhouette(x, y), _stability(x, y, n_clusters), _separation(x, y))


def view_separation(data: ViewData, labels: NDArray[np.int64]) -> float:
    """T, the share of the observed views' variance that lies between clusters, in [0, 1].

    Args:
        data: Standardised views of the labelled rows.
        labels: Shape: [n].
    """
    shares = [
        _separation(array[seen].astype(np.float64), labels[seen])
        for array, seen in zip(data.arrays, data.mask.T, strict=True)
        if seen.any() and np.ptp(array[seen], axis=0).max() > 0.0
    ]
    return float(np.mean(shares)) if shares else 0.0


def _canonical(embedding: NDArray[np.float32]) -> NDArray[np.int64]:
    """An order of the rows that depends on their content alone, and looks random."""
    keys = [
        hashlib.blake2b(row.tobytes(), digest_size=8).digest()
        for row in np.ascontiguousarray(embedding, dtype=np.float32)
    ]
    return np.argsort(np.array(keys), kind="stable").astype(np.int64)


def _silhouette(x: NDArray[np.float64], y: NDArray[np.int64]) -> float:
    from sklearn.metrics import silhouette_score

    return float((silhouette_score(x, y, metric="cosine") + 1.0) / 2.0)


def _stability(x: NDArray[np.float64], y: NDArray[np.int64], n_clusters: int) -> float:
    from sklearn.cluster import KMeans

    parts = [y]
    for half in (x[::2], x[1::2]):
        k = min(n_clusters, len(np.unique(half, axis=0)))
        parts.append(KMeans(k, n_init=3, random_state=0).fit(half).predict(x))
    pairs = ((0, 1), (0, 2), (1, 2))
    return float(np.mean([max(0.0, ari(parts[a], parts[b])) for a, b in pairs]))


def _separation(x: NDArray[np.float64], y: NDArray[np.int64]) -> float:
    total = float(((x - x.mean(axis=0)) ** 2).sum())
    within = sum(float(((x[y == k] - x[y == k].mean(axis=0)) ** 2).sum()) for k in np.unique(y))
    return float(np.clip(1.0 - within / total, 0.0, 1.0))
