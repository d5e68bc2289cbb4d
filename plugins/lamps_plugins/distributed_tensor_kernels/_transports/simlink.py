"""A link of chosen latency and bandwidth over a transport that has neither.

A message may be read at ``max(now, end of the message before it) + alpha + n / beta``: one message
at a time for each pair of ranks. The sender writes that moment into the header and the reader
sleeps until then, so a simulated link takes no time of any core. What comes of it is marked
``simulated_link`` wherever it is shown: such numbers say something of a plan and nothing of any
hardware.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from torch import Tensor

from lamps_plugins.distributed_tensor_kernels._transports._base import (
    BYTES,
    VISIBLE,
    Channel,
    Link,
    Transport,
)

__all__ = ["SimLink"]


class SimLink(Transport):
    """A transport whose messages arrive late.

    Args:
        inner: The transport that carries them; all ranks on one machine, for its clock.
        link: How late.
    """

    name: ClassVar[str] = "simlink"

    def __init__(self, inner: Transport, link: Link) -> None:
        super().__init__(inner.rank, inner.world, wait_s=inner.wait_s)
        self.inner, self.link = inner, link
        self._free_at = [0] * inner.world

    def depart(self, dst: int, n_bytes: int) -> int:
        """When a message that leaves now has arrived, in nanoseconds of `time.monotonic_ns`."""
        assert self.link is not None
        start = max(time.monotonic_ns(), self._free_at[dst])
        self._free_at[dst] = start + self.link.nanoseconds(n_bytes)
        return self._free_at[dst]

    def allocate(self, cells: int, n_bytes: int, words: int) -> Channel:
        return SimChannel(self, self.inner.allocate(cells, n_bytes, words))

    def barrier(self) -> None:
        """Barriers are not part of what is measured, and are not delayed."""
        self.inner.barrier()

    def close(self) -> None:
        self.inner.close()


class SimChannel(Channel):
    """A channel whose headers say when they may be believed."""

    def __init__(self, owner: SimLink, inner: Channel) -> None:
        self._owner, self._inner = owner, inner

    def put(self, dst: int, cell: int, payload: Tensor, value: int) -> None:
        self._inner.put(dst, cell, payload, value)

    def notify(self, dst: int, cell: int, header: np.ndarray) -> None:
        """Pass on with the time of arrival."""
        late = header.copy()
        late[VISIBLE] = self._owner.depart(dst, int(header[BYTES]))
        self._inner.notify(dst, cell, late)

    def header(self, cell: int) -> np.ndarray:
        return self._inner.header(cell)

    def payload(self, cell: int) -> Tensor:
        return self._inner.payload(cell)

    def wait(self, cells: Sequence[int], value: int) -> int | None:
        return self._inner.wait(cells, value)

    def release(self, value: int) -> None:
        self._inner.release(value)

    def close(self) -> None:
        self._inner.close()
