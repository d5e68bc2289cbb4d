"""One Sylvester equation with a low-rank left factor, without a square matrix of the features.

    beta A A' S + S M = R,      A [d, m],  M [m, m] symmetric, not negative,  R [d, m]      (1)

With ``A = P diag(s) Q'`` (thin) and ``M = V diag(e) V'`` the unknown splits into the part inside
the span of ``P`` and the part outside it, and each entry is one division. Cost: O(d m^2 + m^3).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["solve_low_rank"]

Floats = NDArray[Any]

_FLOOR = 1e-8


def solve_low_rank(left: Floats, beta: float, right: Floats, target: Floats) -> Floats:
    """The ``S`` of (1).

    Eigenvalues of ``right`` are kept above 1e-8 of the largest, or what the type of ``target``
    can tell from noise: an anchor that no sample uses would be free otherwise, and gets length
    near 0 instead.

    Shape:
        left: [d, m]; right: [m, m]; target: [d, m]; Returns [d, m] in the type of ``target``.
    """
    values, vectors = np.linalg.eigh(np.asarray(right, dtype=np.float64))
    relative = max(_FLOOR, 8.0 * float(np.finfo(target.dtype).eps))
    values = np.maximum(values, max(relative * float(values[-1]), _FLOOR))
    turned = np.asarray(target, dtype=np.float64) @ vectors
    if beta == 0.0:
        found = turned / values
    else:
        basis, sizes, _ = np.linalg.svd(np.asarray(left, dtype=np.float64), full_matrices=False)
        inside = basis.T @ turned
        damped = inside / (beta * sizes[:, None] ** 2 + values)
        found = (turned - basis @ inside) / values + basis @ damped
    return np.asarray(found @ vectors.T, dtype=target.dtype)
