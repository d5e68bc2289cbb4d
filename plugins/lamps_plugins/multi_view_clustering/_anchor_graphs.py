"""Graphs between rows and a few anchors, in time and memory linear in the rows.

    LMVSC     Z_v = argmin ||X_v - Z A_v||^2 + alpha ||Z||^2,   rows of Z on the simplex        (1)
    CAN       z_ij = (d_i,k+1 - d_ij)_+ / (k d_i,k+1 - sum_{h <= k} d_ih)                       (2)

with ``A_v`` the k-means centres of the observed rows of view v and ``d_ij`` squared distances from
row i to its anchors in rising order. Rows that lack a view have zeros there.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lamps_plugins._views.data import ViewData
from lamps_plugins._views.linear import kmeans
from lamps_plugins._views.simplex import regress

__all__ = ["adaptive_weights", "anchors_of", "regressed_weights", "spread"]

Floats = NDArray[np.float64]


def anchors_of(x: NDArray[np.float32], count: int, rng: Generator) -> Floats:
    """K-means centres of the rows of a view. Shape: [min(count, n), d]."""
    count = min(count, len(x))
    labels, centres = kmeans(x, count, rng, restarts=1)
    used = np.bincount(labels, minlength=count) > 0
    return centres[used]


def regressed_weights(x: NDArray[np.float32], anchors: Floats, alpha: float) -> Floats:
    """Equation (1), ``alpha`` relative to the mean squared length of an anchor. [n, m]."""
    gram = anchors @ anchors.T
    penalty = alpha * float(np.trace(gram)) / len(anchors)
    return np.asarray(
        regress(gram + penalty * np.eye(len(anchors)), x.astype(np.float64) @ anchors.T)
    )


def adaptive_weights(x: NDArray[np.float32], anchors: Floats, neighbours: int) -> Floats:
    """Equation (2): weights of the nearest anchors, others 0. Shape: [n, m]."""
    n, m = len(x), len(anchors)
    k = min(neighbours, m - 1)
    if k < 1:
        return np.ones((n, m)) / m
    big = x.astype(np.float64)
    d = (big**2).sum(1)[:, None] - 2.0 * big @ anchors.T + (anchors**2).sum(1)
    order = np.argsort(d, axis=1, kind="stable")[:, : k + 1]
    near = np.take_along_axis(d, order, axis=1)
    gain = near[:, k:] - near[:, :k]
    total = gain.sum(axis=1, keepdims=True)
    # All k + 1 anchors equally far: the limit of (2) is equal weights.
    weights = np.where(total > 0.0, gain / np.where(total > 0.0, total, 1.0), 1.0 / k)
    found = np.zeros((n, m))
    np.put_along_axis(found, order[:, :k], weights, axis=1)
    return found


def spread(data: ViewData, view: int, weights: Floats) -> Floats:
    """Weights of observed rows as rows of the whole, zeros elsewhere. Shape: [n, m]."""
    whole = np.zeros((data.n, weights.shape[1]))
    whole[data.mask[:, view]] = weights
    return whole
