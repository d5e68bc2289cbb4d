"""Least squares over the probability simplex, all samples at once.

    min over z of  z Q z' - 2 c z',      z >= 0,  sum(z) = 1                                    (1)

for every row of ``c`` with one ``Q``: accelerated projected gradient with a restart where the
momentum points uphill (Beck and Teboulle 2009; O'Donoghue and Candes 2015), and the projection by
sorting (Held, Wolfe and Crowder 1974).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["project", "regress"]

Floats = NDArray[Any]

_FLOOR = 1e-12  # below any curvature that matters, above nothing


def project(points: Floats) -> Floats:
    """The nearest point of the simplex to each row.

    Shape:
        points: [n, m] float; Returns [n, m] of the same type.
    """
    n, m = points.shape
    falling = -np.sort(-points, axis=1)
    excess = np.cumsum(falling, axis=1) - 1.0
    count = np.arange(1, m + 1, dtype=points.dtype)
    # The last position at which the sorted value still exceeds the threshold.
    last = m - 1 - np.argmax((falling * count > excess)[:, ::-1], axis=1)
    threshold = excess[np.arange(n), last] / (last + 1).astype(points.dtype)
    found: Floats = np.maximum(points - threshold[:, None], 0.0).astype(points.dtype, copy=False)
    return found


def regress(
    quadratic: Floats, linear: Floats, start: Floats | None = None, *, steps: int = 50
) -> Floats:
    """Solve (1) for every row; never worse than ``start``.

    Args:
        quadratic: Q, symmetric and positive semi-definite.
        linear: One c per row.
        start: Feasible points to begin at; the middle of the simplex if None.
        steps: Gradient steps at most; fewer where nothing moves by more than 1e-6.

    Shape:
        quadratic: [m, m]; linear: [n, m]; start: [n, m]; Returns [n, m].
    """
    first = np.full_like(linear, 1.0 / linear.shape[1]) if start is None else start
    size = 1.0 / max(float(np.linalg.eigvalsh(quadratic)[-1]), _FLOOR)
    here, ahead, momentum = first, first, 1.0
    for _ in range(steps):
        new = project(ahead - size * (ahead @ quadratic - linear))
        moved = new - here
        if float(np.vdot(ahead - new, moved)) > 0.0:
            momentum = 1.0
        grown = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        ahead = new + moved * np.asarray((momentum - 1.0) / grown, dtype=new.dtype)
        here, momentum = new, float(grown)
        if float(np.abs(moved).max(initial=0.0)) < 1e-6:
            break
    # Acceleration may overshoot; a row that got worse keeps what it had.
    worse = _values(quadratic, linear, here) > _values(quadratic, linear, first)
    return np.where(worse[:, None], first, here)


def _values(quadratic: Floats, linear: Floats, points: Floats) -> Floats:
    found: Floats = np.einsum("ij,ij->i", points @ quadratic - 2.0 * linear, points)
    return found
