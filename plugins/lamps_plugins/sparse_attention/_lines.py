"""Vertical and slash lines: what the last queries attend to, by column and by distance.

With the softmax p of the last queries over all keys they see,

    vertical[J] = mean over the queries of the sum of p over the keys of block J
    slash[d]    = mean over the queries of the sum of p over the keys that lie d blocks before it

where a key lies d blocks before a query if their distance is d S to (d + 1) S - 1 tokens. A line
of distance d crosses the blocks d and d + 1 before a block of queries that begins where a block
of keys does.

Source: Jiang et al., MInference 1.0, arXiv 2407.02490, section 3.2; whole blocks in place of
tokens are ours, since blocks are what attention reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Lines", "last_lines", "lines_mask", "most"]

LAST = 64
"""Queries that are looked at, at most."""


class Lines(NamedTuple):
    """Masses of lines; the entries of each sum to 1.

    Args:
        vertical: Shape: [B, H, n_k].
        slash: Shape: [B, H, n_k].
    """

    vertical: Tensor
    slash: Tensor


def last_lines(q: Tensor, k: Tensor, *, block: int, scale: float) -> Lines:
    """Masses of all lines, from the last queries.

    Args:
        q: Shape: [B, H, Lq, D].
        k: Shape: [B, Hkv, Lk, D].
        block: Tokens of a block, S.
        scale: Factor on the dot products.
    """
    import torch

    n, n_k = min(LAST, block, q.shape[2]), k.shape[2]
    last = q[:, :, -n:].float().reshape(q.shape[0], k.shape[1], -1, n, q.shape[3]) * scale
    s = torch.einsum("bgrqd,bgkd->bgrqk", last, k.float()).flatten(1, 2)
    key = torch.arange(n_k, device=q.device)
    at = key[n_k - n :, None]
    p = s.masked_fill(key > at, -torch.inf).softmax(-1) / n
    blocks = -(-n_k // block)
    vertical = p.new_zeros((*p.shape[:2], blocks))
    vertical.index_add_(2, key // block, p.sum(2))
    slash = p.new_zeros((*p.shape[:2], blocks))
    distance = ((at - key).clamp_min(0) // block).flatten()
    slash.index_add_(2, distance, p.flatten(2))
    return Lines(vertical, slash)


def lines_mask(vertical: Tensor, slash: Tensor, *, queries: int, keys: int, block: int) -> Tensor:
    """Blocks that chosen lines cross.

    Args:
        vertical: Chosen columns. Shape: [B, H, n_k] bool.
        slash: Chosen distances. Shape: [B, H, n_k] bool.
        queries: Tokens of the queries, the last ones.
        keys: All tokens.
        block: Tokens of a block.

    Returns:
        Shape: [B, H, n_q, n_k] bool.
    """
    import torch

    offset, most_ = keys - queries, slash.shape[2] - 1
    rows = torch.arange(-(-queries // block), device=slash.device)[:, None]
    columns = torch.arange(most_ + 1, device=slash.device)
    # Queries that begin inside a block of keys lie in two, so a line crosses three.
    highest = -(-offset // block) + rows - columns
    mask = torch.zeros_like(slash[:, :, None] & (highest >= 0))
    for less in range(2 if offset % block == 0 else 3):
        distance = highest - less
        mask |= slash[..., distance.clamp(0, most_)] & (distance >= 0) & (distance <= most_)
    return mask | vertical[:, :, None]


def most(masses: Tensor, tau: float) -> Tensor:
    """The fewest entries of the last axis whose sum reaches ``tau``, as a mask."""
    order = masses.sort(-1, descending=True)
    before = order.values.cumsum(-1) - order.values
    chosen = before < tau
    return chosen.zero_().scatter_(-1, order.indices, before < tau)
