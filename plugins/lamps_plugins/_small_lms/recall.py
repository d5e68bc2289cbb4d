"""Multi-query associative recall: pairs of key and value in noise, and at the end queries of keys.

    <bos> . . k7 v3 . k1 v9 . . . k4 v2 .   ...   k1 v9 k7 v3 k4 v2

A sequence of length L shows some pairs, each key once, in even places among filler tokens; its
last part shows keys again, each followed by its value. The value after a queried key is what a
model has to predict; it depends on one place of the context, wherever that lies.

Source: the task of Arora et al., Zoology, arXiv 2312.04927, section 3, with filler between pairs
so that the number of pairs does not grow with the length.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lamps.errors import ProblemError

__all__ = ["BOS", "FILLERS", "IGNORED", "KEYS", "VALUES", "VOCABULARY", "RecallBatch", "batch"]

VOCABULARY = 256
BOS = 0
FILLERS = range(1, 32)
KEYS = range(32, 192)
VALUES = range(192, 256)
IGNORED = -100
"""Target of a place at which nothing is asked."""

SHORTEST = 16
MOST_PAIRS = 128


class RecallBatch(NamedTuple):
    """Some sequences.

    Shape:
        tokens: [n, length] int64.
        targets: [n, length] int64; at the place of a queried key its value, else `IGNORED`. A
            model's logits at that place are compared with it, so targets are shifted already.
    """

    tokens: NDArray[np.int64]
    targets: NDArray[np.int64]


def batch(
    n: int, length: int, *, rng: Generator, pairs: int | None = None, queries: int | None = None
) -> RecallBatch:
    """Make sequences.

    Args:
        n: How many.
        length: Tokens of each, at least 16 and even.
        rng: Where everything is drawn from.
        pairs: Pairs of each; by default an eighth of the length, at most 128.
        queries: Keys asked for at the end; by default half of the pairs. Once all were asked, they
            are asked again in another order.

    Raises:
        ProblemError: The numbers do not fit into each other.

    Example:
        >>> made = batch(2, 32, rng=np.random.default_rng(0))
        >>> made.tokens.shape, int((made.targets != IGNORED).sum())
        ((2, 32), 4)
    """
    pairs = min(MOST_PAIRS, length // 8) if pairs is None else pairs
    queries = max(1, pairs // 2) if queries is None else queries
    shown = length - 2 * queries  # where pairs may lie
    if n < 1 or length < SHORTEST or length % 2:
        raise ProblemError(
            f"{n} sequences of {length} tokens: expected 1 or more, of an even length >= 16"
        )
    if queries < 1 or not 1 <= pairs <= len(KEYS) or 2 * pairs > shown - 2:
        raise ProblemError(
            f"{pairs} pairs and {queries} queries do not fit into {length} tokens; expected 1 or "
            f"more of both, pairs <= {len(KEYS)} and 2 pairs + 2 queries + 2 <= length"
        )
    tokens = rng.integers(FILLERS.start, FILLERS.stop, (n, length))
    tokens[:, 0] = BOS
    targets = np.full((n, length), IGNORED, dtype=np.int64)
    rows = np.arange(n)[:, None]
    keys = _chosen(rng, n, len(KEYS), pairs) + KEYS.start
    values = rng.integers(VALUES.start, VALUES.stop, (n, pairs))
    places = 2 + 2 * _chosen(rng, n, (shown - 2) // 2, pairs)
    tokens[rows, places], tokens[rows, places + 1] = keys, values
    rounds = [_chosen(rng, n, pairs, pairs) for _ in range(-(-queries // pairs))]
    asked = np.concatenate(rounds, axis=1)[:, :queries]
    at = shown + 2 * np.arange(queries)[None, :]
    tokens[rows, at], tokens[rows, at + 1] = keys[rows, asked], values[rows, asked]
    targets[rows, at] = values[rows, asked]
    return RecallBatch(tokens, targets)


def _chosen(rng: Generator, n: int, among: int, count: int) -> NDArray[np.int64]:
    """``count`` different numbers below ``among`` in each of n rows, in random order."""
    return np.argsort(rng.random((n, among)), axis=1)[:, :count]
