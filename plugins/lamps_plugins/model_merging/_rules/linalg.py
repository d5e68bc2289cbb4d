"""Batched linear algebra that several merging rules share."""

from __future__ import annotations

import torch
from torch import Tensor

from lamps_plugins.model_merging._rules.checks import choice

EXACT_SIDE = 512
"""Largest smaller side of a matrix whose decomposition runs in float64."""

RANK_CUT = 1e-6
"""Singular values below this share of the largest count as zero."""


def precise(x: Tensor) -> Tensor:
    """The matrices in the precision that they are decomposed in; see `EXACT_SIDE`."""
    return x.double() if min(x.shape[-2:]) <= EXACT_SIDE else x


def svd(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Thin singular value decomposition ``x = u diag(s) vh`` of a stack of matrices.

    Shape:
        x: [..., m, n]; returns u [..., m, r], s [..., r] falling, vh [..., r, n], r = min(m, n),
        in the precision of `precise`.
    """
    u, s, vh = torch.linalg.svd(precise(x), full_matrices=False)
    return u, s, vh


def above_cut(s: Tensor, cut: float = RANK_CUT) -> Tensor:
    """Which singular values count as nonzero: those above ``cut`` times the largest.

    Shape:
        s: [..., r], not negative; returns [..., r] bool, all False for a zero matrix.
    """
    return s > cut * s.amax(-1, keepdim=True)


def polar(x: Tensor, *, how: str = "svd", cut: float = RANK_CUT) -> Tensor:
    """The orthogonal polar factor ``P Q^T`` of matrices ``x = P diag(s) Q^T``.

    Directions with ``s = 0`` are left out, so that the factor of a rank-deficient matrix is the
    partial isometry that is unique, instead of one completed by noise.

    Args:
        x: Shape: [..., m, n].
        how: ``"svd"``, or ``"newton-schulz"``: ``X <- 1.5 X - 0.5 X X^T X``, matrix products
            only, for full rank; a matrix whose result is not orthogonal to 1e-5 is done over by
            ``"svd"``.
        cut: See `above_cut`.

    Returns:
        Shape: [..., m, n], in the precision of `precise`.
    """
    choice(how, "how", ("svd", "newton-schulz"))
    if how == "svd":
        u, s, vh = svd(x)
        return (u * above_cut(s, cut).unsqueeze(-2)) @ vh
    tall = x.shape[-2] >= x.shape[-1]
    y = precise(x) if tall else precise(x).mT
    y = y / torch.linalg.matrix_norm(y).clamp_min(torch.finfo(y.dtype).tiny)[..., None, None]
    eye = torch.eye(y.shape[-1], dtype=y.dtype, device=y.device)
    gram = y.mT @ y
    for _ in range(60):
        if bool((gram - eye).abs().amax() < 1e-6):
            break
        y = 1.5 * y - 0.5 * y @ gram
        gram = y.mT @ y
    bad = (gram - eye).abs().amax((-2, -1)) >= 1e-5
    found: Tensor = y if tall else y.mT
    if bool(bad.any()):
        found = torch.where(bad[..., None, None], polar(x, cut=cut), found)
    return found


def effective_rank(s: Tensor) -> Tensor:
    """How many directions carry a matrix: ``exp(-sum p ln p)`` with ``p = s / sum s``.

    Shape:
        s: [..., r] singular values; returns [...], in [1, r], 0 for a zero matrix.

    Source: Roy and Vetterli, The effective rank, EUSIPCO 2007.
    """
    total = s.sum(-1, keepdim=True)
    p = s / torch.where(total > 0, total, 1)
    entropy = -torch.special.xlogy(p, p).sum(-1)
    return torch.where(total.squeeze(-1) > 0, entropy.exp(), 0)
