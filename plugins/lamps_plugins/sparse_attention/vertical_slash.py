"""The strongest columns and diagonals of attention, found from the last queries.

Paper: Jiang et al., MInference 1.0: Accelerating Pre-filling for Long-Context LLMs via Dynamic
Sparse Attention, NeurIPS 2024, arXiv 2407.02490, section 3.2, its vertical-slash pattern.

The ``vertical`` share of the columns of blocks and the ``slash`` share of the diagonals with the
largest masses (see `_lines`) are kept, the same for all rows. Oracle: with ``vertical = 1`` it
equals dense attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamps import space as hp
from lamps.method import Paper
from lamps_plugins.sparse_attention._fixed import listed
from lamps_plugins.sparse_attention._lines import last_lines, lines_mask
from lamps_plugins.sparse_attention._masses import shared
from lamps_plugins.sparse_attention._rule import BlockParams, Rule, rule_spec

if TYPE_CHECKING:
    from lamps_kernels._blocks import Blocks
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(BlockParams):
    """Hyperparameters of vertical and slash lines."""

    vertical: float = hp.real(
        0.1, low=0.01, high=1.0, log=True, doc="Share of the columns that is kept."
    )
    slash: float = hp.real(
        0.1, low=0.01, high=1.0, log=True, doc="Share of the diagonals that is kept."
    )


class VerticalSlash(Rule[Params]):
    """Columns and diagonals."""

    spec = rule_spec(
        summary="keeps the columns and diagonals that the last queries attend to most",
        paper=Paper(
            title="MInference 1.0: Accelerating Pre-filling for Long-Context LLMs via Dynamic "
            "Sparse Attention",
            arxiv="2407.02490",
            venue="NeurIPS 2024",
            section="3.2",
        ),
    )

    def select(self, q: Tensor, k: Tensor, *, scale: float, layer: int) -> Blocks:
        """One choice for the heads that share keys."""
        p = self.params
        lines = last_lines(q, k, block=p.block, scale=scale)
        vertical, slash = (
            largest(shared(masses, k.shape[1]), share)
            for masses, share in zip(lines, (p.vertical, p.slash), strict=True)
        )
        mask = lines_mask(vertical, slash, queries=q.shape[2], keys=k.shape[2], block=p.block)
        return listed(p, q, k, mask)


def largest(masses: Tensor, share: float) -> Tensor:
    """The largest entries of the last axis, a share of them and at least one, as a mask."""
    import torch

    n = max(1, round(share * masses.shape[-1]))
    mask = torch.zeros_like(masses, dtype=torch.bool)
    return mask.scatter_(-1, masses.topk(n, -1).indices, True)
