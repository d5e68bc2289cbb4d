"""TIES: keep the largest entries of each expert, elect a sign per entry, average what agrees.

Paper: Yadav et al., TIES-Merging, NeurIPS 2023, arXiv 2306.01708, section 3 and algorithm 1.

The paper trims over the flattened model (`ties_model`); trimming each layer by itself is another
rule under the same name (`ties_layer`). Where the kept values of an entry cancel exactly, the
majority of all elected signs decides; where even those balance, the entry stays 0, so that
``ties(-D) = -ties(D)``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from lamps_kernels.ties import ties as merge_rows
from torch import Tensor

from lamps.errors import ProblemError
from lamps_plugins.model_merging._rules.checks import checked, choice, positive

RADIX_BITS = 16
"""Bits of a magnitude that one histogram pass settles."""

SMALL = 1 << 19
"""Entries up to which a flat copy is partitioned instead: faster, and no memory to speak of."""


def kth_magnitude(parts: Sequence[Tensor], k: int) -> Tensor:
    """The exact k-th largest magnitude among all entries, without a sort of the whole.

    Bits of non-negative floating point numbers are in the order of the numbers, so a histogram of
    the top 16 bits finds the bin of the answer, and a histogram of the next 16 bits within that
    bin refines it: two passes for float32, four for float64.

    Args:
        parts: Tensors of one dtype, float32 or float64, any shapes.
        k: From 1 to the number of entries.

    Returns:
        Shape: [], dtype of the parts; equal to ``abs().topk(k).values[-1]`` of the whole.

    Raises:
        ProblemError: ``k`` out of range.
    """
    total = sum(p.numel() for p in parts)
    if not 1 <= k <= total:
        raise ProblemError(f"magnitude number {k} of {total} asked for")
    if total <= SMALL and not parts[0].is_cuda:
        flat = torch.cat([p.reshape(-1) for p in parts]).abs().numpy()
        return torch.from_numpy(np.partition(flat, total - k)[total - k, None])[0]
    integers = torch.int32 if parts[0].dtype == torch.float32 else torch.int64
    shift, prefix, left = torch.iinfo(integers).bits, 0, k
    patterns = [p.reshape(-1).abs().view(integers) for p in parts]
    while shift:
        shift -= RADIX_BITS
        counts = sum(
            torch.bincount((bits >> shift) & (2**RADIX_BITS - 1), minlength=2**RADIX_BITS)
            for bits in patterns
        )
        assert isinstance(counts, Tensor)
        # From the largest magnitude down: the bin in which the running count reaches k.
        from_top = counts.flip(0).cumsum(0)
        at = int(torch.searchsorted(from_top, left))
        left -= int(from_top[at - 1]) if at else 0
        prefix = (prefix << RADIX_BITS) | (2**RADIX_BITS - 1 - at)
        patterns = [bits[(bits >> shift) == prefix] for bits in patterns]
    return torch.tensor(prefix, dtype=integers, device=parts[0].device).view(parts[0].dtype)


def thresholds(groups: Sequence[Tensor], keep: float) -> Tensor:
    """The smallest magnitude that each expert keeps of all its groups together.

    Args:
        groups: Updates of the same K experts. Shape: [K, ...] each.
        keep: Share of the entries kept, in (0, 1]; ``round(keep * entries)`` of them, at least
            one, and all that equal the smallest of them.

    Returns:
        Shape: [K].
    """
    positive(keep, "keep", most=1)
    n = sum(g[0].numel() for g in groups)
    k = max(1, round(keep * n))
    return torch.stack([kth_magnitude([g[i] for g in groups], k) for i in range(len(groups[0]))])


def ties_model(
    groups: Sequence[Tensor], keep: float = 0.2, *, combine: str = "mean", scale: float = 1.0
) -> list[Tensor]:
    """TIES of a whole model given as groups of layers of equal shape.

    Args:
        groups: Shape: [K, L, m, n] or [K, L, d] each, the same K experts.
        keep: Share of the model's entries that each expert keeps, in (0, 1].
        combine: ``"mean"`` over the experts that agree, or their ``"sum"``.
        scale: Factor of the result; the paper's lambda.

    Returns:
        One per group. Shape: [L, m, n] or [L, d].
    """
    choice(combine, "combine", ("mean", "sum"))
    if not groups or len({len(g) for g in groups}) != 1:
        raise ProblemError(f"groups hold {[len(g) for g in groups]} experts; expected the same "
                           "number in each, and at least one group")  # fmt: skip
    groups = [checked(g) for g in groups]
    bounds = thresholds(groups, keep)
    rows = [g.reshape(len(g), -1) for g in groups]
    found = [merge_rows(r, bounds, combine=combine) for r in rows]
    balance = sum(f.balance for f in found)
    if balance and any(f.undecided for f in found):
        majority = 1 if balance > 0 else -1
        found = [
            merge_rows(r, bounds, majority=majority, combine=combine) if f.undecided else f
            for r, f in zip(rows, found, strict=True)
        ]
    return [scale * f.values.reshape(g.shape[1:]) for f, g in zip(found, groups, strict=True)]


def ties_layer(
    deltas: Tensor, keep: float = 0.2, *, combine: str = "mean", scale: float = 1.0
) -> Tensor:
    """TIES of each layer by itself: threshold and majority come from the layer alone.

    Args:
        deltas: Shape: [K, L, m, n] or [K, L, d].
        keep: Share of a layer's entries that each expert keeps, in (0, 1].
        combine: ``"mean"`` over the experts that agree, or their ``"sum"``.
        scale: Factor of the result.

    Returns:
        Shape: [L, m, n] or [L, d].
    """
    deltas = checked(deltas)
    one = [
        ties_model([deltas[:, i : i + 1]], keep, combine=combine, scale=scale)[0]
        for i in range(deltas.shape[1])
    ]
    return torch.cat(one)
