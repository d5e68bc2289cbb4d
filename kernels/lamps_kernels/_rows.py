"""Attention of one block of queries to its list of keys, in torch operations."""

from __future__ import annotations

import torch
from torch import Tensor


def attend_row(
    q: Tensor, k: Tensor, v: Tensor, blocks: list[int], block: int, first: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention of one block of queries to the listed keys.

    Args:
        q: Queries of the heads of a bundle. Shape: [heads, n, D].
        k: Shape: [Lk, D].
        v: Shape: [Lk, D].
        blocks: Listed blocks, ascending.
        block: Tokens of a block.
        first: Position of the first query among the keys; Lk where all see everything.
        scale: Factor on the dot products.

    Returns:
        Output [heads, n, D] and log-sum-exp [heads, n].
    """
    clear = [j for j in blocks if (j + 1) * block - 1 <= first]  # blocks that all queries see
    rest = blocks[len(clear) :]
    parts = []
    if clear:
        together = q.reshape(1, 1, -1, q.shape[2])
        keys, values = (_gather(x, clear, block)[None, None] for x in (k, v))
        out, lse = _attend(together, keys, values, None, scale)
        parts.append((out.view(q.shape), lse.view(q.shape[:2])))
    if rest:
        ends = [(j * block, min((j + 1) * block, len(k))) for j in rest]
        at = torch.cat([torch.arange(*end, device=q.device) for end in ends])
        keys, values = (_gather(x, rest, block).expand(1, len(q), -1, -1) for x in (k, v))
        square = ends[0][0] == first and len(at) == q.shape[1]
        hidden = at > first + torch.arange(q.shape[1], device=q.device)[:, None]
        out, lse = _attend(q[None], keys, values, hidden, scale, square=square)
        parts.append((out[0], lse[0]))
    if len(parts) == 1:
        return parts[0]
    (a, a_lse), (b, b_lse) = parts
    lse = torch.logaddexp(a_lse, b_lse)
    shares = ((part - lse).exp()[..., None] for part in (a_lse, b_lse))
    return a * next(shares) + b * next(shares), lse


def _attend(
    q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None, scale: float, *, square: bool = False
) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp of dense attention to given keys.

    Args:
        q: Shape: [1, heads, n, D].
        k: Shape: [1, heads, m, D].
        v: Shape: [1, heads, m, D].
        hidden: Pairs that are masked, or None. Shape: [n, m] bool.
        scale: Factor on the dot products.
        square: Whether those are the keys behind the query of the same number, and no others.
    """
    if q.device.type != "cpu":
        return _plain(q, k, v, hidden, scale)
    mask = None
    if hidden is not None and not square:
        mask = torch.zeros(hidden.shape, dtype=q.dtype).masked_fill_(hidden, -torch.inf)
    # What scaled_dot_product_attention runs here, but with the log-sum-exp.
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, is_causal=square, attn_mask=mask, scale=scale
    )
    return out, lse


def _plain(
    q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """`_attend` by two products and a softmax."""
    s = scale * q.float() @ k.float().mT
    if hidden is not None:
        s.masked_fill_(hidden, -torch.inf)
    return s.softmax(-1) @ v.float(), s.logsumexp(-1)


def _gather(x: Tensor, blocks: list[int], block: int) -> Tensor:
    """The tokens of some blocks, uncopied where they follow each other. [n, D]."""
    if blocks[-1] - blocks[0] == len(blocks) - 1:
        return x[blocks[0] * block : (blocks[-1] + 1) * block]
    full = len(x) // block
    whole = [j for j in blocks if j < full]
    at = torch.tensor(whole, device=x.device)
    found = x[: full * block].view(full, block, -1).index_select(0, at).flatten(0, 1)
    if len(whole) < len(blocks):
        found = torch.cat([found, x[full * block :]])
    return found
