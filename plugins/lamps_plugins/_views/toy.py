"""A tiny problem with known factors: clusters in a latent space, seen through three views.

z ~ sum_k N(mu_k, 0.25 I_3) / K,    x_v = tanh(z A_v) B_v + 0.1 e
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lamps_plugins._views.data import ViewData

__all__ = ["toy_views"]

_DIMS = (6, 9, 4)


def toy_views(
    seed: int, *, n: int = 240, n_clusters: int = 3, dims: tuple[int, ...] = _DIMS
) -> tuple[ViewData, NDArray[np.int64]]:
    """Complete views of ``n`` rows, and the cluster of each row [n], in random order."""
    rng = np.random.default_rng([seed, 77])
    centres = rng.normal(size=(n_clusters, 3)) * 2.0
    truth = rng.permutation(np.arange(n) % n_clusters)
    z = centres[truth] + 0.5 * rng.normal(size=(n, 3))
    arrays = []
    for d in dims:
        a, b = rng.normal(size=(3, 5)) * 0.5, rng.normal(size=(5, d))
        noise = 0.1 * rng.normal(size=(n, d))
        arrays.append((np.tanh(z @ a) @ b + noise).astype(np.float32))
    data = ViewData(
        names=tuple(f"view{v}" for v in range(len(dims))),
        arrays=tuple(arrays),
        mask=np.ones((n, len(dims)), dtype=np.bool_),
        n_clusters=n_clusters,
    )
    return data, truth.astype(np.int64)
