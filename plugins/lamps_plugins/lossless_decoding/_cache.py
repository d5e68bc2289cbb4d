"""Keys and values of a decoded text: rows of a tree are appended, those that were accepted kept.

A buffer for each layer holds the rows of the text so far. A forward pass appends the rows of its
tree behind them; afterwards the accepted ones, which need not lie side by side, are gathered by
one index into the place behind the text, and the rest is forgotten. Nothing is computed twice:
keys carry their positions already, which are those of the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

__all__ = ["TreeCache"]

_GROWTH = 64  # rows by which a buffer is made larger than asked


class _Rows(CacheLayerMixin):  # type: ignore[misc]
    """One layer: keys and values [1, heads, room, width], of which the first ``used`` count."""

    is_sliding = False
    is_croppable = True

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room, self.used = room, 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys, self.values = self._buffer(key_states), self._buffer(value_states)
        self.is_initialized = True

    def _buffer(self, like: Tensor) -> Tensor:
        return like.new_empty((1, like.shape[1], self.room, like.shape[3]))

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append rows; returns all rows."""
        end = self.used + key_states.shape[2]
        if not self.is_initialized:
            self.room = max(self.room, end)
            self.lazy_initialization(key_states, value_states)
        elif end > self.room:
            self.room = end + _GROWTH
            old = self.keys, self.values
            self.keys, self.values = self._buffer(key_states), self._buffer(value_states)
            self.keys[:, :, : self.used] = old[0][:, :, : self.used]
            self.values[:, :, : self.used] = old[1][:, :, : self.used]
        self.keys[:, :, self.used : end] = key_states
        self.values[:, :, self.used : end] = value_states
        self.used = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def keep(self, base: int, rows: Tensor | int) -> None:
        """Of the rows from ``base`` on, keep these (counted from there), in this order."""
        if isinstance(rows, int):  # the first ones, where they are
            self.used = base + rows
            return
        end = base + len(rows)
        for buffer in (self.keys, self.values):
            buffer[:, :, base:end] = buffer.index_select(2, rows + base)
        self.used = end

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.used + query_length, 0

    def get_seq_length(self) -> int:
        return self.used

    def get_max_length(self) -> int:
        return -1


class TreeCache(Cache):  # type: ignore[misc]
    """The cache that a model is given in place of transformers' own.

    Args:
        n_layers: Layers of the model.
        room: Rows for which memory is taken at once; more is taken when needed.
    """

    def __init__(self, n_layers: int, room: int) -> None:
        super().__init__(layers=[_Rows(room) for _ in range(n_layers)])

    @property
    def length(self) -> int:
        """Rows that are held."""
        return int(self.layers[0].used)

    def keep(self, base: int, rows: Sequence[int]) -> None:
        """Keep some of the rows from ``base`` on, forget the others.

        Args:
            base: Rows before are kept as they are.
            rows: Rows to keep, counted from ``base``, in the order in which they shall lie.
        """
        kept: Tensor | int = len(rows)
        if list(rows) != list(range(len(rows))):
            kept = torch.tensor(rows, device=self.layers[0].keys.device)
        for layer in self.layers:
            layer.keep(base, kept)
