"""Data of any size for timing, and a clustering whose cost grows with the square of it."""

from __future__ import annotations

import dataclasses
import gc
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lamps_plugins._views.data import ViewData
from lamps_plugins._views.linear import kmeans, unit_rows

__all__ = ["dense_spectral", "peak_bytes", "seconds", "tiled"]

_NEIGHBOURS = 10


def tiled(data: ViewData, n: int, seed: int) -> ViewData:
    """Rows repeated with noise of a tenth of a deviation until there are n; for timing alone."""
    rng = np.random.default_rng(seed)
    rows = np.resize(rng.permutation(data.n), n)
    found = data.take(rows)
    noisy = tuple(a + 0.1 * rng.standard_normal(a.shape, dtype=np.float32) for a in found.arrays)
    return dataclasses.replace(found, arrays=noisy)


def seconds(work: Callable[[], object]) -> float:
    """Seconds of this process's CPU that one call takes, after a collection of garbage.

    With one thread that is what a clock would show on an idle machine, and on a busy one as well.
    """
    gc.collect()
    started = time.process_time()
    work()
    return time.process_time() - started


def peak_bytes(work: Callable[[], object]) -> float:
    """Most bytes that Python and NumPy held during one call, above what they held before."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return float(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def dense_spectral(data: ViewData, seed: int) -> NDArray[np.int64]:
    """Spectral clustering of the mean of dense affinities, one [n, n] matrix a view; [n]."""
    from scipy.sparse.linalg import eigsh

    total = np.zeros((data.n, data.n), dtype=np.float32)
    for x in data.arrays:
        d = (x**2).sum(axis=1)[:, None] + (x**2).sum(axis=1) - 2.0 * (x @ x.T)
        width = np.sqrt(np.maximum(np.partition(d, _NEIGHBOURS, axis=1)[:, _NEIGHBOURS], 1e-6))
        total += np.exp(-d / (width[:, None] * width))
    degree = 1.0 / np.sqrt(total.sum(axis=1))
    total *= degree[:, None] * degree
    k = data.n_clusters
    vectors = eigsh(total, k=k, which="LA", tol=1e-3, v0=np.ones(data.n, np.float32))[1]
    return kmeans(
        unit_rows(vectors.astype(np.float64)), k, np.random.default_rng(seed), restarts=10
    )[0]
