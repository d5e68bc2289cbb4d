"""Small steps that many clusterers share: weighted concatenation, k-means, row lengths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

__all__ = ["concatenated", "kmeans", "lloyd", "unit_rows"]


def concatenated(
    arrays: Sequence[NDArray[np.float32]], *, by_size: bool = True
) -> NDArray[np.float32]:
    """Views side by side, each divided by ``sqrt(d_v)`` so that wide ones do not rule. [n, d]."""
    parts = [a / np.float32(np.sqrt(a.shape[1])) if by_size else a for a in arrays]
    return np.concatenate(parts, axis=1).astype(np.float32)


def kmeans(
    x: NDArray[np.float32] | NDArray[np.float64],
    n_clusters: int,
    rng: Generator,
    *,
    restarts: int = 10,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The best of some k-means++ runs: labels [n], and centres [K, d].

    With fewer distinct rows than K the last clusters stay empty.
    """
    from sklearn.cluster import KMeans

    seed = int(rng.integers(2**31 - 1))
    k = min(n_clusters, _distinct(x, n_clusters))
    model = KMeans(k, n_init=restarts, random_state=seed).fit(x)
    centres = np.zeros((n_clusters, x.shape[1]))
    centres[:k] = model.cluster_centers_
    return model.labels_.astype(np.int64), centres


def _distinct(x: NDArray[np.float32] | NDArray[np.float64], enough: int) -> int:
    """Distinct rows, counted up to a number that is enough."""
    head = len(np.unique(x[: 10 * enough], axis=0))
    return head if head >= enough else len(np.unique(x, axis=0))


def unit_rows(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows of length 1; rows of zeros stay."""
    length = np.linalg.norm(x, axis=1, keepdims=True)
    found: NDArray[np.float64] = x / np.where(length > 0.0, length, 1.0)
    return found


def lloyd(
    x: NDArray[np.float32] | NDArray[np.float64], start: NDArray[np.float64], n_clusters: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """K-means from given centres [k, d] on: labels [n], and centres [K, d], 0 beyond k."""
    from sklearn.cluster import KMeans

    model = KMeans(len(start), init=start.astype(x.dtype), n_init=1).fit(x)
    centres = np.zeros((n_clusters, x.shape[1]))
    centres[: len(start)] = model.cluster_centers_
    return model.labels_.astype(np.int64), centres
