"""What rules that score blocks share: settings, heads that go together, and the selection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lamps import space as hp
from lamps_plugins.sparse_attention._rule import BlockParams

if TYPE_CHECKING:
    from lamps_kernels._blocks import Blocks
    from torch import Tensor

__all__ = ["MassParams", "bundles", "kept", "mean_masses", "shared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MassParams(BlockParams):
    """Settings of a rule that keeps the blocks with the largest share of a mass."""

    tau: float = hp.real(
        0.95, low=0.7, high=0.995, doc="Share of the mass that the kept blocks hold."
    )
    min_blocks: int = hp.integer(2, low=1, high=8, doc="Blocks that are kept at least.")
    max_blocks: int = hp.fixed(0, doc="Blocks that are kept at most; 0 for no bound.")
    heads: str = hp.choice(
        "group",
        ("group", "each"),
        doc="Whether heads that share keys share a list of blocks, or each has its own.",
    )


def bundles(params: MassParams, q: Tensor, k: Tensor) -> int:
    """Lists that the heads of ``q`` have."""
    return int(k.shape[1] if params.heads == "group" else q.shape[1])


def shared(mass: Tensor, n: int) -> Tensor:
    """Masses of bundles of heads: the mean over the heads of each. [B, H, ...] -> [B, n, ...]."""
    if mass.shape[1] == n:
        return mass
    return mass.view(mass.shape[0], n, -1, *mass.shape[2:]).mean(2)


def kept(mass: Tensor, q: Tensor, k: Tensor, params: MassParams, **changes: Any) -> Blocks:
    """The blocks that `select_blocks` keeps of the masses of a rule.

    Args:
        mass: Shape: [B, bundles, n_q, n_k] float32.
        q: Shape: [B, H, Lq, D].
        k: Shape: [B, Hkv, Lk, D].
        params: Settings of the rule.
        changes: Settings of `select_blocks` that differ.
    """
    from lamps_kernels.select_blocks import select_blocks

    settings: dict[str, Any] = {
        "queries": q.shape[2],
        "keys": k.shape[2],
        "block": params.block,
        "tau": params.tau,
        "sink": params.sink,
        "local": params.local,
        "min_blocks": params.min_blocks,
        "max_blocks": max(params.max_blocks, params.min_blocks) if params.max_blocks else None,
    }
    return select_blocks(mass, **settings | changes)


def mean_masses(q: Tensor, k: Tensor, *, block: int, scale: float) -> Tensor:
    """Masses between the mean query and the mean key of each block. [B, H, n_q, n_k] float32."""
    from lamps_kernels.composite_mass import composite_mass
    from lamps_kernels.pool_groups import pool_groups

    return composite_mass(
        pool_groups(q, size=block), pool_groups(k, size=block), queries=q.shape[2],
        keys=k.shape[2], group_q=block, group_k=block, block=block, scale=scale,
    )  # fmt: skip
