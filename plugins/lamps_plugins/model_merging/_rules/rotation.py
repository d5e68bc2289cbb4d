"""Rotations and their Lie algebra: skew matrices, the Cayley map, Procrustes.

cayley(A) = (I + A)(I - A)^{-1} = (I - A)^{-1}(I + A)       A skew, the result a rotation
inverse_cayley(R) = (R + I)^{-1}(R - I)                     R without eigenvalue -1
"""

from __future__ import annotations

import torch
from torch import Tensor

from lamps.errors import ProblemError
from lamps_plugins.model_merging._rules.checks import working
from lamps_plugins.model_merging._rules.linalg import polar

SKEW_TOLERANCE = 1e-4
"""Largest ``|A + A^T|`` of a skew matrix, relative to its largest entry."""


def triangle_to_skew(triangle: Tensor, block: int) -> Tensor:
    """Skew matrices from their upper triangles, row by row, as `peft` stores OFT adapters.

    Shape:
        triangle: [..., block (block - 1) / 2]; returns [..., block, block].
    """
    triangle = working(triangle, "OFT parameters")
    if triangle.shape[-1] != block * (block - 1) // 2:
        raise ProblemError(
            f"{triangle.shape[-1]} numbers a block; blocks of size {block} have "
            f"{block * (block - 1) // 2}"
        )
    rows, columns = torch.triu_indices(block, block, 1, device=triangle.device)
    upper = triangle.new_zeros((*triangle.shape[:-1], block, block))
    upper[..., rows, columns] = triangle
    return upper - upper.mT


def skew_to_triangle(skew: Tensor) -> Tensor:
    """The inverse of `triangle_to_skew`. Shape: [..., b, b] to [..., b (b - 1) / 2]."""
    b = checked_skew(skew).shape[-1]
    rows, columns = torch.triu_indices(b, b, 1, device=skew.device)
    return skew[..., rows, columns]


def checked_skew(skew: Tensor) -> Tensor:
    """Skew matrices, finite.

    Raises:
        ProblemError: Not square, or not skew to `SKEW_TOLERANCE`.
    """
    skew = working(skew, "skew matrices")
    if skew.ndim < 2 or skew.shape[-1] != skew.shape[-2]:
        raise ProblemError(f"skew matrices have shape {list(skew.shape)}; expected square ones")
    gap = float((skew + skew.mT).abs().amax()) if skew.numel() else 0.0
    if gap > SKEW_TOLERANCE * max(float(skew.abs().amax()), 1e-30):
        raise ProblemError(f"matrices are not skew: |A + A^T| reaches {gap:.1e}")
    return skew


def cayley(skew: Tensor) -> Tensor:
    """The rotations ``(I + A)(I - A)^{-1}`` of skew matrices. Shape: [..., b, b]."""
    eye = torch.eye(skew.shape[-1], dtype=skew.dtype, device=skew.device)
    found: Tensor = torch.linalg.solve(eye - skew, eye + skew)
    return found


def inverse_cayley(rotation: Tensor) -> Tensor:
    """The skew matrices ``(R + I)^{-1}(R - I)``, made exactly skew. Shape: [..., b, b]."""
    eye = torch.eye(rotation.shape[-1], dtype=rotation.dtype, device=rotation.device)
    found: Tensor = torch.linalg.solve(rotation + eye, rotation - eye)
    return (found - found.mT) / 2


def angles(skew: Tensor) -> Tensor:
    """Angles of the rotation ``cayley(A)``, ``2 atan |eigenvalue|``, in radians, rising.

    Shape:
        skew: [..., b, b]; returns [..., b], each plane's angle twice.
    """
    return 2 * torch.atan(torch.linalg.svdvals(skew)).flip(-1)


def procrustes(base: Tensor, targets: Tensor, ridge: float = 1e-4, *, how: str = "svd") -> Tensor:
    """The rotations that bring a base closest to each target from the right.

    ``argmin_R ||W_0 R - T||`` over orthogonal R is the polar factor of ``W_0^T T``. A ridge
    ``eps sigma_1(W_0^T W_0) I`` picks among near-optimal ones that closest to the identity:
    without it the directions that ``W_0`` does not reach are rotated at random. Reflections
    (determinant -1) become rotations by turning the last singular vector.

    Args:
        base: Shape: [L, m, n].
        targets: Shape: [K, L, m, n].
        ridge: The factor eps, not negative.
        how: Polar factor; see `linalg.polar`.

    Returns:
        Shape: [K, L, n, n], float64 where n <= 512.

    Raises:
        ProblemError: A base without any size, or a result that is not orthogonal to 1e-3.
    """
    base, targets = working(base, "base weights"), working(targets, "targets")
    wide = base.double() if base.shape[-1] <= 512 else base
    size = torch.linalg.matrix_norm(wide, 2)
    if bool((size == 0).any()):
        raise ProblemError("a base weight is all zero; no rotation can be read off it")
    eye = torch.eye(base.shape[-1], dtype=wide.dtype, device=wide.device)
    product = wide.mT @ targets.to(wide.dtype) + ridge * size.square()[:, None, None] * eye
    found = polar(product, how=how, cut=0.0).to(wide.dtype)
    reflected = torch.linalg.det(found) < 0
    if bool(reflected.any()):
        u, _, vh = torch.linalg.svd(product[reflected])
        u[..., -1] = -u[..., -1]
        found[reflected] = u @ vh
    worst = float((found.mT @ found - eye).abs().amax())
    if worst > 1e-3:
        raise ProblemError(
            f"Procrustes gave no orthogonal matrix (|R^T R - I| = {worst:.1e}); "
            "the base lacks rank and the ridge is too small"
        )
    return found
