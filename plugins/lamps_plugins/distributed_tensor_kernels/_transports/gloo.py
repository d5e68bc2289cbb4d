"""Ranks as processes that exchange messages through ``torch.distributed`` with gloo.

One progress thread a rank receives: first a header from anybody, then the payload it announces
straight into the cell, then it sets the signal under a condition. Since it always receives, no
pair of ranks that both send can stop each other.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from lamps.errors import MethodFailed
from lamps_plugins.distributed_tensor_kernels._transports._base import (
    BYTES,
    VALUE,
    Channel,
    Transport,
)

__all__ = ["GlooTransport"]

HEADERS, PAYLOADS = 1, 2
"""Tag of headers, and of payloads of channel 0 cell 0; others follow."""

MOST_CELLS = 1 << 16
MOST_WORDS = 256
BYE = -1
"""Channel number of the message after which a rank sends no more."""


IDLE = timedelta(days=365)
"""How long nobody may have anything to send; a group may stand idle between two jobs."""


def _from_anybody(message: Tensor) -> int:
    """Receive a header; the rank it came from."""
    work = dist.irecv(message, tag=HEADERS)
    assert work is not None
    work.wait(IDLE)
    return int(work._source_rank())


class GlooTransport(Transport):
    """One process's endpoint; there is one a process, as ``torch.distributed`` has it.

    Args:
        rank: This rank.
        world: Number of ranks.
        meeting: Where ranks meet: ``file:///PATH`` or ``tcp://HOST:PORT``.
        wait_s: Seconds after which a wait is given up.
        meet_s: Seconds within which all ranks must have come; ``wait_s`` if None.

    Raises:
        MethodFailed: The ranks do not meet, for instance because the port is in use.
    """

    name: ClassVar[str] = "gloo"

    def __init__(
        self, rank: int, world: int, meeting: str, *, wait_s: float, meet_s: float | None = None
    ) -> None:
        super().__init__(rank, world, wait_s=wait_s)
        self.limit = timedelta(seconds=wait_s)
        meet = self.limit if meet_s is None else timedelta(seconds=meet_s)
        try:
            dist.init_process_group(
                "gloo", init_method=meeting, rank=rank, world_size=world, timeout=meet
            )
        except (RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise MethodFailed(
                f"rank {rank} of {world} does not meet the others at {meeting}: {reason}"
            ) from error
        self.changed = threading.Condition()
        self.channels: dict[int, GlooChannel] = {}
        self.broken = ""
        self._made, self._gone = 0, 0
        self._progress = threading.Thread(target=self._receive, daemon=True, name="progress")
        if world > 1:
            self._progress.start()

    def _receive(self) -> None:
        """Take messages until every other rank has said goodbye."""
        message = torch.empty(2 + MOST_WORDS, dtype=torch.int64)
        try:
            while self._gone < self.world - 1:
                src = _from_anybody(message)
                key, cell = int(message[0]), int(message[1])
                if key == BYE:
                    self._gone += 1
                else:
                    self._deliver(src, key, cell, message[2:].numpy())
        except (RuntimeError, MethodFailed) as error:
            with self.changed:
                self.broken = " ".join(str(error).split())[:200]
                self.changed.notify_all()

    def _deliver(self, src: int, key: int, cell: int, header: np.ndarray) -> None:
        with self.changed:
            # A rank may be ahead of us: its channel is not open here, or its cell not free yet.
            ready = self.changed.wait_for(
                lambda: key in self.channels and self.channels[key].released >= header[VALUE] - 2,
                self.wait_s,
            )
        if not ready:
            raise MethodFailed(f"cell {cell} of channel {key} was not released for rank {src}")
        channel, n_bytes = self.channels[key], int(header[BYTES])
        if n_bytes:
            there = channel.payload(cell)[:n_bytes]
            self.done(dist.irecv(there, src=src, tag=channel.tag(cell)))
        with self.changed:
            channel.headers[cell] = header[: channel.headers.shape[1]]
            self.changed.notify_all()

    def allocate(self, cells: int, n_bytes: int, words: int) -> Channel:
        """Memory of this process, which the progress thread fills."""
        if words > MOST_WORDS or cells > MOST_CELLS:
            raise MethodFailed(f"{cells} cells with {words} words; gloo carries {MOST_WORDS}")
        channel = GlooChannel(self, self._made, cells, n_bytes, words)
        with self.changed:
            self.channels[self._made] = channel
            self.changed.notify_all()
        self._made += 1
        return channel

    def done(self, work: dist.Work | None) -> None:
        """Wait for a send, a receive or a barrier as long as any wait may take."""
        assert work is not None
        work.wait(self.limit)

    def barrier(self) -> None:
        """The group's own."""
        try:
            self.done(dist.barrier(async_op=True))
        except RuntimeError as error:
            raise MethodFailed(
                f"rank {self.rank} waited at a barrier in vain: {' '.join(str(error).split())}"
            ) from error

    def close(self) -> None:
        """Say goodbye to all, hear it from all, and leave the group."""
        if self.world > 1 and not self.broken:
            message = torch.full((2 + MOST_WORDS,), BYE, dtype=torch.int64)
            for dst in range(self.world):
                if dst != self.rank:
                    self.done(dist.isend(message, dst, tag=HEADERS))
            self._progress.join(self.wait_s)
        dist.destroy_process_group()


class GlooChannel(Channel):
    """Cells in the memory of this process."""

    def __init__(
        self, owner: GlooTransport, key: int, cells: int, n_bytes: int, words: int
    ) -> None:
        self._owner, self._key = owner, key
        self._data = torch.full((cells, n_bytes), 0xFF, dtype=torch.uint8)
        self.headers = np.zeros((cells, words), dtype=np.int64)
        self.released = 0
        self._pending: dict[tuple[int, int], Tensor] = {}

    def tag(self, cell: int) -> int:
        """Tag of the payloads of a cell."""
        return PAYLOADS + self._key * MOST_CELLS + cell

    def put(self, dst: int, cell: int, payload: Tensor, value: int) -> None:
        """Keep the bytes; they leave with their header, which tells the receiver to post."""
        self._pending[dst, cell] = payload

    def notify(self, dst: int, cell: int, header: np.ndarray) -> None:
        """Send the header, then the bytes it announces.

        Raises:
            MethodFailed: The other rank is gone.
        """
        payload = self._pending.pop((dst, cell), None)
        message = torch.zeros(2 + MOST_WORDS, dtype=torch.int64)
        message[0], message[1] = self._key, cell
        message[2 : 2 + len(header)] = torch.from_numpy(header)
        if payload is None:
            message[2 + BYTES] = 0
        try:
            self._owner.done(dist.isend(message, dst, tag=HEADERS))
            if payload is not None and len(payload):
                self._owner.done(dist.isend(payload, dst, tag=self.tag(cell)))
        except RuntimeError as error:
            raise MethodFailed(
                f"rank {self._owner.rank} cannot send to rank {dst}, cell {cell}: "
                f"{' '.join(str(error).split())[:200]}"
            ) from error

    def header(self, cell: int) -> np.ndarray:
        found: np.ndarray = self.headers[cell]
        return found

    def payload(self, cell: int) -> Tensor:
        return self._data[cell]

    def wait(self, cells: Sequence[int], value: int) -> int | None:
        """Sleep until the progress thread has set the signals, or has stopped."""
        at, owner = list(cells), self._owner
        with owner.changed:
            owner.changed.wait_for(
                lambda: bool(owner.broken) or bool((self.headers[at, VALUE] >= value).all()),
                owner.wait_s,
            )
            late = next((cell for cell in at if self.headers[cell, VALUE] < value), None)
        if late is None:
            self._until_visible(at)
        return late

    def release(self, value: int) -> None:
        with self._owner.changed:
            self.released = value
            self._owner.changed.notify_all()

    def close(self) -> None:
        with self._owner.changed:
            self._owner.channels.pop(self._key, None)
