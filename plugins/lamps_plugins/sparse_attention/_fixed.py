"""What rules with patterns share: the forced blocks, and lists of a mask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lamps_plugins.sparse_attention._rule import BlockParams

if TYPE_CHECKING:
    from lamps_kernels._blocks import Blocks
    from torch import Tensor

__all__ = ["listed"]


def listed(params: BlockParams, q: Tensor, k: Tensor, mask: Tensor | None) -> Blocks:
    """Lists of the visible blocks of a mask and of the forced ones.

    Args:
        params: Block, sink and window.
        q: Shape: [B, H, Lq, D].
        k: Shape: [B, Hkv, Lk, D].
        mask: More blocks to keep; None for the forced ones alone, by every group of heads.
            Shape: [B, bundles, n_q, n_k] bool, or what broadcasts to one bundle a group.
    """
    from lamps_kernels._blocks import blocks_of_mask, visible_and_forced

    visible, forced = visible_and_forced(
        q.shape[2], k.shape[2], params.block, sink=params.sink, local=params.local, device=q.device
    )
    kept = forced if mask is None else visible & mask | forced
    if kept.ndim < 4:
        kept = kept.expand(k.shape[0], k.shape[1], *visible.shape)
    return blocks_of_mask(kept)
