"""Random blocks at a given density: the control that any rule has to beat.

Each row keeps the diagonal, the first ``sink`` and the ``local`` before it, and of the other
visible blocks as many random ones as make ``density`` of the row, drawn anew for each layer, each
group of heads and each row from the trial's stream. Paper: none; the random part of Big Bird,
arXiv 2007.14062, by itself. Oracle: at density 1 it equals dense attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamps import space as hp
from lamps_plugins.sparse_attention._fixed import listed
from lamps_plugins.sparse_attention._rule import BlockParams, Rule, rule_spec

if TYPE_CHECKING:
    from lamps_kernels._blocks import Blocks
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(BlockParams):
    """Hyperparameters of random blocks."""

    density: float = hp.real(
        0.2, low=0.02, high=1.0, log=True, doc="Share of the visible blocks that is kept."
    )


class RandomBlocks(Rule[Params]):
    """Forced blocks and random ones."""

    spec = rule_spec(summary="keeps random blocks at a given density")

    def select(self, q: Tensor, k: Tensor, *, scale: float, layer: int) -> Blocks:
        """Other blocks in each layer and group of heads."""
        import torch
        from lamps_kernels._blocks import visible_and_forced

        p = self.params
        visible, forced = visible_and_forced(
            q.shape[2], k.shape[2], p.block, sink=p.sink, local=p.local
        )
        free = visible & ~forced
        wanted = (p.density * visible.sum(-1)).round() - forced.sum(-1)
        stream = torch.Generator().manual_seed(self.seed_ + layer)
        drawn = torch.rand(k.shape[1], *free.shape, generator=stream).masked_fill(~free, 2.0)
        mask = free & (drawn.argsort(-1).argsort(-1) < wanted[:, None])
        return listed(p, q, k, mask.to(q.device).expand(k.shape[0], -1, -1, -1))
