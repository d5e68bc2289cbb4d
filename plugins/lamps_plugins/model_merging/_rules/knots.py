"""KnOTS: write all updates in one basis of output directions, and merge what is left of each.

Paper: Stoica et al., Model merging with SVD to tie the KnOTS, ICLR 2025, arXiv 2410.19735,
section 4.

    [D_1 .. D_K] = U diag(s) [V_1^T .. V_K^T],    D = U diag(s) rule(V_1^T, .., V_K^T)

`knots` needs the factors alone: with ``[B_1 .. B_K] = Q [S_1 .. S_K]`` and ``A_k^T = Q_k T_k`` the
wide matrix is ``Q [S_1 T_1^T ..] diag(Q_1^T, ..)``, so a decomposition of an R x R matrix does.
`knots_dense` decomposes the wide matrix itself, as published, for comparison. Both decompose in
the precision of their input, so that their times compare.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lamps.errors import ProblemError
from lamps_plugins.model_merging._rules.checks import checked
from lamps_plugins.model_merging._rules.linalg import above_cut
from lamps_plugins.model_merging._rules.lowrank import LowRank

Rule = Callable[[Tensor], Tensor]
"""Updates of K experts to their merged update: [K, L, p, q] to [L, p, q]."""


def knots(low: LowRank, rule: Rule) -> LowRank:
    """KnOTS of low-rank updates from their factors; exact.

    Args:
        low: The updates.
        rule: Applied to the blocks ``V_k^T``, [K, L, rank, n], of layers of equal joint rank;
            `ties.ties_layer` or `linear.average`, for example.

    Returns:
        One expert whose rank is the largest joint rank among the layers.
    """
    basis, t = torch.linalg.qr(torch.cat(low.b, 2))
    parts = zip(low.blocks(t, 2), low.a, strict=True)
    rights, cores = [], []
    for block, a in parts:
        q, r = torch.linalg.qr(a.mT.contiguous())
        rights.append(q)
        cores.append(block @ r.mT)
    u, s, vh = torch.linalg.svd(torch.cat(cores, 2), full_matrices=False)
    widths = [c.shape[2] for c in cores]
    left = basis @ (u * s.unsqueeze(-2))
    blocks = zip(torch.split(vh, widths, 2), rights, strict=True)
    return _apply(left, torch.stack([v @ q.mT for v, q in blocks]), above_cut(s), rule)


def knots_dense(deltas: Tensor, rule: Rule) -> Tensor:
    """KnOTS as published, by decomposing the dense matrix ``[D_1 .. D_K]``: a slow reference.

    Shape:
        deltas: [K, L, m, n]; returns [L, m, n].
    """
    deltas = checked(deltas, matrices=True)
    u, s, vh = torch.linalg.svd(torch.cat(deltas.unbind(), -1), full_matrices=False)
    blocks = torch.stack(torch.split(vh, deltas.shape[3], -1))
    return _apply(u * s.unsqueeze(-2), blocks, above_cut(s), rule).merged()


def _apply(left: Tensor, blocks: Tensor, real: Tensor, rule: Rule) -> LowRank:
    """``left rule(blocks)`` over the directions that are real.

    Rules that count entries must not see directions without any size, so layers are taken
    together by their joint rank.

    Shape:
        left: [L, m, p];  blocks: [K, L, p, n];  real: [L, p] bool, True first.
    """
    ranks = real.sum(-1)
    merged = blocks.new_zeros(blocks.shape[1:])
    for rank in sorted(set(ranks.tolist())):
        if rank:
            at = ranks == rank
            merged[at, :rank] = applied(rule, blocks[:, at, :rank])
    most = max(1, int(ranks.amax()))
    return LowRank((left[..., :most],), (merged[:, :most],))


def applied(rule: Rule, mats: Tensor) -> Tensor:
    """What a rule makes of matrices, in their precision.

    Raises:
        ProblemError: It returned another shape than that of one expert.
    """
    found = rule(mats)
    if found.shape != mats.shape[1:]:
        raise ProblemError(
            f"the rule returned {list(found.shape)} for {list(mats.shape)}; expected the shape "
            f"of one expert, {list(mats.shape[1:])}"
        )
    return found.to(mats.dtype)
