"""Core Space: merge R x R matrices in bases that hold the updates of all experts without loss.

Paper: Panariello et al., Accurate and efficient low-rank model merging in core space, NeurIPS
2025, arXiv 2509.17786, section 3.

    M_k = (U^T B_k) (A_k V),    D = U rule(M_1 .. M_K) V^T

U and V span the columns of ``[B_1 .. B_K]`` and of ``[A_1; ..; A_K]^T``. The paper takes singular
vectors; an orthonormal basis by QR spans the same space for a fraction of the time. Rules that
work entry by entry depend on the basis: with QR also on the order of the experts, with singular
vectors also on how the size of an update is split between B and A.
"""

from __future__ import annotations

import torch

from lamps_plugins.model_merging._rules.checks import choice
from lamps_plugins.model_merging._rules.knots import Rule, applied
from lamps_plugins.model_merging._rules.lowrank import Cores, LowRank, qr_cores, rank_within


def core_space(
    low: LowRank, rule: Rule, *, bases: str = "svd", rank: int | None = None
) -> LowRank:
    """Merge low-rank updates in their joint core space.

    Args:
        low: The updates.
        rule: Applied to the cores, [K, L, p, q] with p = min(m, R) and q = min(n, R).
        bases: ``"svd"`` as published, or ``"qr"``.
        rank: Rank of the result, 1 to R; min(m, R), without loss, if None.

    Returns:
        One expert.
    """
    rank_within(low, rank)
    found = encode(low, bases=bases)
    return found.expand(applied(rule, found.cores), rank)


def encode(low: LowRank, *, bases: str = "svd") -> Cores:
    """The cores of the updates and their bases, which serve any number of rules."""
    if choice(bases, "bases", ("svd", "qr")) == "qr":
        return qr_cores(low)
    b, a = low.stacked()
    # In the factors' own precision: bases have to be orthonormal, no more.
    left = torch.linalg.svd(b, full_matrices=False)[0]
    right = torch.linalg.svd(a, full_matrices=False)[2].mT
    pairs = zip(low.b, low.a, strict=True)
    return Cores(left, torch.stack([(left.mT @ x) @ (y @ right) for x, y in pairs]), right)
