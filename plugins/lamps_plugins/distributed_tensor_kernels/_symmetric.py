"""Memory that every rank has alike, and signals that say when it may be read.

    buffer.put(chunk, dst, slot, value); buffer.notify(dst, slot, value)        # at the sender
    token = buffer.wait(slots, value); x = buffer.consume(slot, token)          # at the reader

The guarantee: when `wait` returns, the chunk is complete; and there is no other way to the data
than `consume` with the token of that wait. Values rise by one for every repetition, so a signal of
an earlier one is never mistaken, and every slot has two cells that take turns, so a fast rank may
be one repetition ahead. It cannot be two ahead: a put waits for `release`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lamps.errors import MethodFailed, ProblemError
from lamps_plugins.distributed_tensor_kernels._mesh import DeviceMesh
from lamps_plugins.distributed_tensor_kernels._transports._base import BYTES, EXTRA, VALUE

__all__ = ["SymmBuffer", "Token"]


@dataclass(frozen=True, slots=True)
class Token:
    """What a wait gives: the right to read these slots at this value."""

    slots: frozenset[int]
    value: int


class SymmBuffer:
    """Slots for chunks of rows, the same on all ranks; all ranks make it at the same point.

    Args:
        mesh: The ranks.
        shape: Largest chunk: rows, and the shape of a row.
        slots: Number of slots.
        sources: Which rank writes each slot of this rank, for messages.
        counts: Integers that may go with a chunk.
        dtype: Element type.
    """

    def __init__(
        self,
        mesh: DeviceMesh,
        shape: Sequence[int],
        slots: int,
        *,
        sources: Sequence[int],
        counts: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if len(sources) != slots:
            raise ProblemError(f"{slots} slots have {len(sources)} sources; expected one each")
        self.mesh, self.shape, self.dtype = mesh, tuple(shape), dtype
        self._sources, self._counts = tuple(sources), counts
        self._row_bytes = math.prod(self.shape[1:]) * dtype.itemsize
        # Cells begin on cache lines: products of aligned operands have the same bits everywhere.
        n_bytes = max(-(-self.shape[0] * self._row_bytes // 64) * 64, 64)
        self._channel = mesh.transport.allocate(2 * slots, n_bytes, EXTRA + counts)
        self.n_bytes = 2 * slots * n_bytes
        mesh.held_bytes += self.n_bytes
        self._rows: dict[tuple[int, int], int] = {}

    @staticmethod
    def _cell(slot: int, value: int) -> int:
        return 2 * slot + value % 2

    def put(self, chunk: Tensor, dst: int, slot: int, value: int) -> None:
        """Copy a chunk into a slot of another rank; `notify` tells of it.

        Args:
            chunk: At most ``shape[0]`` rows, contiguous; unchanged until `notify` has returned.
            dst: The other rank.
            slot: Its slot.
            value: The repetition, from 1.

        Raises:
            ProblemError: The chunk does not fit.
            MethodFailed: The rank did not release the slot in time.
        """
        fits = chunk.shape[1:] == self.shape[1:] and len(chunk) <= self.shape[0]
        if not fits or chunk.dtype != self.dtype or not chunk.is_contiguous():
            raise ProblemError(
                f"chunk is {chunk.dtype} {list(chunk.shape)}; slot {slot} takes contiguous "
                f"{self.dtype} of at most {list(self.shape)}"
            )
        if chunk.numel():
            flat = chunk.reshape(-1).view(torch.uint8)
            self._channel.put(dst, self._cell(slot, value), flat, value)
            self.mesh.bytes_sent += len(flat)
        self._rows[dst, slot] = len(chunk)

    def notify(self, dst: int, slot: int, value: int, counts: Sequence[int] = ()) -> None:
        """Tell a rank that the chunk which was put into its slot is complete."""
        header = np.zeros(EXTRA + self._counts, dtype=np.int64)
        header[VALUE], header[BYTES] = value, self._rows.pop((dst, slot), 0) * self._row_bytes
        header[EXTRA : EXTRA + len(counts)] = counts
        self._channel.notify(dst, self._cell(slot, value), header)

    def send(
        self, chunk: Tensor, dst: int, slot: int, value: int, counts: Sequence[int] = ()
    ) -> None:
        """`put` and `notify`."""
        self.put(chunk, dst, slot, value)
        self.notify(dst, slot, value, counts)

    def wait(self, slots: Sequence[int], value: int) -> Token:
        """Wait until these slots hold the chunks of a repetition.

        Raises:
            MethodFailed: One did not come in time; the message names rank, operation and slot.
        """
        if self.mesh.conditions.heed:
            late = self._channel.wait([self._cell(slot, value) for slot in slots], value)
            if late is not None:
                slot = late // 2
                raise MethodFailed(
                    f"rank {self.mesh.rank()} waited {self.mesh.transport.wait_s:g} s in "
                    f"{self.mesh.operation} for slot {slot} of rank {self._sources[slot]}, which "
                    "did not come; that rank died, hangs or runs another plan"
                )
        return Token(frozenset(slots), value)

    def consume(self, slot: int, token: Token, rows: int | None = None) -> Tensor:
        """The chunk in a slot.

        Args:
            slot: One of the token's.
            token: What the wait for it gave.
            rows: How many rows it must have; any number if None.

        Returns:
            A view, valid until `release`. Shape: [rows, ...].

        Raises:
            ProblemError: The token is of another slot, or the chunk has another length.
        """
        if slot not in token.slots:
            raise ProblemError(f"slot {slot} was not waited for; the token has {token.slots}")
        cell = self._cell(slot, token.value)
        header = self._channel.header(cell)
        there = int(header[BYTES]) // max(self._row_bytes, 1)
        if not self.mesh.conditions.heed and rows is not None:
            there = rows  # a rank that does not wait reads what lies there
        if rows is not None and there != rows:
            raise ProblemError(
                f"slot {slot} of rank {self._sources[slot]} holds {there} rows in "
                f"{self.mesh.operation}, expected {rows}"
            )
        flat = self._channel.payload(cell)[: there * self._row_bytes].view(self.dtype)
        return flat.view(there, *self.shape[1:])

    def counts(self, slot: int, token: Token) -> list[int]:
        """The integers that came with the chunk in a slot."""
        if slot not in token.slots:
            raise ProblemError(f"slot {slot} was not waited for; the token has {token.slots}")
        header = self._channel.header(self._cell(slot, token.value))
        return [int(word) for word in header[EXTRA:]]

    def release(self, value: int) -> None:
        """Say that chunks of this repetition are not read any more."""
        self._channel.release(value)

    def close(self) -> None:
        """Free the memory of this rank."""
        self._channel.close()
        self.mesh.held_bytes -= self.n_bytes
