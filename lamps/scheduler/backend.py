"""What the controller asks of a backend; it cannot tell one from another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from lamps.method import Problem
from lamps.scheduler.clock import Clock, WallClock
from lamps.scheduler.progress import Listener
from lamps.scheduler.worker import LandmarkResult, LandmarkTask
from lamps.types import Resources


class Backend(ABC):
    """Runs landmarks somewhere and reports what became of them.

    Life: `start` once, then `submit` while `free` is positive and `wait` for results in any order,
        `close` at the end.
    """

    name: str
    clock: Clock = WallClock()

    @abstractmethod
    def check(self, demands: Iterable[Resources]) -> None:
        """Refuse demands that can never be met; joins or starts what it needs to know.

        Raises:
            ConfigError: What there is and what was asked are named.
        """

    @abstractmethod
    def start(self, problem: Problem, demands: Iterable[Resources]) -> None:
        """Check the demands and make the problem available to workers."""

    def meter(self, run: str) -> Listener | None:
        """What shows the progress of a run on the pages of the cluster; None where there are none.

        Asked for once, after `check`.
        """
        return None

    @property
    @abstractmethod
    def free(self) -> int:
        """How many more landmarks can be submitted now."""

    @abstractmethod
    def submit(self, task: LandmarkTask) -> None:
        """Begin a landmark."""

    @abstractmethod
    def wait(self, timeout_s: float) -> list[LandmarkResult]:
        """Results that have come in.

        Blocks up to the timeout for the first one. Never raises for a task's sake.
        """

    @abstractmethod
    def cancel(self) -> list[LandmarkResult]:
        """Abandon all that is in flight; each is reported as ``cancelled``."""

    @abstractmethod
    def close(self) -> None:
        """Free everything that `start` took; safe to call twice."""
