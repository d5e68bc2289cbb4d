"""Trees of draft tokens: their masks and positions, and how they are grown from probabilities.

A *row* is one token of a forward pass. Row 0 is the *root*, the token emitted last; rows 1 to n
are *nodes*, tokens that may be accepted; rows behind them are *probes*, which are there to be read
from and are never accepted (mask tokens, windows of lookahead). Every row but the root has a
parent before it, sees the cache, its ancestors and itself, and stands as many positions behind the
root as it has ancestors. So a chain, a tree, masks below every node and a window of lookahead are
all said by one tuple of parents, and forward passes of equal parents share mask and positions.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

__all__ = [
    "Layout", "Tree", "best_first", "chains", "layout", "static_shape", "top1_expansion",
]  # fmt: skip

Options = tuple[Sequence[int], Sequence[float]]
"""Tokens that may come next with their probabilities, likeliest first."""

_STEP = 256  # columns by which mask buffers grow


class Tree(NamedTuple):
    """Nodes in an order in which parents come first.

    Args:
        tokens: Token of each node.
        parents: Row of each node's parent: 0 for the root, i for the i-th node (from 1).
    """

    tokens: list[int]
    parents: list[int]


class Layout:
    """Mask and positions of a forward pass whose rows have these parents.

    Args:
        parents: Row of the parent of rows 1, 2, ...; earlier rows only.

    Attributes:
        depth: Ancestors of each row. Shape: [rows] int64.
        sees: Whether row i sees row j. Shape: [rows, rows] bool.
    """

    def __init__(self, parents: tuple[int, ...]) -> None:
        rows = len(parents) + 1
        self.sees: NDArray[np.bool_] = np.zeros((rows, rows), dtype=bool)
        self.sees[0, 0] = True
        for row, parent in enumerate(parents, start=1):
            self.sees[row] = self.sees[parent]
            self.sees[row, row] = True
        self.depth: NDArray[np.int64] = self.sees.sum(axis=1).astype(np.int64) - 1
        self._buffers: dict[tuple[torch.dtype, torch.device], torch.Tensor] = {}

    def mask(self, cached: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """What is added to attention scores: 0 where a row may look, else minus infinity.

        The template lies at the right end of a buffer of zeros, so a longer cache takes a wider
        view of it and costs nothing.

        Returns:
            A view. Shape: [rows, cached + rows].
        """
        import torch

        rows = len(self.depth)
        buffer = self._buffers.get((dtype, device))
        if buffer is None or buffer.shape[1] < cached + rows:
            width = -(-cached // _STEP) * _STEP + rows
            buffer = torch.zeros((rows, width), dtype=dtype)
            hidden = torch.from_numpy(~self.sees)
            buffer[:, width - rows :].masked_fill_(hidden, float("-inf"))
            buffer = self._buffers[dtype, device] = buffer.to(device)
        return buffer[:, buffer.shape[1] - rows - cached :]


@functools.lru_cache(maxsize=64)
def layout(parents: tuple[int, ...]) -> Layout:
    """The layout of these parents; equal ones share their buffers."""
    return Layout(parents)


def best_first(
    budget: int,
    options: Callable[[tuple[int, ...]], Options],
    *,
    depth: int,
    p_min: float = 0.0,
    root: int | None = None,
    given: Sequence[int] = (),
) -> Tree:
    """The ``budget`` likeliest nodes, closed under ancestors, where ``P(c) = P(parent) p(c)``.

    A child is never likelier than its parent, so taking the likeliest open node again and again
    gives the globally best set. A child with its parent's token is left out, as is what is less
    likely than ``p_min``, but one node stays.

    Args:
        budget: Nodes, at most.
        options: From the tokens on the path below the root to what may follow.
        depth: Deepest node.
        p_min: Smallest probability of a path.
        root: The root's token, which its children must not repeat.
        given: Tokens that are children of the root in any case, likeliest of all.

    Returns:
        The tree; siblings are different tokens.
    """
    tokens: list[int] = []
    parents: list[int] = []
    paths: list[tuple[int, ...]] = [()]
    # Open places: (-P, order of opening, row of the parent, next option, P of the parent)
    open_: list[tuple[float, int, int, int, float]] = []
    found: list[Options] = []
    opened = 0

    def offer(row: int, rank: int, above: float) -> None:
        nonlocal opened
        words, chances = found[row]
        taken = given if row == 0 else ()
        last = tokens[row - 1] if row else root
        while rank < len(words) and (words[rank] == last or words[rank] in taken):
            rank += 1
        if rank < len(words):
            heapq.heappush(open_, (-above * chances[rank], opened, row, rank, above))
            opened += 1

    def grow(row: int, probability: float) -> None:
        deep = len(paths[row]) >= depth
        found.append(([], []) if deep else options(paths[row]))
        offer(row, 0, probability)

    def add(parent: int, token: int, probability: float) -> None:
        tokens.append(token)
        parents.append(parent)
        paths.append((*paths[parent], token))
        grow(len(tokens), probability)

    given = [t for t in dict.fromkeys(given) if t != root][:budget]
    grow(0, 1.0)
    for token in given:
        add(0, token, 1.0 / (1 + len(given)))
    while open_ and len(tokens) < budget:
        minus, _, row, rank, above = heapq.heappop(open_)
        if -minus < p_min and tokens:
            break
        offer(row, rank + 1, above)
        add(row, found[row][0][rank], -minus)
    return Tree(tokens, parents)


def top1_expansion(
    shape: Sequence[int], levels: Sequence[Options], *, root: int | None = None,
    p_min: float = 0.0, given: Sequence[int] = (),
) -> Tree:  # fmt: skip
    """A tree of fixed shape: at each depth only the best node has children.

    Args:
        shape: Children of the best node of each depth, from the root on.
        levels: What may stand at each depth.
        root: The root's token, which its children must not repeat.
        p_min: Smallest probability of a path; less likely nodes are left out, but one stays.
        given: Tokens that take the last places below the root.
    """
    tokens: list[int] = []
    parents: list[int] = []
    parent, last, above = 0, root, 1.0
    for depth, (count, (words, chances)) in enumerate(zip(shape, levels, strict=False)):
        forced = [t for t in dict.fromkeys(given) if t != last][:count] if depth == 0 else []
        kept = [
            (word, above * chance)
            for word, chance in zip(words, chances, strict=True)
            if word != last and word not in forced
        ][: count - len(forced)]
        kept = [pair for pair in kept if pair[1] >= p_min] or (kept[:1] if not tokens else [])
        first = len(tokens) + 1
        for word in [word for word, _ in kept] + forced:
            tokens.append(word)
            parents.append(parent)
        if not kept:
            break
        parent, (last, above) = first, kept[0]
    return Tree(tokens, parents)


def chains(tails: Sequence[Sequence[int]]) -> Tree:
    """Several continuations as one tree; equal beginnings are shared."""
    tokens: list[int] = []
    parents: list[int] = []
    rows: dict[tuple[int, int], int] = {}
    for tail in tails:
        parent = 0
        for token in tail:
            row = rows.get((parent, token))
            if row is None:
                tokens.append(token)
                parents.append(parent)
                row = rows[parent, token] = len(tokens)
            parent = row
    return Tree(tokens, parents)


_SHARES: dict[int, tuple[float, ...]] = {
    1: (1.0,),
    2: (15 / 19, 4 / 19),
    3: (7 / 15, 5 / 15, 3 / 15),
}


def static_shape(k: int, nodes: int) -> tuple[int, ...]:
    """How a budget of nodes is spread over the depths of a static tree with k masks.

    In the proportions of the trees that were found good at 60 to 64 rows a call; every depth that
    is reached has at least one node.

    Example:
        >>> static_shape(1, 29), static_shape(2, 19), static_shape(3, 15), static_shape(3, 2)
        ((29,), (15, 4), (7, 5, 3), (1, 1))
    """
    reached = min(k, nodes)
    shares = _SHARES[reached] if reached in _SHARES else (1 / reached,) * reached
    counts = [max(1, int(share * nodes + 1e-9)) for share in shares]
    while sum(counts) > nodes:
        counts[counts.index(max(counts))] -= 1
    counts[0] += nodes - sum(counts)
    return tuple(counts)
