"""Transformations of views that take a group out of them, fitted once and applied to new rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["GroupScale", "directions", "without"]

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class GroupScale:
    """Mean and deviation of each feature inside each group.

    Args:
        mean: [t, d].
        std: [t, d], 1 where a feature does not vary inside the group.
    """

    mean: Floats
    std: Floats

    @classmethod
    def fit(cls, x: Floats, group: NDArray[np.int64]) -> GroupScale:
        """Of all rows. Shape: x [n, d], group [n]."""
        parts = [x[group == g].astype(np.float64) for g in range(int(group.max()) + 1)]
        mean = np.stack([p.mean(axis=0) for p in parts])
        std = np.stack([p.std(axis=0) for p in parts])
        return cls(mean.astype(np.float32), np.where(std > 1e-6, std, 1.0).astype(np.float32))

    def apply(self, x: Floats, group: NDArray[np.int64]) -> Floats:
        """Rows on the scale of their own group; [n, d]."""
        found: Floats = (x - self.mean[group]) / self.std[group]
        return found


def directions(x: Floats, group: NDArray[np.int64], kind: str, shrinkage: float) -> Floats:
    """Orthonormal directions in which the groups differ; [d, at most t - 1].

    Args:
        x: [n, d].
        group: [n], values 0..t-1.
        kind: ``lda``, the discriminant ``S_w^-1 (mu_g - mu)``, or ``mean``, the difference itself.
        shrinkage: Share of the within-group covariance that is replaced by a multiple of the unit
            matrix, 0..1.
    """
    z = np.asarray(x, dtype=np.float64)
    means = np.stack([z[group == g].mean(axis=0) for g in range(int(group.max()) + 1)])
    apart = np.asarray((means - z.mean(axis=0)).T, dtype=np.float64)
    if kind == "lda":
        within = z - means[group]
        covariance = within.T @ within / len(z)
        level = float(np.trace(covariance)) / len(covariance)
        mixed = (1.0 - shrinkage) * covariance + max(shrinkage, 1e-6) * level * np.eye(
            len(covariance)
        )
        apart = np.asarray(np.linalg.solve(mixed, apart), dtype=np.float64)
    left, sizes, _ = np.linalg.svd(apart, full_matrices=False)
    keep = sizes > 1e-9 * max(float(sizes[0]), 1e-300)
    return left[:, keep][:, : len(means) - 1].astype(np.float32)


def without(x: Floats, away: Floats) -> Floats:
    """Rows with some orthonormal directions taken out. Shape: x [n, d], away [d, r]."""
    return np.asarray(x - (x @ away) @ away.T, dtype=np.float32)
