"""UniSparse: composite tokens of queries, keys and heads tell which blocks of keys matter.

Paper: Liu, Cao, He, A Unified Sparse Attention via Multi-Granularity Compression,
arXiv 2512.14082, ICML 2026.

    q_a = mean of group_q queries over the heads that share keys,  k_b = mean of group_k keys   (1)
    p_ab = softmax of scale q_a . k_b + log n_b over the b that a may see                       (2)
    M[I, J] = mean over a in I of sum over b in J of p_ab                                       (3)

The fewest blocks of a row that hold ``tau`` of its mass are kept, with the diagonal, the first
``sink`` and the ``local`` before it; on them attention is exact. From the paper: (1) over tokens;
ours: the mean over heads, how (2) becomes (3), and the choice. Tokens are pooled after their
rotation, so groups stay short. Oracle: ``tau = 1`` keeps every block and equals dense attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamps import space as hp
from lamps.method import Paper
from lamps_plugins.sparse_attention._masses import MassParams, bundles, kept
from lamps_plugins.sparse_attention._rule import Rule, rule_spec

if TYPE_CHECKING:
    from lamps_kernels._blocks import Blocks
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(MassParams):
    """Hyperparameters of UniSparse."""

    group_q: int = hp.choice(8, (4, 8, 16, 32), doc="Tokens of a composite query, c_q; eq. (1).")
    group_k: int = hp.choice(8, (4, 8, 16, 32), doc="Tokens of a composite key, c_k; eq. (1).")


class UniSparse(Rule[Params]):
    """Blocks with most of the mass of composite attention."""

    spec = rule_spec(
        summary="keeps the blocks with most of the attention between pooled queries and keys",
        paper=Paper(
            title="A Unified Sparse Attention via Multi-Granularity Compression",
            arxiv="2512.14082",
            venue="ICML 2026",
        ),
        baseline=False,
    )

    def select(self, q: Tensor, k: Tensor, *, scale: float, layer: int) -> Blocks:
        """Equations (1) to (3)."""
        from lamps_kernels.composite_mass import composite_mass
        from lamps_kernels.pool_groups import pool_groups

        p = self.params
        mass = composite_mass(
            pool_groups(q, size=p.group_q, heads=q.shape[1] // bundles(p, q, k)),
            pool_groups(k, size=p.group_k),
            queries=q.shape[2], keys=k.shape[2], group_q=p.group_q, group_k=p.group_k,
            block=p.block, scale=scale,
        )  # fmt: skip
        return kept(mass, q, k, p)
