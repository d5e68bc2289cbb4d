"""Ranks as threads of one process; a put is a copy. For unit tests and for the toy problem."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from lamps.errors import MethodFailed
from lamps_plugins.distributed_tensor_kernels._transports._base import VALUE, Channel, Transport

__all__ = ["LoopTransport", "Wire"]


class Wire:
    """What the threads of one group share."""

    def __init__(self, world: int) -> None:
        self.changed = threading.Condition()
        self.barrier = threading.Barrier(world)
        self.channels: dict[tuple[int, int], LoopChannel] = {}
        self.broken = False

    def abort(self) -> None:
        """Tell all ranks that one has failed, so that none waits for it."""
        with self.changed:
            self.broken = True
            self.changed.notify_all()
        self.barrier.abort()


class LoopTransport(Transport):
    """One thread's endpoint."""

    name: ClassVar[str] = "loop"

    def __init__(self, rank: int, world: int, wire: Wire, *, wait_s: float) -> None:
        super().__init__(rank, world, wait_s=wait_s)
        self.wire = wire
        self._made = 0

    def allocate(self, cells: int, n_bytes: int, words: int) -> Channel:
        """Memory of this process; all ranks have it when this returns."""
        channel = LoopChannel(self, self._made, cells, n_bytes, words)
        self.wire.channels[self._made, self.rank] = channel
        self._made += 1
        self.barrier()
        return channel

    def barrier(self) -> None:
        """Wait for all threads."""
        try:
            self.wire.barrier.wait(self.wait_s)
        except threading.BrokenBarrierError as error:
            raise MethodFailed(
                f"rank {self.rank} waited {self.wait_s:g} s at a barrier; another rank failed or "
                "did not come"
            ) from error

    def close(self) -> None:
        """Free what is left."""
        for key in [k for k in self.wire.channels if k[1] == self.rank]:
            del self.wire.channels[key]


class LoopChannel(Channel):
    """Cells in the memory of the process."""

    def __init__(
        self, owner: LoopTransport, key: int, cells: int, n_bytes: int, words: int
    ) -> None:
        self._owner, self._key = owner, key
        self._data = torch.full((cells, n_bytes), 0xFF, dtype=torch.uint8)
        self._headers = np.zeros((cells, words), dtype=np.int64)
        self._released = 0

    def _at(self, rank: int) -> LoopChannel:
        return self._owner.wire.channels[self._key, rank]

    def put(self, dst: int, cell: int, payload: Tensor, value: int) -> None:
        """Copy once the cell is free."""
        there, changed = self._at(dst), self._owner.wire.changed
        with changed:
            changed.wait_for(
                lambda: self._owner.wire.broken or there._released >= value - 2,
                self._owner.wait_s,
            )
            if there._released < value - 2:
                raise MethodFailed(
                    f"rank {self._owner.rank} waited {self._owner.wait_s:g} s for rank {dst} to "
                    f"release cell {cell}"
                )
        there._data[cell, : len(payload)] = payload

    def notify(self, dst: int, cell: int, header: np.ndarray) -> None:
        """Write the header and wake whoever waits."""
        there, changed = self._at(dst), self._owner.wire.changed
        with changed:
            there._headers[cell] = header
            changed.notify_all()

    def header(self, cell: int) -> np.ndarray:
        found: np.ndarray = self._headers[cell]
        return found

    def payload(self, cell: int) -> Tensor:
        return self._data[cell]

    def wait(self, cells: Sequence[int], value: int) -> int | None:
        """Sleep until the headers are there."""
        at, changed = list(cells), self._owner.wire.changed
        with changed:
            changed.wait_for(
                lambda: self._owner.wire.broken or bool((self._headers[at, VALUE] >= value).all()),
                self._owner.wait_s,
            )
            late = next((cell for cell in at if self._headers[cell, VALUE] < value), None)
        if late is None:
            self._until_visible(at)
        return late

    def release(self, value: int) -> None:
        changed = self._owner.wire.changed
        with changed:
            self._released = value
            changed.notify_all()

    def close(self) -> None:
        self._owner.wire.channels.pop((self._key, self._owner.rank), None)
