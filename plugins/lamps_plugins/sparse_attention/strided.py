"""A window, the first blocks and every n-th block: a fixed pattern that reaches everywhere.

Paper: Zaheer et al., Big Bird: Transformers for Longer Sequences, NeurIPS 2020, arXiv 2007.14062,
section 2, with regular in place of random blocks, as in Child et al., arXiv 1904.10509.

Block J is kept for block I of queries if J is among the first ``sink``, at most ``local`` before
I, or J + 1 is a multiple of ``stride``. Oracle: with stride 1 it equals dense attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamps import space as hp
from lamps.method import Paper
from lamps_plugins.sparse_attention._fixed import listed
from lamps_plugins.sparse_attention._rule import BlockParams, Rule, rule_spec

if TYPE_CHECKING:
    from lamps_kernels._blocks import Blocks
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(BlockParams):
    """Hyperparameters of the strided pattern."""

    local: int = hp.integer(4, low=1, high=64, log=True, doc="Blocks of the window.")
    stride: int = hp.integer(8, low=1, high=32, log=True, doc="One block in so many is kept.")


class Strided(Rule[Params]):
    """Window, sink and a regular grid."""

    spec = rule_spec(
        summary="keeps a window, the first blocks and every n-th block",
        paper=Paper(
            title="Big Bird: Transformers for Longer Sequences",
            arxiv="2007.14062",
            venue="NeurIPS 2020",
            section="2",
        ),
    )

    def select(self, q: Tensor, k: Tensor, *, scale: float, layer: int) -> Blocks:
        """The same for every head."""
        import torch

        column = torch.arange(-(-k.shape[2] // self.block), device=q.device)
        return listed(self.params, q, k, (column + 1) % self.params.stride == 0)
