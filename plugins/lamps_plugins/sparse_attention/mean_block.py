"""One mean query and one mean key a block: the coarsest composites.

Paper: Zhang et al., SpargeAttention: Accurate and Training-free Sparse Attention, ICML 2025,
arXiv 2502.18137, section 3.3, without its quantisation and its test of how alike a block is.

    M[I, J] = softmax over J of scale mean(q in I) . mean(k in J)

The fewest blocks of a row that hold ``tau`` are kept. Each head of queries is pooled for itself,
masses of heads that share keys are averaged. It is `unisparse` with groups of a whole block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamps.method import Paper
from lamps_plugins.sparse_attention._masses import MassParams, bundles, kept, mean_masses, shared
from lamps_plugins.sparse_attention._rule import Rule, rule_spec

if TYPE_CHECKING:
    from lamps_kernels._blocks import Blocks
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(MassParams):
    """Hyperparameters of mean blocks."""


class MeanBlock(Rule[Params]):
    """Blocks whose means attend to each other."""

    spec = rule_spec(
        summary="keeps the blocks whose mean keys the mean query attends to",
        paper=Paper(
            title="SpargeAttention: Accurate and Training-free Sparse Attention",
            arxiv="2502.18137",
            venue="ICML 2025",
            section="3.3",
        ),
    )

    def select(self, q: Tensor, k: Tensor, *, scale: float, layer: int) -> Blocks:
        """The masses of `mean_masses`."""
        mass = mean_masses(q, k, block=self.block, scale=scale)
        return kept(shared(mass, bundles(self.params, q, k)), q, k, self.params)
