"""Merging of LoRA factors themselves: side by side, cut to a rank, or each side apart.

The first two are what `peft` calls ``cat`` and ``svd``, with the second done on R x R cores. The
third, its ``linear``, is wrong by cross terms, ``(sum B)(sum A) != sum B A``, and is kept as a
negative control.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lamps.errors import ProblemError
from lamps_plugins.model_merging._rules.checks import weights_of
from lamps_plugins.model_merging._rules.lowrank import LowRank, truncate


def lora_cat(low: LowRank, weights: Tensor | list[float] | None = None) -> LowRank:
    """The weighted sum ``sum_k w_k D_k`` without loss, as one expert of rank R.

    Args:
        low: The updates.
        weights: One per expert, 1 each if None. Shape: [K].
    """
    b, a = low.weighted(weights_of(weights, low.n_experts, low.b[0])).stacked()
    return LowRank((b,), (a,))


def lora_svd(
    low: LowRank, rank: int | None = None, weights: Tensor | list[float] | None = None
) -> LowRank:
    """The best approximation of ``sum_k w_k D_k`` with a given rank, as one expert.

    Args:
        low: The updates.
        rank: Rank of the result, 1 to R; R, without loss, if None.
        weights: One per expert, 1 each if None. Shape: [K].
    """
    return truncate(low.weighted(weights_of(weights, low.n_experts, low.b[0])), rank)


def lora_linear(low: LowRank, weights: Tensor | list[float] | None = None) -> LowRank:
    """Negative control: ``(sum sqrt|w_k| B_k)(sum sgn(w_k) sqrt|w_k| A_k)``.

    It treats the two factors of an update as if they were separate parameters. Where adapters come
    with a scale, `LowRank.from_lora` has put all of it into B; `peft` splits it evenly, so give
    this the scales as part of ``weights`` to get its numbers.

    Args:
        low: Updates of equal rank.
        weights: One per expert, 1 each if None. Shape: [K].

    Raises:
        ProblemError: The ranks differ.
    """
    if len(set(low.ranks)) != 1:
        raise ProblemError(
            f"adapters have ranks {low.ranks}; adding their factors needs equal ones"
        )
    w = weights_of(weights, low.n_experts, low.b[0])
    root = w.abs().sqrt()
    b = torch.einsum("k,klmr->lmr", root, torch.stack(low.b))
    a = torch.einsum("k,klrn->lrn", root * w.sign(), torch.stack(low.a))
    return LowRank((b,), (a,))
