"""A sliding window and the first tokens: what a fixed pattern keeps without looking.

Paper: Xiao et al., Efficient Streaming Language Models with Attention Sinks, ICLR 2024,
arXiv 2309.17453, section 3.

Of each block of queries the ``window`` blocks before it, itself, and the first ``sink`` blocks are
kept. Ours: whole blocks instead of tokens, and prefill instead of a stream. Oracle: with a window
as long as the sequence it equals dense attention.
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
    """Hyperparameters of window and sink."""

    local: int = hp.integer(8, low=1, high=64, log=True, doc="Blocks of the window.")


class WindowSink(Rule[Params]):
    """The diagonal, the window before it, and the sink."""

    spec = rule_spec(
        summary="keeps a sliding window and the first blocks",
        paper=Paper(
            title="Efficient Streaming Language Models with Attention Sinks",
            arxiv="2309.17453",
            venue="ICLR 2024",
            section="3",
        ),
    )

    def select(self, q: Tensor, k: Tensor, *, scale: float, layer: int) -> Blocks:
        """The same for every head."""
        return listed(self.params, q, k, None)
