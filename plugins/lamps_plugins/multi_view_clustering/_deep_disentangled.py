"""The networks of IDCD: each view's latent in two parts, what views share and what is its own.

Encoders give ``z_v`` (semantic, q) and ``s_v`` (specific, r), both diagonal Gaussians; decoders
read the pooled z and the view's own s, so what views share must pass through z.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from lamps_plugins.multi_view_clustering._aggregate_correlated import pooled
from lamps_plugins.multi_view_clustering._aggregate_wasserstein import (
    Subsets,
    barycentre,
    drawn_subsets,
    mixture_mean,
)
from lamps_plugins.multi_view_clustering._deep_correlation import Correlation, Structure
from lamps_plugins.multi_view_clustering._deep_nets import (
    NARROW,
    GaussianEncoder,
    decoder,
)

Aggregator = Literal["mixture", "barycentre", "poe", "moe", "correlated"]


@dataclass(frozen=True, slots=True)
class Posteriors:
    """What the encoders say of some rows.

    Args:
        z: Means of the semantic part. Shape: [n, V, q].
        z_std: Its deviations.
        s: Means of the specific part. Shape: [n, V, r], r may be 0.
        s_std: Its deviations.
    """

    z: Tensor
    z_std: Tensor
    s: Tensor
    s_std: Tensor

    def take(self, rows: Tensor) -> Posteriors:
        """The same of some rows."""
        return Posteriors(self.z[rows], self.z_std[rows], self.s[rows], self.s_std[rows])


class DisentangledNets(nn.Module):
    """Encoders, decoders, and how views are pooled.

    Args:
        widths: Features of each view.
        hidden: Hidden layers of the encoders.
        shared: q.
        own: r; 0 leaves the specific part out.
        aggregator: ``mixture`` of Wasserstein barycentres over sets of views, the ``barycentre``
            of all observed ones, product of experts ``poe``, mixture of single views ``moe``, or
            ``correlated`` with a learned correlation.
        subsets: The sets of a mixture.
    """

    def __init__(
        self,
        widths: Sequence[int],
        hidden: Sequence[int],
        *,
        shared: int,
        own: int,
        aggregator: Aggregator,
        subsets: Subsets,
    ) -> None:
        super().__init__()
        parts = (shared, own) if own else (shared,)
        self.own, self.aggregator = own, aggregator
        self.subsets: Subsets = "singles+full" if aggregator == "moe" else subsets
        self.encoders = nn.ModuleList(
            GaussianEncoder(d, hidden, parts, start=NARROW) for d in widths
        )
        self.decoders = nn.ModuleList(decoder(shared + own, hidden, d) for d in widths)
        self.weight_logits = nn.Parameter(torch.zeros(len(widths)))
        structure: Structure = "full" if aggregator == "correlated" else "identity"
        self.correlation = Correlation(structure, len(widths), learned=True)

    def encode(self, views: Sequence[Tensor]) -> Posteriors:
        """What each view says of each row; of hidden cells, nothing of meaning."""
        found = [net(x) for net, x in zip(self.encoders, views, strict=True)]
        z = torch.stack([parts[0][0] for parts in found], 1)
        z_std = torch.stack([parts[0][1] for parts in found], 1)
        if not self.own:
            empty = z.new_zeros((*z.shape[:2], 0))
            return Posteriors(z, z_std, empty, empty)
        s = torch.stack([parts[1][0] for parts in found], 1)
        return Posteriors(z, z_std, s, torch.stack([parts[1][1] for parts in found], 1))

    def pool(self, said: Posteriors, sets: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of z over a set of views for each row, two of [n, q]."""
        if self.aggregator in ("poe", "correlated"):
            mean, var, _ = pooled(said.z, said.z_std, sets, self.correlation())
            return mean, var.sqrt()
        return barycentre(said.z, said.z_std, self.weight_logits, sets)

    def drawn(self, mask: Tensor) -> Tensor:
        """The set of views of each row that this training step pools. Shape: [n, V] bool."""
        if self.aggregator == "mixture":
            return drawn_subsets(mask, self.subsets)
        if self.aggregator == "moe":
            return drawn_subsets(mask, self.subsets, full_share=0.0)
        return mask

    def consensus(self, said: Posteriors, mask: Tensor) -> Tensor:
        """Z of a row from all its observed views, [n, q]: what is clustered."""
        if self.aggregator == "moe":
            weights = mask.float() / mask.sum(1, keepdim=True)
            return (weights[:, :, None] * said.z).sum(1)
        return self.pool(said, mask)[0]

    def mixture(self, said: Posteriors, mask: Tensor) -> Tensor:
        """Mean of the mixture over the sets of views, [n, q]: what donors are looked up by."""
        if self.aggregator == "mixture":
            return mixture_mean(said.z, self.weight_logits, mask, self.subsets)
        return self.consensus(said, mask)

    def decode(self, z: Tensor, s: Tensor) -> list[Tensor]:
        """All views from z [n, q] and the views' own s [n, V, r]."""
        return [net(torch.cat([z, s[:, v]], 1)) for v, net in enumerate(self.decoders)]
