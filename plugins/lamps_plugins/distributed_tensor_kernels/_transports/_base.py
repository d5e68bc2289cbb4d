"""What a transport owes to the device level: memory at every rank, and signals that follow it.

A *channel* is one symmetric allocation: the same cells exist on every rank. A cell holds bytes and
a header of int64 words. `Channel.put` writes bytes into a cell of another rank, `Channel.notify`
writes the header, and a rank that sees the header sees all the bytes that were put before it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from lamps.errors import ConfigError

__all__ = ["BYTES", "EXTRA", "VALUE", "VISIBLE", "Channel", "Link", "Transport"]

VALUE, BYTES, VISIBLE, EXTRA = 0, 1, 2, 3
"""Words of a header: the signal, bytes of the payload, nanoseconds of `time.monotonic_ns` before
which a simulated link hides the cell, and where the words of the user begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link to simulate: a message of n bytes takes ``alpha_us + n / beta_mb_s`` microseconds.

    Args:
        alpha_us: Microseconds before the first byte, 0 or more.
        beta_mb_s: Megabytes (10^6 bytes) a second, which are bytes a microsecond; positive.

    Raises:
        ConfigError: A number out of range.
    """

    alpha_us: float = 50.0
    beta_mb_s: float = 100.0

    def __post_init__(self) -> None:
        if not 0 <= self.alpha_us < float("inf"):
            raise ConfigError(f"link_alpha is {self.alpha_us}; expected 0 or more microseconds")
        if not 0 < self.beta_mb_s < float("inf"):
            raise ConfigError(f"link_beta is {self.beta_mb_s}; expected MB/s, more than 0")

    def nanoseconds(self, n_bytes: int) -> int:
        """Time of one message."""
        return round(1e3 * (self.alpha_us + n_bytes / self.beta_mb_s))


class Channel(ABC):
    """A rank's endpoint of one symmetric allocation."""

    @abstractmethod
    def put(self, dst: int, cell: int, payload: Tensor, value: int) -> None:
        """Write bytes into a cell of a rank.

        Waits until that rank has released what the cell held two values before.

        Args:
            dst: The rank, not this one.
            cell: Index of the cell.
            payload: Shape: [n] uint8, contiguous.
            value: The signal that will follow.
        """

    @abstractmethod
    def notify(self, dst: int, cell: int, header: np.ndarray) -> None:
        """Write the header of a cell of a rank, after everything that was put there before.

        Args:
            dst: The rank.
            cell: Index of the cell.
            header: Shape: [words] int64.
        """

    @abstractmethod
    def header(self, cell: int) -> np.ndarray:
        """Header of a cell of this rank. Shape: [words] int64."""

    @abstractmethod
    def payload(self, cell: int) -> Tensor:
        """Bytes of a cell of this rank. Shape: [n] uint8."""

    @abstractmethod
    def wait(self, cells: Sequence[int], value: int) -> int | None:
        """Wait until the signals of cells reach a value.

        Returns:
            None, or the first cell that had not reached it after `Transport.wait_s` seconds.
        """

    @abstractmethod
    def release(self, value: int) -> None:
        """Tell all ranks that nothing of this value or an earlier one is read here any more."""

    @abstractmethod
    def close(self) -> None:
        """Free the memory."""

    def _until_visible(self, cells: Sequence[int]) -> None:
        """Sleep until a simulated link shows the cells; takes no time without one."""
        shown = max((int(self.header(cell)[VISIBLE]) for cell in cells), default=0)
        left = shown - time.monotonic_ns()
        if left > 0:
            time.sleep(left * 1e-9)


class Transport(ABC):
    """A rank's way to all others.

    Args:
        rank: This rank.
        world: Number of ranks.
        wait_s: Seconds after which a wait is given up.
    """

    name: ClassVar[str]
    link: Link | None = None
    """What is simulated; None on hardware."""

    def __init__(self, rank: int, world: int, *, wait_s: float) -> None:
        if not 0 <= rank < world:
            raise ConfigError(f"rank {rank} is outside of a world of {world} ranks")
        self.rank, self.world, self.wait_s = rank, world, wait_s

    @abstractmethod
    def allocate(self, cells: int, n_bytes: int, words: int) -> Channel:
        """Allocate on all ranks; every rank calls it in the same order with the same numbers.

        Args:
            cells: Number of cells.
            n_bytes: Bytes of a cell, a multiple of 64.
            words: Words of a header.
        """

    @abstractmethod
    def barrier(self) -> None:
        """Wait for all ranks.

        Raises:
            MethodFailed: One did not come.
        """

    @abstractmethod
    def close(self) -> None:
        """Free everything."""
