"""OrthoMerge: merge the rotation part of each expert in the Lie algebra, the rest by another rule.

Paper: Yang, Shi and Liu, Orthogonal model merging, ICML 2026, arXiv 2602.05943; algorithm A for
experts tuned by OFT, algorithm B (orthogonal-residual decoupling) for any experts.

    A_k = inverse_cayley(R_k),  A_m = mean_k ||A_k|| sum_k A_k / ||sum_k A_k||,  R_m = cayley(A_m)
    W = W_0 R_m + rule(W_k - W_0 R_k)

Ours, not the paper's: the ridge and the fallback of Procrustes, ``strength``, uniform directions
apart from length, leave-one-out conflicts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lamps.errors import ProblemError
from lamps_plugins.model_merging._rules.checks import checked, choice, working
from lamps_plugins.model_merging._rules.knots import Rule, applied
from lamps_plugins.model_merging._rules.rotation import (
    angles,
    cayley,
    checked_skew,
    inverse_cayley,
    procrustes,
)

MAX_CONDITION = 1e6
"""A rotation whose ``R + I`` is worse than this has no usable logarithm and is left out."""

NO_DIRECTION = 1e-8
"""Below this norm the sum of the skew matrices points nowhere, and the merged one is 0."""


def merge_skew(
    skew: Tensor,
    *,
    length: str = "mean",
    directions: str = "theta",
    strength: float = 1.0,
) -> Tensor:
    """Direction from the sum of skew matrices, length from the average of theirs.

    Args:
        skew: Shape: [K, L, ..., b, b]; norms go over all axes after the second, so blocks of one
            layer share a length.
        length: ``"mean"``, ``"median"`` or ``"max"`` of the experts' norms.
        directions: ``"theta"`` weighs an expert's direction by its norm, ``"uniform"`` does not.
        strength: Factor of the result; 0 gives no rotation.

    Returns:
        Shape: [L, ..., b, b]. The correction of the length is held to ``10 K`` times the mean's.

    Raises:
        ProblemError: Fewer than two experts, or matrices that are not skew.
    """
    choice(length, "length", ("mean", "median", "max"))
    choice(directions, "directions", ("theta", "uniform"))
    skew = checked_skew(skew)
    k = len(skew)
    if k < 2 or skew.ndim < 4:
        raise ProblemError(f"skew matrices have shape {list(skew.shape)}; expected [K, L, ..., b, "
                           "b] with at least two experts")  # fmt: skip
    ones = (1,) * (skew.ndim - 2)
    theta = skew.flatten(2).norm(dim=2)
    per_layer = (-1, *ones)
    if directions == "uniform":
        unit = torch.where(theta > 0, 1 / torch.where(theta > 0, theta, 1), 0)
        skew = skew * unit.view(k, *per_layer)
    wanted = {
        "mean": lambda: theta.mean(0),
        "median": lambda: theta.quantile(0.5, dim=0),
        "max": lambda: theta.amax(0),
    }[length]()
    total = skew.sum(0)
    size = total.flatten(1).norm(dim=1)
    factor = torch.where(size < NO_DIRECTION, 0, wanted / size.clamp_min(NO_DIRECTION))
    if directions == "theta":
        factor = factor.clamp_max(10.0)  # c / K in A_m = (c / K) sum A_k, with c <= 10 K
    merged: Tensor = strength * factor.view(per_layer) * total
    return (merged - merged.mT) / 2


def magnitude_correction(skew: Tensor) -> Tensor:
    """``c = sum_k ||A_k|| / ||sum_k A_k||``, near sqrt(K) for unrelated experts. Shape: [L].

    Shape:
        skew: [K, L, ..., b, b].
    """
    size: Tensor = skew.sum(0).flatten(1).norm(dim=1)
    lengths: Tensor = skew.flatten(2).norm(dim=2).sum(0)
    return lengths / size.clamp_min(NO_DIRECTION)


def oft_update(base: Tensor, skew: Tensor) -> Tensor:
    """What an OFT adapter changes: ``W_0 (blockdiag(cayley(Q)) - I)``, as `peft` applies it.

    Args:
        base: Shape: [L, m, n].
        skew: Shape: [..., L, n / b, b, b].

    Returns:
        Shape: [..., L, m, n].

    Raises:
        ProblemError: Blocks that do not cover the inputs.
    """
    base, skew = working(base, "base weights"), checked_skew(skew)
    blocks, b = skew.shape[-3], skew.shape[-1]
    if blocks * b != base.shape[2] or skew.shape[-4] != base.shape[0]:
        raise ProblemError(
            f"{skew.shape[-4]} layers of {blocks} blocks of size {b} for weights "
            f"{list(base.shape)}; blocks have to cover the inputs"
        )
    eye = torch.eye(b, dtype=skew.dtype, device=skew.device)
    parts = base.reshape(*base.shape[:2], blocks, b).movedim(1, 2)  # [L, blocks, m, b]
    turned = parts.to(skew.dtype) @ (cayley(skew) - eye)
    return turned.movedim(-3, -2).flatten(-2).to(base.dtype)


def targets(
    base: Tensor, deltas: Tensor, *, variant: str = "C", threshold: float = 0.0,
    reference: str = "inclusive",
) -> Tensor:  # fmt: skip
    """What each expert's rotation is fitted to.

    Args:
        base: Shape: [L, m, n].
        deltas: Shape: [K, L, m, n].
        variant: ``"G"``: the whole expert. ``"C"``: only rows of the update that conflict, the
            base elsewhere.
        threshold: A row conflicts if its cosine to the mean row is below this.
        reference: The mean over all experts, ``"inclusive"`` as in the paper, or over the
            ``"others"``.

    Returns:
        Shape: [K, L, m, n].
    """
    choice(variant, "variant", ("G", "C"))
    choice(reference, "reference", ("inclusive", "others"))
    deltas = checked(deltas, least=2, matrices=True)
    if variant == "G":
        return base + deltas
    total = deltas.sum(0)
    mean = total - deltas if reference == "others" else total.expand_as(deltas)
    cosine = torch.nn.functional.cosine_similarity(deltas, mean, dim=-1, eps=1e-30)
    return base + deltas * (cosine < threshold).unsqueeze(-1)


@dataclass(frozen=True)
class Decoupled:
    """Experts split into a rotation and what it leaves; the costly part, good for any rule.

    Args:
        base: Shape: [L, m, n].
        skew: Logarithms of the rotations. Shape: [K, L, n, n].
        residuals: ``W_k - W_0 R_k``. Shape: [K, L, m, n].
        explained: ``1 - ||residual||^2 / ||D_k||^2``, 0 for an expert that changed nothing. Shape:
            [K, L].
        refused: Experts' layers without a usable logarithm: no rotation, all residual. Shape:
            [K, L] bool.
    """

    base: Tensor
    skew: Tensor
    residuals: Tensor
    explained: Tensor
    refused: Tensor

    def mean_angle(self) -> Tensor:
        """Mean angle of each rotation in radians. Shape: [K, L]."""
        return angles(self.skew).mean(-1)


def decouple(
    base: Tensor,
    deltas: Tensor,
    *,
    variant: str = "C",
    threshold: float = 0.0,
    reference: str = "inclusive",
    ridge: float = 1e-4,
    how: str = "svd",
) -> Decoupled:
    """Fit a rotation of the base to each expert and keep what it does not explain.

    The rotation is rebuilt from its logarithm before the residual is taken, so that both parts
    that are merged belong together.

    Args:
        base: Shape: [L, m, n].
        deltas: The experts' updates. Shape: [K, L, m, n], K >= 2.
        variant: See `targets`, as for ``threshold`` and ``reference``.
        threshold: See `targets`.
        reference: See `targets`.
        ridge: See `rotation.procrustes`.
        how: See `linalg.polar`.

    Raises:
        ProblemError: Shapes that do not fit, fewer than two experts, an all-zero base.
    """
    base = working(base, "base weights")
    deltas = checked(deltas, least=2, matrices=True)
    if base.shape != deltas.shape[1:]:
        raise ProblemError(
            f"the base has shape {list(base.shape)}, the updates {list(deltas.shape)}; expected "
            "[L, m, n] and [K, L, m, n]"
        )
    wanted = targets(base, deltas, variant=variant, threshold=threshold, reference=reference)
    fitted = procrustes(base, wanted, ridge, how=how)
    eye = torch.eye(fitted.shape[-1], dtype=fitted.dtype, device=fitted.device)
    spread = torch.linalg.svdvals(fitted + eye)
    refused = spread[..., -1] * MAX_CONDITION <= spread[..., 0]
    fitted = torch.where(refused[..., None, None], eye, fitted)
    skew = inverse_cayley(fitted)
    turned = base.to(skew.dtype) @ cayley(skew)
    residuals = (base + deltas).to(skew.dtype) - turned
    # No rotation found: the update itself, bit for bit.
    residuals = torch.where(refused[..., None, None], deltas.to(skew.dtype), residuals)
    size = deltas.to(skew.dtype).flatten(2).square().sum(-1)
    left = residuals.flatten(2).square().sum(-1)
    explained = torch.where(size > 0, 1 - left / torch.where(size > 0, size, 1), 0)
    return Decoupled(base, skew, residuals, explained, refused)


def recouple(
    parts: Decoupled,
    rule: Rule,
    *,
    strength: float = 1.0,
    length: str = "mean",
    directions: str = "theta",
) -> Tensor:
    """The merged update ``W_0 (R_m - I) + rule(residuals)``.

    Args:
        parts: From `decouple`.
        rule: Merges the residuals, [K, L, m, n] float32 to [L, m, n].
        strength: Of the merged rotation; with 0 the rule merges plain updates, as without this
            method.
        length: See `merge_skew`.
        directions: See `merge_skew`.

    Returns:
        Shape: [L, m, n].
    """
    base = parts.base.to(parts.skew.dtype)
    if strength == 0:
        plain = parts.residuals + base @ (cayley(parts.skew) - _eye(parts.skew))
        return applied(rule, plain.to(parts.base.dtype))
    merged = merge_skew(parts.skew, length=length, directions=directions, strength=strength)
    turn = base @ (cayley(merged) - _eye(merged))
    return turn.to(parts.base.dtype) + applied(rule, parts.residuals.to(parts.base.dtype))


def naive_rotation_mean(parts: Decoupled) -> Tensor:
    """Baseline: rotations averaged entry by entry, ``W_0 (mean_k R_k - I)``; no longer a rotation.

    Shape:
        Returns [L, m, n].
    """
    mean = cayley(parts.skew).mean(0) - _eye(parts.skew)
    return (parts.base.to(mean.dtype) @ mean).to(parts.base.dtype)


def hyperspherical_energy(weights: Tensor) -> Tensor:
    """``sum_{p != q} 1 / ||w_p - w_q||`` over unit rows, which a rotation from the right keeps.

    Shape:
        weights: [L, m, n], no row zero; returns [L].
    """
    weights = working(weights, "weights").double()
    sizes = weights.norm(dim=-1, keepdim=True)
    if bool((sizes == 0).any()):
        raise ProblemError("a row of the weights is zero and has no direction")
    gaps = torch.cdist(
        weights / sizes, weights / sizes, compute_mode="donot_use_mm_for_euclid_dist"
    )
    apart = 1 / gaps.clamp_min(1e-12)
    return apart.sum((-2, -1)) - torch.diagonal(apart, dim1=-2, dim2=-1).sum(-1)


def _eye(like: Tensor) -> Tensor:
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)
