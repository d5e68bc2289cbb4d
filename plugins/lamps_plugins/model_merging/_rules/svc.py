"""Singular value calibration: shrink directions of a merged update that several experts share.

Paper: Li et al., When shared knowledge hurts, ICML 2026, arXiv 2602.05536, equations (4), (7), (8)
and algorithm 1.

    D = U diag(sigma) V^T,   a_r = sigma_r v_r^T,   a_r^k = u_r^T D_k                      (4)
    s_r^k = <a_r, a_r^k> / ||a_r^k||^2                                                     (8)
    gamma_r = K / sum_k max(alpha, s_r^k),    D' = U diag(gamma * sigma) V^T

``s > 1`` says that the merged update repeats an expert's response along ``u_r`` more than once.
The row side takes ``v_r`` and ``D_k^T``. An expert without a response there counts with ``alpha``,
so ``alpha < 1`` also enlarges directions that one expert owns, by up to ``1 / alpha``.

Ours, not the paper's: the form on R x R cores, `limit`, and the control with one factor.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lamps.errors import ConfigError, ProblemError
from lamps_plugins.model_merging._rules.checks import (
    checked,
    choice,
    positive,
    weights_of,
    working,
)
from lamps_plugins.model_merging._rules.linalg import above_cut, effective_rank, precise, svd
from lamps_plugins.model_merging._rules.lowrank import LowRank, qr_cores

STRONGEST = 0.1
"""Share of the directions, by energy, that the inflation score looks at."""

SHRUNK = 0.9
"""A direction counts as shrunk below this factor."""


@dataclass(frozen=True)
class Calibrated:
    """A calibrated update and what calibration saw.

    Args:
        update: Shape: [L, m, n].
        gamma: Factor of each direction, 0 for those without size. Shape: [L, R].
        coefficients: ``s_r^k``. Shape: [K, L, R].
        inflation: Mean over the strongest tenth of the directions of ``max_k s_r^k``; near 1
            there is nothing to gain. Shape: [L].
        shrunk_energy: Share of the energy in directions with ``gamma < 0.9``. Shape: [L].
        rank_before: Effective rank of the merged update. Shape: [L].
        rank_after: Effective rank of the calibrated one. Shape: [L].
        interference: ``sum_k sum_r (s_r^k - 1)^2 ||a_r^k||^2``, eq. (7), of the merged update.
            Shape: [L].
        blown_up: Number of coefficients beyond K in magnitude, which make a direction vanish.
        skipped: Layers that no expert changed, left as they came.
    """

    update: Tensor
    gamma: Tensor
    coefficients: Tensor
    inflation: Tensor
    shrunk_energy: Tensor
    rank_before: Tensor
    rank_after: Tensor
    interference: Tensor
    blown_up: int
    skipped: int


def svc(
    deltas: Tensor,
    merged: Tensor,
    *,
    alpha: float,
    side: str = "column",
    target: int | None = None,
    factor: str = "direction",
    limit: float | None = None,
) -> Calibrated:
    """Calibrate a merged update against the updates it came from.

    Args:
        deltas: The experts' updates. Shape: [K, L, m, n], K >= 2.
        merged: What a merging rule made of them. Shape: [L, m, n].
        alpha: Floor of the coefficients, positive; 1 only ever shrinks.
        side: ``"column"`` for responses along left singular vectors, ``"row"`` for right ones.
        target: Calibrate for this expert alone, by 1 / max(alpha, s) where s > 0; all if None.
        factor: ``"direction"``, or ``"global"``: one factor for all directions of a layer, which
            gives ``D'`` the same norm without touching the spectrum's shape. A control.
        limit: Bound of the coefficients' magnitude; none if None.

    Raises:
        ConfigError: ``alpha``, ``limit``, ``target`` or a word out of range.
        ProblemError: Fewer than two experts, or shapes that do not fit.
    """
    deltas = checked(deltas, least=2, matrices=True)
    if merged.shape != deltas.shape[1:]:
        raise ProblemError(
            f"the merged update has shape {list(merged.shape)}, the experts' "
            f"{list(deltas.shape[1:])}; calibration needs equal ones"
        )
    k = len(deltas)
    positive(alpha, "alpha")
    choice(side, "side", ("column", "row"))
    choice(factor, "factor", ("direction", "global"))
    if limit is not None:
        positive(limit, "limit")
    if target is not None and not 0 <= target < k:
        raise ConfigError(f"target is expert {target} of {k}; expected 0 to {k - 1}")
    x, whole = precise(deltas), precise(working(merged, "merged updates"))
    if side == "row":
        x, whole = x.mT, whole.mT
    u, sigma, vh = svd(whole)
    real = above_cut(sigma)
    responses = u.mT @ x
    squares = responses.square().sum(-1)
    products = sigma * (responses * vh).sum(-1)
    # A response lost in rounding beside its expert and the merged update is no response.
    floor = torch.finfo(deltas.dtype).eps * 64  # of what the experts came in, not of the SVD
    scale = torch.maximum(sigma[..., :1], torch.linalg.matrix_norm(x).unsqueeze(-1))
    heard = squares > (max(floor, 1e-9) * scale).square()
    s = torch.where(heard, products / torch.where(heard, squares, 1), 0)
    blown_up = int(((s.abs() > k) & real).sum())
    if limit is not None:
        s = s.clamp(-limit, limit)
    if target is None:
        gamma = k / s.clamp_min(alpha).sum(0)
    else:
        gamma = torch.where(s[target] > 0, 1 / s[target].clamp_min(alpha), 1)
    # Without any expert's update there is nothing to calibrate against: the child's stays.
    silent = x.abs().amax((0, 2, 3)) == 0
    gamma = torch.where(silent.unsqueeze(-1), 1, gamma) * real
    energy = sigma.square() * real
    if factor == "global":
        total = energy.sum(-1, keepdim=True)
        ratio = (gamma.square() * energy).sum(-1, keepdim=True) / torch.where(total > 0, total, 1)
        gamma = ratio.sqrt() * real
    update = (u * (gamma * sigma).unsqueeze(-2)) @ vh
    return Calibrated(
        update=(update.mT if side == "row" else update).to(deltas.dtype),
        gamma=gamma,
        coefficients=s,
        inflation=_inflation(s, real),
        shrunk_energy=_share(energy, gamma < SHRUNK),
        rank_before=effective_rank(sigma * real),
        rank_after=effective_rank(gamma * sigma),
        interference=((s - 1).square() * squares * real).sum((0, 2)),
        blown_up=blown_up,
        skipped=int(silent.sum()),
    )


def svc_linear(
    low: LowRank, weights: Tensor | list[float] | None = None, *, alpha: float,
    side: str = "column", target: int | None = None, factor: str = "direction",
    limit: float | None = None,
) -> Calibrated:  # fmt: skip
    """`svc` of ``sum_k w_k D_k`` for low-rank updates, on R x R cores; the same result.

    For children that are linear in the updates. What TIES or DARE merge leaves the cores' space.

    Args:
        low: The updates, of at least two experts.
        weights: The child's weights, 1 each if None. Shape: [K].
        alpha: See `svc`, as for the rest.
        side: See `svc`.
        target: See `svc`.
        factor: See `svc`.
        limit: See `svc`.
    """
    found = qr_cores(low)
    w = weights_of(weights, low.n_experts, found.cores)
    child = torch.einsum("k,klpq->lpq", w, found.cores)
    result = svc(
        found.cores, child, alpha=alpha, side=side, target=target, factor=factor, limit=limit
    )
    return replace(result, update=found.expand(result.update).merged())


def _share(energy: Tensor, chosen: Tensor) -> Tensor:
    total = energy.sum(-1)
    return (energy * chosen).sum(-1) / torch.where(total > 0, total, 1)


def _inflation(s: Tensor, real: Tensor) -> Tensor:
    """Mean of ``max_k s`` over the strongest tenth of the directions that have size."""
    n = (STRONGEST * real.sum(-1, keepdim=True)).ceil()
    chosen = real & (torch.arange(real.shape[-1], device=real.device) < n)
    return (s.amax(0) * chosen).sum(-1) / chosen.sum(-1).clamp_min(1)
