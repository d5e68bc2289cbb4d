"""Partial isometries between two networks, and updates carried along them.

With ``C = X_A^T X_B`` [d_A, d_B] of two networks' activations on the same tokens and its thin
decomposition ``C = U S V^T``,

    T = U V^T                                                                                   (1)

is the nearest partial isometry. A layer whose inputs match by ``T_in`` and whose outputs match by
``T_out`` reacts as the source's update did if

    dW_B = T_out^T dW_A T_in,    db_B = db_A T_out,    W stored as [out, in]                    (2)

Nothing here knows a network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lamps.errors import ProblemError

if TYPE_CHECKING:
    from torch import Tensor


def procrustes(cross: Tensor) -> Tensor:
    """Equation (1) in float64, for one matrix or a batch of equal shape.

    Directions that no activation has (singular values of zero) are matched arbitrarily.

    Raises:
        ProblemError: An entry is not finite.

    Shape:
        cross: [..., d_a, d_b];  returns the same, with orthonormal rows or columns.
    """
    import torch

    if not bool(torch.isfinite(cross).all()):
        raise ProblemError("activations are not finite, so they cannot be aligned")
    u, _, vt = torch.linalg.svd(cross.double(), full_matrices=False)
    nearest: Tensor = u @ vt
    return nearest


def whitened(cross: Tensor, gram_a: Tensor, gram_b: Tensor, power: float) -> Tensor:
    """``G_A^-p C G_B^-p``, each Gram matrix with 1e-6 of its mean eigenvalue added.

    Shape:
        cross: [d_a, d_b];  gram_a: [d_a, d_a];  gram_b: [d_b, d_b].
    """
    return _power(gram_a, -power) @ cross @ _power(gram_b, -power)


def _power(gram: Tensor, power: float) -> Tensor:
    import torch

    values, vectors = torch.linalg.eigh(gram)
    values = values.clamp_min(0.0) + 1e-6 * values.mean().clamp_min(1e-30)
    raised: Tensor = vectors * values.pow(power) @ vectors.T
    return raised


def scaled_basis(gram: Tensor, power: float) -> Tensor:
    """Eigenvectors of a Gram matrix, largest first, times ``eigenvalue^(1/2 - p)``. Shape: [d, d].

    For alignment without data; signs and order of near equals are arbitrary, which is its flaw.
    """
    import torch

    values, vectors = torch.linalg.eigh(gram)
    basis: Tensor = vectors * values.clamp_min(0.0).pow(0.5 - power)
    return basis.flip(1)


def quality(cross: Tensor, square_a: float, square_b: float) -> float:
    """``tr(S) / (|X_A| |X_B|)``, 1 where one network's activations are the other's, turned.

    Args:
        cross: [d_a, d_b].
        square_a: Sum of squares of the source's activations.
        square_b: Of the target's.
    """
    import torch

    total = float(torch.linalg.svdvals(cross.double()).sum())
    return float(total / max((square_a * square_b) ** 0.5, 1e-300))


def carried(update: Tensor, t_in: Tensor | None, t_out: Tensor) -> Tensor:
    """Equation (2), computed in float64, in the type of the update.

    Shape:
        update: [m_a, n_a] or [m_a];  t_in: [n_a, n_b];  t_out: [m_a, m_b];  returns [m_b, n_b] or
        [m_b].
    """
    if update.ndim == 1 or t_in is None:
        turned = update.double() @ t_out
    else:
        turned = t_out.T @ update.double() @ t_in
    return turned.to(update.dtype)


def random_isometry(d_a: int, d_b: int, rng: np.random.Generator) -> Tensor:
    """A partial isometry drawn evenly (Haar), as a control. Shape: [d_a, d_b] float64."""
    import torch

    return procrustes(torch.from_numpy(rng.standard_normal((d_a, d_b))))


def padded_identity(d_a: int, d_b: int) -> Tensor:
    """Ones on the diagonal: unit i goes to unit i, what has no partner is cut or left zero."""
    import torch

    return torch.eye(d_a, d_b, dtype=torch.float64)
