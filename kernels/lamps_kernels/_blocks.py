"""Lists of kept blocks: what selection writes and attention reads."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Blocks(NamedTuple):
    """Lists of kept blocks.

    Args:
        counts: Blocks of each row. Shape: [B, H, n_q] int32.
        lists: Their numbers, ascending; -1 behind the last. Shape: [B, H, n_q, n_k] int32.
    """

    counts: Tensor
    lists: Tensor


def visible_and_forced(
    queries: int,
    keys: int,
    block: int,
    *,
    sink: int = 0,
    local: int = 0,
    causal: bool = True,
    device: torch.device | None = None,
) -> tuple[Tensor, Tensor]:
    """Which blocks a row may see, and which it always keeps.

    Args:
        queries: As for `select_blocks`, and so are the others.
        keys: See above.
        block: See above.
        sink: See above.
        local: See above.
        causal: See above.
        device: Where the answer lies.

    Returns:
        Two tensors. Shape: [ceil(queries / block), ceil(keys / block)] bool.
    """
    row = torch.arange(-(-queries // block), device=device)[:, None]
    column = torch.arange(-(-keys // block), device=device)[None, :]
    first, last = _diagonal(row, queries, keys, block)
    forced = (column >= first - local) & (column <= last) | (column < sink)
    if not causal:
        return torch.ones_like(forced), forced
    return column <= last, forced & (column <= last)


def _diagonal(row: Tensor, queries: int, keys: int, block: int) -> tuple[Tensor, Tensor]:
    """First and last block of keys in which the tokens of a block of queries lie."""
    offset = max(keys - queries, 0)
    first = (offset + row * block) // block
    last = (offset + ((row + 1) * block).clamp_max(queries) - 1) // block
    most = -(-keys // block) - 1
    return first.clamp_max(most), last.clamp_max(most)


def blocks_of_mask(mask: Tensor) -> Blocks:
    """The lists of a mask that says which blocks are kept.

    Args:
        mask: Shape: [B, H, n_q, n_k] bool.
    """
    column = torch.arange(mask.shape[-1], dtype=torch.int32, device=mask.device)
    # What is not kept sorts behind what is.
    lists = torch.where(mask, column, mask.shape[-1]).sort(-1).values
    return Blocks(mask.sum(-1, dtype=torch.int32), lists.masked_fill(lists == mask.shape[-1], -1))


def mask_of_blocks(blocks: Blocks) -> Tensor:
    """The mask of some lists, the inverse of `blocks_of_mask`. Shape: [B, H, n_q, n_k] bool."""
    lists = blocks.lists
    n_k = lists.shape[-1]
    mask = torch.zeros((*lists.shape[:-1], n_k + 1), dtype=torch.bool, device=lists.device)
    mask.scatter_(-1, torch.where(lists < 0, n_k, lists).long(), True)
    return mask[..., :n_k]


def check_lists(
    q: Tensor, k: Tensor, counts: Tensor, lists: Tensor, block: int, causal: bool
) -> None:
    bundles = counts.shape[1] if counts.ndim == 3 else 0
    rows = -(-q.shape[2] // block)
    if (
        not bundles
        or tuple(counts.shape) != (q.shape[0], bundles, rows)
        or q.shape[1] % bundles
        or bundles % k.shape[1]
        or lists.shape[:-1] != counts.shape
        or {counts.dtype, lists.dtype} != {torch.int32}
    ):
        raise ValueError(
            f"counts are {counts.dtype} {list(counts.shape)}, lists {lists.dtype} "
            f"{list(lists.shape)}; expected int32 [{q.shape[0]}, bundles, {rows}] and one more "
            f"axis, bundles between {k.shape[1]} and {q.shape[1]}"
        )
    if counts.is_cuda:
        return  # looking at them would wait for the device
    if int(counts.min()) < 1 or int(counts.max()) > lists.shape[-1]:
        raise ValueError(
            f"counts run from {int(counts.min())} to {int(counts.max())}; expected 1 to "
            f"{lists.shape[-1]}"
        )
    most = -(-k.shape[2] // block) - 1
    listed = torch.arange(lists.shape[-1]) < counts[..., None]
    if bool((listed & ((lists < 0) | (lists > most))).any()):
        raise ValueError(f"lists lists a block that is not there; expected 0 to {most}")
    # Ascending lists, so the first block is the one that the first query of a row has to see.
    start = (k.shape[2] - q.shape[2] if causal else k.shape[2]) + torch.arange(rows) * block
    if bool((lists[..., 0] * block > start).any()):
        raise ValueError("lists hides every listed key from a query; list the diagonal's blocks")
