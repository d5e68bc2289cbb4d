"""Landmarks in the process of the controller.

One at a time: simple, debuggable, nothing to start.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable

from lamps.errors import ConfigError
from lamps.method import Problem
from lamps.scheduler.backend import Backend
from lamps.scheduler.worker import LandmarkResult, LandmarkTask, run_landmark
from lamps.types import Resources


class LocalBackend(Backend):
    """Runs each landmark when the controller waits for it."""

    name = "local"

    def __init__(self) -> None:
        self._problem: Problem | None = None
        self._queue: deque[LandmarkTask] = deque()

    def check(self, demands: Iterable[Resources]) -> None:
        """Refuse more CPUs than there are, and a GPU where torch sees none."""
        cores = os.cpu_count() or 1
        for demand in demands:
            if demand.gpus > 0 and not _has_gpu():
                raise ConfigError(
                    f"a candidate needs {demand.gpus:g} GPU, this machine has none; "
                    "leave its method out"
                )
            if demand.cpus > cores:
                raise ConfigError(
                    f"a candidate needs {demand.cpus:g} CPUs, this machine has {cores}; "
                    "leave its method out or use a larger cluster"
                )

    def start(self, problem: Problem, demands: Iterable[Resources]) -> None:
        """Check the demands and keep the problem."""
        self.check(demands)
        self._problem = problem

    @property
    def free(self) -> int:
        """One at a time."""
        return 1 - len(self._queue)

    def submit(self, task: LandmarkTask) -> None:
        """Queue it; it runs in `wait`."""
        self._queue.append(task)

    def wait(self, timeout_s: float) -> list[LandmarkResult]:
        """Run the queued landmark; the timeout cannot interrupt it."""
        if not self._queue:
            return []
        assert self._problem is not None
        task = self._queue[0]
        result = run_landmark(task, self._problem)
        self._queue.popleft()
        return [result]

    def cancel(self) -> list[LandmarkResult]:
        """Forget the queue."""
        abandoned = [LandmarkResult(key=t.key, kind="cancelled") for t in self._queue]
        self._queue.clear()
        return abandoned

    def close(self) -> None:
        """Drop the problem."""
        self._problem = None
        self._queue.clear()


def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())
