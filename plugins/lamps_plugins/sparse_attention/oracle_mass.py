"""The mass of blocks under the true softmax: what scoring by composites tries to foresee.

    M[I, J] = mean over the queries i of I of sum over the keys j of J of softmax(scale q_i . k_j)

No cheaper than dense attention, so it is no candidate for speed but the upper bound of quality at
a given density for rules that keep the largest masses. It is equation (3) of UniSparse,
arXiv 2512.14082, with groups of one token. Oracle: ``tau = 1`` equals dense attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamps_plugins.sparse_attention._masses import MassParams, bundles, kept, shared
from lamps_plugins.sparse_attention._rule import Rule, rule_spec

if TYPE_CHECKING:
    from lamps_kernels._blocks import Blocks
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(MassParams):
    """Hyperparameters of the oracle."""


class OracleMass(Rule[Params]):
    """Blocks with most of the true mass."""

    spec = rule_spec(summary="keeps the blocks with most of the true attention; not cheap")

    def select(self, q: Tensor, k: Tensor, *, scale: float, layer: int) -> Blocks:
        """Masses of single tokens."""
        from lamps_kernels.composite_mass import composite_mass

        p = self.params
        mass = composite_mass(
            q.float(), k.float(), queries=q.shape[2], keys=k.shape[2], group_q=1, group_k=1,
            block=p.block, scale=scale,
        )  # fmt: skip
        return kept(shared(mass, bundles(p, q, k)), q, k, p)
