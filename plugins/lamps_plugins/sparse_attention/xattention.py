"""Sums along antidiagonals of the scores tell which blocks matter.

Paper: Xu et al., XAttention: Block Sparse Attention with Antidiagonal Scoring, ICML 2025,
arXiv 2503.16428, section 2.

With ``stride`` s, the s queries of group a and the s keys of group b give one number,

    z_ab = scale / s * sum over i < s of q_{a s + s - 1 - i} . k_{b s + i},

the mean over an antidiagonal, which crosses every vertical and every diagonal line of the square.
Softmax over the visible b, summed over blocks, averaged over rows: the fewest blocks of a row that
hold ``tau`` are kept. Ours: one threshold for all heads. Oracle: with stride 1 the masses are
those of `oracle_mass`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamps import space as hp
from lamps.method import Paper
from lamps_plugins.sparse_attention._masses import MassParams, bundles, kept, shared
from lamps_plugins.sparse_attention._rule import Rule, rule_spec

if TYPE_CHECKING:
    from lamps_kernels._blocks import Blocks
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(MassParams):
    """Hyperparameters of XAttention."""

    tau: float = hp.real(
        0.9, low=0.7, high=0.995, doc="Share of the mass that the kept blocks hold."
    )
    stride: int = hp.choice(16, (4, 8, 16, 32), doc="Tokens of a group, s.")


class XAttention(Rule[Params]):
    """Blocks with most of the mass of antidiagonals."""

    spec = rule_spec(
        summary="keeps the blocks with the largest sums along antidiagonals",
        paper=Paper(
            title="XAttention: Block Sparse Attention with Antidiagonal Scoring",
            arxiv="2503.16428",
            venue="ICML 2025",
            section="2",
        ),
    )

    def select(self, q: Tensor, k: Tensor, *, scale: float, layer: int) -> Blocks:
        """A group of tokens is one long vector, the queries' in reverse order."""
        from lamps_kernels.composite_mass import composite_mass

        p, s = self.params, self.params.stride
        mass = composite_mass(
            grouped(q, s).flip(3).flatten(3), grouped(k, s).flatten(3), queries=q.shape[2],
            keys=k.shape[2], group_q=s, group_k=s, block=p.block, scale=scale / s,
        )  # fmt: skip
        return kept(shared(mass, bundles(p, q, k)), q, k, p)


def grouped(x: Tensor, size: int) -> Tensor:
    """Tokens in groups, the last one filled up with zeros. [B, H, ceil(L / size), size, D]."""
    import torch

    x = torch.nn.functional.pad(x.float(), (0, 0, 0, -x.shape[2] % size))
    return x.reshape(*x.shape[:2], -1, size, x.shape[3])
