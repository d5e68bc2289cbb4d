"""Principal components of each view, from its observed rows alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lamps_plugins._views.data import ViewData

__all__ = ["Basis", "bases", "project"]

Basis = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Mean [d] and orthonormal columns [d, q] of a view."""


def bases(data: ViewData, share: float, most: int) -> list[Basis]:
    """Mean and leading directions of each view.

    Args:
        data: The views.
        share: Share of the variance to keep, 0..1.
        most: Directions at most.
    """
    found = []
    for v, array in enumerate(data.arrays):
        x = array[data.mask[:, v]].astype(np.float64)
        centre = x.mean(axis=0)
        values, vectors = np.linalg.eigh((x - centre).T @ (x - centre))
        order = np.argsort(-values, kind="stable")
        kept = np.cumsum(np.maximum(values[order], 0.0))
        enough = int(np.searchsorted(kept, share * kept[-1])) + 1
        found.append((centre, vectors[:, order[: max(1, min(enough, most, len(x)))]]))
    return found


def project(data: ViewData, basis: list[Basis]) -> list[NDArray[np.float64]]:
    """Scores of each view, hidden rows 0. Shape: V times [n, q_v]."""
    return [
        ((array.astype(np.float64) - centre) @ directions) * data.mask[:, v, None]
        for v, (array, (centre, directions)) in enumerate(zip(data.arrays, basis, strict=True))
    ]
