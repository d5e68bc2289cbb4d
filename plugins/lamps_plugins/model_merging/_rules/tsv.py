"""TSV-Merge: the strongest singular triplets of each expert, made orthogonal to one another.

Paper: Gargiulo et al., Task Singular Vectors, CVPR 2025, arXiv 2412.00081, section 4.

    D_k ~ U_k diag(s_k) V_k^T,  floor(min(m, n) / K) triplets each
    D = polar([U_1 .. U_K]) diag(s_1 .. s_K) polar([V_1 .. V_K])^T
"""

from __future__ import annotations

import torch
from torch import Tensor

from lamps.errors import ProblemError
from lamps_plugins.model_merging._rules.checks import checked
from lamps_plugins.model_merging._rules.linalg import above_cut, polar, svd
from lamps_plugins.model_merging._rules.lowrank import LowRank, qr_cores


def tsv_merge(deltas: Tensor, *, how: str = "svd") -> Tensor:
    """TSV-Merge of dense updates.

    Directions of an expert with no singular value carry nothing and are left out, so that an
    update of low rank gives what its factors give (`tsv_merge_factored`).

    Args:
        deltas: Shape: [K, L, m, n].
        how: Polar factor; see `linalg.polar`.

    Returns:
        Shape: [L, m, n].

    Raises:
        ProblemError: More experts than ``min(m, n)``.
    """
    deltas = checked(deltas, matrices=True)
    kept = share_of(min(deltas.shape[2:]), len(deltas))
    return _merge(deltas, kept, how).to(deltas.dtype)


def tsv_merge_factored(low: LowRank, *, how: str = "svd") -> LowRank:
    """`tsv_merge` of low-rank updates on their R x R cores; the same result.

    Args:
        low: The updates; each keeps ``floor(min(m, n) / K)`` triplets of those it has.
        how: Polar factor; see `linalg.polar`.

    Returns:
        One expert.
    """
    kept = share_of(min(low.shape[1:]), low.n_experts)
    found = qr_cores(low)
    return found.expand(_merge(found.cores, kept, how))


def share_of(side: int, n_experts: int) -> int:
    """Triplets that each expert keeps of ``side`` directions.

    Raises:
        ProblemError: There are more experts than directions.
    """
    if side < n_experts:
        raise ProblemError(
            f"{n_experts} experts share {side} directions; TSV-Merge needs one or more for each"
        )
    return side // n_experts


def _merge(mats: Tensor, kept: int, how: str) -> Tensor:
    """Shape: [K, L, p, q] to [L, p, q] in the precision of the decompositions."""
    u, s, vh = svd(mats)
    real = above_cut(s)[..., :kept]
    u = u[..., :kept] * real.unsqueeze(-2)
    v = vh[..., :kept, :].mT * real.unsqueeze(-2)
    left = polar(torch.cat(u.unbind(), -1), how=how)
    right = polar(torch.cat(v.unbind(), -1), how=how)
    sizes = torch.cat((s[..., :kept] * real).unbind(), -1)
    return (left * sizes.unsqueeze(-2)) @ right.mT
