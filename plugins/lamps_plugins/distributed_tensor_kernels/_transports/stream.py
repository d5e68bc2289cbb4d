"""Virtual ranks on one GPU: slices of its memory, and streams whose events are the signals.

A put is a copy by the copy engine on the sender's stream, a notify records an event there and a
wait makes the reader's stream wait for it, so copies and products overlap without any host thread
between them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from lamps.errors import ConfigError, MethodFailed
from lamps_plugins.distributed_tensor_kernels._transports._base import Channel, Transport
from lamps_plugins.distributed_tensor_kernels._transports.loop import (
    LoopChannel,
    LoopTransport,
    Wire,
)

__all__ = ["StreamTransport", "on_stream", "require_gpu"]

T = TypeVar("T")


def require_gpu() -> None:
    """Refuse a machine without a CUDA device.

    Raises:
        ConfigError: There is none.
    """
    if not torch.cuda.is_available():
        raise ConfigError(
            "transport 'stream' keeps its ranks on one CUDA GPU and torch sees none; use shm, "
            "gloo, simlink or loop"
        )


class StreamTransport(LoopTransport):
    """One thread's endpoint, with a stream for copies.

    Raises:
        ConfigError: There is no GPU.
    """

    name: ClassVar[str] = "stream"

    def __init__(self, rank: int, world: int, wire: Wire, *, wait_s: float) -> None:
        require_gpu()
        super().__init__(rank, world, wire, wait_s=wait_s)
        self.copies = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def allocate(self, cells: int, n_bytes: int, words: int) -> Channel:
        """Memory of the GPU; all ranks have it when this returns."""
        channel = StreamChannel(self, self._made, cells, n_bytes, words)
        self.wire.channels[self._made, self.rank] = channel
        self._made += 1
        self.barrier()
        return channel


class StreamChannel(LoopChannel):
    """Cells on the GPU; headers stay with the host, events order what they announce."""

    _owner: StreamTransport

    def __init__(
        self, owner: StreamTransport, key: int, cells: int, n_bytes: int, words: int
    ) -> None:
        super().__init__(owner, key, cells, n_bytes, words)
        self._data = self._data.cuda()
        self._events = [torch.cuda.Event() for _ in range(cells)]  # type: ignore[no-untyped-call]
        self._lock = threading.Lock()

    def put(self, dst: int, cell: int, payload: Tensor, value: int) -> None:
        """Copy on the stream for copies, after what this thread has computed so far."""
        self._owner.copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._owner.copies):
            super().put(dst, cell, payload, value)
            payload.record_stream(self._owner.copies)

    def notify(self, dst: int, cell: int, header: np.ndarray) -> None:
        """Record the event, then the header that tells of it."""
        there = self._at(dst)
        if not isinstance(there, StreamChannel):
            raise MethodFailed(f"rank {dst} has another transport than rank {self._owner.rank}")
        with there._lock:
            there._events[cell].record(self._owner.copies)
        super().notify(dst, cell, header)

    def wait(self, cells: Sequence[int], value: int) -> int | None:
        """Wait for the headers on the host and for the copies on this thread's stream."""
        late = super().wait(cells, value)
        with self._lock:
            for cell in cells:
                torch.cuda.current_stream().wait_event(self._events[cell])
        return late

    def release(self, value: int) -> None:
        """What was read has been read when the stream is done."""
        torch.cuda.current_stream().synchronize()
        super().release(value)


def on_stream(
    rank: int, world: int, wire: Wire, wait_s: float, work: Callable[[Transport], T]
) -> T:
    """Do a rank's work in this thread on a stream of its own.

    Raises:
        ConfigError: There is no GPU.
    """
    require_gpu()
    own = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(own):
        return work(StreamTransport(rank, world, wire, wait_s=wait_s))
