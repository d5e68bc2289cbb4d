"""Assignment of new rows by class means: the rule for methods that have none of their own.

    d(i, k) = (1 / |O_i|) sum_{v in O_i} ||x_iv - m_vk||^2 / d_v,   label_i = argmin_k d(i, k)

with ``O_i`` the observed views of row i and ``m_vk`` the mean of view v over the observed rows of
cluster k, the overall mean where the cluster has none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lamps_plugins._views.data import ViewData

__all__ = ["ClassMeans", "softmax"]


def softmax(scores: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rows of positive numbers that sum to 1. Shape: [n, K] to [n, K]."""
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: NDArray[np.float32] = (e / e.sum(axis=1, keepdims=True)).astype(np.float32)
    return found


@dataclass(frozen=True, slots=True)
class ClassMeans:
    """Mean of each view in each cluster.

    Args:
        means: Shape: V times [K, d_v] float32.
        used: Clusters that had any row; others are never assigned. Shape: [K] bool.
    """

    means: tuple[NDArray[np.float32], ...]
    used: NDArray[np.bool_]

    @classmethod
    def fit(cls, data: ViewData, labels: NDArray[np.int64]) -> ClassMeans:
        """Means of labelled rows.

        Args:
            data: Standardised views of the rows.
            labels: Shape: [n], values 0..K-1.
        """
        k = data.n_clusters
        means = []
        for v, array in enumerate(data.arrays):
            seen = data.mask[:, v]
            sums = np.eye(k, dtype=np.float32)[labels[seen]].T @ array[seen]
            counts = np.bincount(labels[seen], minlength=k)[:, None]
            overall = array[seen].mean(axis=0) if seen.any() else np.zeros(array.shape[1])
            means.append(
                np.where(counts > 0, sums / np.maximum(counts, 1), overall).astype(np.float32)
            )
        return cls(tuple(means), np.bincount(labels, minlength=k) > 0)

    def distances(self, data: ViewData) -> NDArray[np.float64]:
        """``d(i, k)``, infinite for clusters without rows. Shape: [n, K]."""
        total = np.zeros((data.n, len(self.used)))
        for v, (array, mean) in enumerate(zip(data.arrays, self.means, strict=True)):
            x, m = array.astype(np.float64), mean.astype(np.float64)
            d = (x**2).sum(1)[:, None] - 2.0 * x @ m.T + (m**2).sum(1)
            total += data.mask[:, v, None] * np.maximum(d, 0.0) / x.shape[1]
        found: NDArray[np.float64] = total / np.maximum(data.mask.sum(axis=1), 1)[:, None]
        found[:, ~self.used] = np.inf
        return found

    def assign(self, data: ViewData) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Labels [n], and ``softmax(-d / 2)`` [n, K], which is no calibrated probability."""
        d = self.distances(data)
        return d.argmin(axis=1).astype(np.int64), softmax(-d / 2.0)
