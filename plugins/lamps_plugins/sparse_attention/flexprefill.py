"""Blocks until a share of the last queries' attention is covered, by lines or by pooled scores.

Paper: Lai et al., FlexPrefill: A Context-Aware Sparse Attention Mechanism for Efficient
Long-Sequence Inference, ICLR 2025, arXiv 2502.20766, section 3 and algorithms 1 to 4.

For each head, the last queries' true masses over blocks of keys are compared with those of mean
query and mean keys. Where the root of their Jensen-Shannon divergence (in nats) is below
``divergence``, pooled scores can be trusted, and each row keeps the fewest blocks that hold
``tau`` of its pooled mass. Elsewhere the fewest vertical and the fewest slash lines that hold
``tau`` each (see `_lines`) are kept in all rows. Oracle: ``divergence = 1`` trusts always and
equals `mean_block` with a list for each head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamps import space as hp
from lamps.method import Paper
from lamps_plugins.sparse_attention._fixed import listed
from lamps_plugins.sparse_attention._lines import last_lines, lines_mask, most
from lamps_plugins.sparse_attention._masses import MassParams, bundles, kept, mean_masses, shared
from lamps_plugins.sparse_attention._rule import Rule, rule_spec

if TYPE_CHECKING:
    from lamps_kernels._blocks import Blocks
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(MassParams):
    """Hyperparameters of FlexPrefill."""

    divergence: float = hp.real(
        0.1, low=0.0, high=1.0, doc="Largest distance at which pooled scores are trusted."
    )
    heads: str = hp.choice(
        "each", ("group", "each"), doc="Whether heads that share keys share a list of blocks."
    )


class FlexPrefill(Rule[Params]):
    """Lines or pooled scores, head by head."""

    spec = rule_spec(
        summary="covers a share of the last queries' attention by lines or by pooled scores",
        paper=Paper(
            title="FlexPrefill: A Context-Aware Sparse Attention Mechanism for Efficient "
            "Long-Sequence Inference",
            arxiv="2502.20766",
            venue="ICLR 2025",
            section="3",
        ),
    )

    def select(self, q: Tensor, k: Tensor, *, scale: float, layer: int) -> Blocks:
        """Both choices, and for each list the one that fits."""
        import torch
        from lamps_kernels._blocks import mask_of_blocks

        p, n = self.params, bundles(self.params, q, k)
        pooled = shared(mean_masses(q, k, block=p.block, scale=scale), n)
        lines = last_lines(q, k, block=p.block, scale=scale)
        vertical, slash = (shared(masses, n) for masses in lines)
        trusted = distance(vertical, pooled[:, :, -1]) < p.divergence
        crossed = lines_mask(
            most(vertical, p.tau), most(slash, p.tau), queries=q.shape[2], keys=k.shape[2],
            block=p.block,
        )  # fmt: skip
        covered = mask_of_blocks(kept(pooled, q, k, p))
        return listed(p, q, k, torch.where(trusted[..., None, None], covered, crossed))


def distance(a: Tensor, b: Tensor) -> Tensor:
    """Root of the Jensen-Shannon divergence of distributions over the last axis, in nats."""
    middle = (a + b) / 2
    tiny = 1e-12
    parts = (x * ((x + tiny) / (middle + tiny)).log() for x in (a, b))
    divergence: Tensor = sum(parts).sum(-1) / 2  # type: ignore[union-attr]
    return divergence.clamp_min(0).sqrt()
