"""Ranks as processes of one machine that write into each other's mapped memory.

Each channel is a file per rank that everybody maps: headers, then cells. A put copies into the
other rank's map and a notify stores the header's words, the signal last. The order of two stores
is kept on x86-64 alone, so other machines use `gloo`. A wait looks, and sleeps a little longer
each time: spinning would take the core from the rank that is waited for.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from lamps.errors import MethodFailed
from lamps_plugins.distributed_tensor_kernels._transports._base import VALUE, Channel, Transport

__all__ = ["ShmTransport", "usable"]

LONGEST_NAP_S = 1e-4
"""Longest sleep between two looks at a signal."""


def usable() -> bool:
    """Whether this machine keeps the order of stores and maps files as this transport needs."""
    return platform.machine() in ("x86_64", "AMD64") and sys.platform == "linux"


def _until(done: Callable[[], bool], wait_s: float) -> bool:
    """Look until something holds; False if it did not in time."""
    nap, end = 2e-6, time.monotonic() + wait_s
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(nap)
        nap = min(2 * nap, LONGEST_NAP_S)
    return True


def _reached(words: np.ndarray, at: int, value: int) -> bool:
    return bool(words[at] >= value)


class ShmTransport(Transport):
    """One process's endpoint.

    Args:
        rank: This rank.
        world: Number of ranks.
        folder: Where the files lie; the one who made it deletes it.
        wait_s: Seconds after which a wait is given up.
        meet_s: Seconds within which all ranks must have come; ``wait_s`` if None.
    """

    name: ClassVar[str] = "shm"

    def __init__(
        self, rank: int, world: int, folder: Path, *, wait_s: float, meet_s: float | None = None
    ) -> None:
        super().__init__(rank, world, wait_s=wait_s)
        self.folder = folder
        meet = wait_s if meet_s is None else meet_s
        self._made = self._arrived = 0
        own = folder / f"barrier-{rank}"
        self._own = np.memmap(own.with_suffix(".new"), np.int64, "w+", shape=(1,))
        own.with_suffix(".new").rename(own)  # whole as soon as others can see it
        paths = [folder / f"barrier-{r}" for r in range(world)]
        self._counters = [self._open(path, (1,), meet) for path in paths]

    def _open(self, path: Path, shape: tuple[int, ...], wait_s: float) -> np.ndarray:
        if not _until(path.exists, wait_s):
            raise MethodFailed(
                f"rank {self.rank} waited {wait_s:g} s for {path.name}; that rank is gone"
            )
        return np.memmap(path, np.int64, "r+", shape=shape)

    def allocate(self, cells: int, n_bytes: int, words: int) -> Channel:
        """Map one file per rank; the names are gone when this returns, the memory is not."""
        key, self._made = self._made, self._made + 1
        head = -(-8 * (1 + cells * words) // 64) * 64
        shape = ((head + cells * n_bytes) // 8,)
        path = self.folder / f"{key}-{self.rank}"
        mine = np.memmap(path.with_suffix(".new"), np.int64, "w+", shape=shape)
        mine.view(np.uint8)[head:] = 0xFF
        path.with_suffix(".new").rename(path)
        paths = [self.folder / f"{key}-{rank}" for rank in range(self.world)]
        maps = [self._open(path, shape, self.wait_s) for path in paths]
        self.barrier()
        path.unlink()
        return ShmChannel(self, maps, cells, words, head, n_bytes)

    def barrier(self) -> None:
        """Count up, and wait until everybody has."""
        self._arrived += 1
        self._own[0] = self._arrived
        for rank, counter in enumerate(self._counters):
            if not _until(partial(_reached, counter, 0, self._arrived), self.wait_s):
                raise MethodFailed(
                    f"rank {self.rank} waited {self.wait_s:g} s at a barrier for rank {rank}; it "
                    "died or hangs"
                )

    def close(self) -> None:
        """Nothing is left: maps go with the process, files with the folder."""


class ShmChannel(Channel):
    """Cells in mapped files: [released, headers, cells] of every rank."""

    def __init__(
        self,
        owner: ShmTransport,
        maps: Sequence[np.ndarray],
        cells: int,
        words: int,
        head: int,
        n_bytes: int,
    ) -> None:
        self._owner = owner
        self._released = [m[:1] for m in maps]
        self._headers = [m[1 : 1 + cells * words].reshape(cells, words) for m in maps]
        self._data = [
            torch.from_numpy(m.view(np.uint8)[head:].reshape(cells, n_bytes)) for m in maps
        ]

    def put(self, dst: int, cell: int, payload: Tensor, value: int) -> None:
        """Copy once the cell is free."""
        wait_s = self._owner.wait_s
        if not _until(partial(_reached, self._released[dst], 0, value - 2), wait_s):
            raise MethodFailed(
                f"rank {self._owner.rank} waited {wait_s:g} s for rank {dst} to release cell "
                f"{cell}; it died or hangs"
            )
        self._data[dst][cell, : len(payload)] = payload

    def notify(self, dst: int, cell: int, header: np.ndarray) -> None:
        """Everything but the signal first: x86-64 shows stores in their order."""
        there = self._headers[dst][cell]
        there[VALUE + 1 :] = header[VALUE + 1 :]
        there[VALUE] = header[VALUE]

    def header(self, cell: int) -> np.ndarray:
        found: np.ndarray = self._headers[self._owner.rank][cell]
        return found

    def payload(self, cell: int) -> Tensor:
        return self._data[self._owner.rank][cell]

    def wait(self, cells: Sequence[int], value: int) -> int | None:
        """Look at one signal after the other."""
        values = self._headers[self._owner.rank][:, VALUE]
        end = time.monotonic() + self._owner.wait_s
        for cell in cells:
            left = max(end - time.monotonic(), 0.0)
            if not _until(partial(_reached, values, cell, value), left):
                return cell
        self._until_visible(cells)
        return None

    def release(self, value: int) -> None:
        self._released[self._owner.rank][0] = value

    def close(self) -> None:
        self._data, self._headers, self._released = [], [], []
