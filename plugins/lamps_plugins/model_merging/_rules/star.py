"""STAR: cut the weak end of each expert's spectrum, keep its total size, average.

Paper: Lee et al., STAR: Spectral truncation and rescale for model merging, NAACL 2025,
arXiv 2502.10339, section 3.

    r_k = smallest r with sum_{j <= r} s_kj >= eta sum_j s_kj
    D = (1/K) sum_k (sum_j s_kj / sum_{j <= r_k} s_kj) U_k diag(s_k1 .. s_kr) V_k^T
"""

from __future__ import annotations

import torch
from torch import Tensor

from lamps_plugins.model_merging._rules.checks import checked, positive
from lamps_plugins.model_merging._rules.linalg import svd
from lamps_plugins.model_merging._rules.lowrank import LowRank


def star(deltas: Tensor, eta: float = 0.4) -> Tensor:
    """STAR of dense updates.

    Args:
        deltas: Shape: [K, L, m, n].
        eta: Share of the nuclear norm that is kept before rescaling, in (0, 1].

    Returns:
        Shape: [L, m, n].
    """
    deltas = checked(deltas, matrices=True)
    u, s, vh = svd(deltas)
    return ((u * rescaled(s, eta).unsqueeze(-2)) @ vh).mean(0).to(deltas.dtype)


def star_factored(low: LowRank, eta: float = 0.4) -> LowRank:
    """`star` of low-rank updates on a small core for each; the same result, as one expert."""
    b, a = [], []
    for left, right in zip(low.b, low.a, strict=True):
        q, t = torch.linalg.qr(left)
        p, r = torch.linalg.qr(right.mT.contiguous())
        u, s, vh = svd(t @ r.mT)
        b.append(q @ (u * (rescaled(s, eta) / low.n_experts).unsqueeze(-2)).to(q.dtype))
        a.append(vh.to(q.dtype) @ p.mT)
    return LowRank((torch.cat(b, 2),), (torch.cat(a, 1),))


def rescaled(s: Tensor, eta: float) -> Tensor:
    """Singular values cut to their largest and rescaled to their old sum; eq. of the module.

    Shape:
        s: [..., r] falling; returns the same.
    """
    positive(eta, "eta", most=1)
    total = s.sum(-1, keepdim=True)
    before = s.cumsum(-1) - s
    # Kept while what came before does not reach the share; the margin is for rounding in the sum.
    kept = s * (before < eta * total * (1 - 1e-12))
    sizes = kept.sum(-1, keepdim=True)
    return kept * total / torch.where(sizes > 0, sizes, 1)
