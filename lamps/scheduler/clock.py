"""Time as an object, so that a replay of a week takes seconds."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod


class Clock(ABC):
    """A clock that never goes backwards."""

    @abstractmethod
    def now(self) -> float:
        """Seconds since some fixed moment."""


class WallClock(Clock):
    """Real elapsed time."""

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()


class SimulatedClock(Clock):
    """Time that moves only when it is told to."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        """Simulated seconds."""
        return self._now

    def advance_to(self, moment: float) -> None:
        """Move forward; an earlier moment leaves the clock where it is."""
        self._now = max(self._now, moment)
