"""Isotropic merging: the summed update with a flat spectrum, in one or in several subspaces.

Paper: Marczak et al., No task left behind, ICML 2025, arXiv 2502.04959, sections 4 (Iso-C) and 5
(Iso-CTS).

    Iso-C: sum_k D_k = U diag(s) V^T,  D = mean(s) U V^T
    Iso-CTS: a share f of the directions from the sum, the rest from what each expert has outside
    of them; both bases made orthogonal, all sizes replaced by their mean

The mean goes over nonzero singular values: of an update of low rank nearly all are zero.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lamps_plugins.model_merging._rules.checks import checked, share
from lamps_plugins.model_merging._rules.linalg import (
    RANK_CUT,
    above_cut,
    polar,
    precise,
    svd,
)
from lamps_plugins.model_merging._rules.lowrank import LowRank, qr_cores


def iso_c(deltas: Tensor) -> Tensor:
    """Iso-C of dense updates.

    Shape:
        deltas: [K, L, m, n]; returns [L, m, n].
    """
    deltas = checked(deltas, matrices=True)
    return flatten(deltas.sum(0)).to(deltas.dtype)


def iso_c_factored(low: LowRank) -> LowRank:
    """`iso_c` of low-rank updates on their cores; the same result, as one expert."""
    found = qr_cores(low)
    return found.expand(flatten(found.cores.sum(0)))


def flatten(total: Tensor) -> Tensor:
    """Matrices with their nonzero singular values replaced by the mean of these.

    Shape:
        total: [L, p, q]; returns the same in the precision of the decomposition.
    """
    u, s, vh = svd(total)
    real = above_cut(s)
    return (u * (real * _mean(s, real))[..., None, :]) @ vh


def iso_cts(deltas: Tensor, common: float = 0.8) -> Tensor:
    """Iso-CTS of dense updates, over ``min(m, n)`` directions.

    Args:
        deltas: Shape: [K, L, m, n].
        common: Share of the directions taken from the sum, in [0, 1]; the paper's f. What is left
            is a multiple of K.

    Returns:
        Shape: [L, m, n].
    """
    deltas = checked(deltas, matrices=True)
    return _common_and_task(deltas, common).to(deltas.dtype)


def iso_cts_factored(low: LowRank, common: float = 0.8) -> LowRank:
    """Iso-CTS of low-rank updates on their cores, over their joint rank, as one expert.

    Not what `iso_cts` gives for the same updates written out: there the common share is one of
    ``min(m, n)`` directions, most of which such updates do not have.
    """
    found = qr_cores(low)
    return found.expand(_common_and_task(found.cores, common))


def split_directions(side: int, n_experts: int, common: float) -> tuple[int, int]:
    """How many directions are common and how many each expert adds: ``c + K t = side``."""
    rest = side - int(side * common)
    own = min(round(rest / n_experts), side // n_experts)
    return side - own * n_experts, own


def _common_and_task(mats: Tensor, common: float) -> Tensor:
    """Shape: [K, L, p, q] to [L, p, q] in the precision of the decompositions."""
    share(common, "common")
    mats = precise(mats)
    n_common, n_own = split_directions(min(mats.shape[2:]), len(mats), common)
    total = mats.sum(0)
    u, s, vh = (x[..., :n_common] for x in _columns(total, total))
    own = [_columns(x - u @ (u.mT @ x), x) for x in mats] if n_own else []
    us, ss, vs = (
        torch.cat([*(x[i][..., :n_own] for x in own), first], -1)
        for i, first in enumerate((u, s, vh))
    )
    real = ss > 0
    flat = real * _mean(ss, real)
    return (polar(us) * flat.unsqueeze(-2)) @ polar(vs).mT


def _columns(x: Tensor, whole: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Left directions, sizes and right directions, all along the last axis; zeros where none.

    What is small beside ``whole`` is none: of an expert inside the common directions rounding
    errors alone are left, and these must not be blown up to the mean size.
    """
    u, s, vh = svd(x)
    real = s > RANK_CUT * torch.linalg.matrix_norm(whole).unsqueeze(-1)
    return u * real.unsqueeze(-2), s * real, vh.mT * real.unsqueeze(-2)


def _mean(s: Tensor, real: Tensor) -> Tensor:
    return (s * real).sum(-1, keepdim=True) / real.sum(-1, keepdim=True).clamp_min(1)
