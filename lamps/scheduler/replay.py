"""Landmarks from a table in simulated time.

With any number of workers: a search of weeks in seconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import numpy as np

from lamps.errors import ConfigError
from lamps.method import Problem
from lamps.scheduler.backend import Backend
from lamps.scheduler.clock import SimulatedClock
from lamps.scheduler.worker import LandmarkResult, LandmarkTask
from lamps.tables import LandmarkTable
from lamps.types import Cost, Evaluation, Resources


class ReplayBackend(Backend):
    """Answers from the problem's landmark table; time moves to the end of the next landmark.

    A landmark that the table marks as failed fails; one that was never measured fails too and says
    so. Landmarks without recorded seconds take none.
    """

    name = "replay"

    def __init__(self, workers: int = 1) -> None:
        self.clock: SimulatedClock = SimulatedClock()
        self.workers = workers
        self._table: LandmarkTable | None = None
        self._flight: list[tuple[float, int, LandmarkTask]] = []
        self._count = 0

    def check(self, demands: Iterable[Resources]) -> None:
        """Simulated workers meet any demand."""

    def start(self, problem: Problem, demands: Iterable[Resources]) -> None:
        """Take the problem's table."""
        table = problem.landmark_table()
        if table is None:
            raise ConfigError(
                f"backend 'replay' needs a landmark table, but problem {problem.name!r} of family "
                f"{problem.family!r} has none; use --problem replay:FILE.csv or another backend"
            )
        self._table = table.without_gaps()

    @property
    def free(self) -> int:
        """Simulated workers that idle."""
        return self.workers - len(self._flight)

    def submit(self, task: LandmarkTask) -> None:
        """Schedule its end."""
        row, level = self._at(task)
        assert self._table is not None
        seconds = float(np.nan_to_num(self._table.cost_s[row, level])) if level >= 0 else 0.0
        self._count += 1
        heapq.heappush(self._flight, (self.clock.now() + seconds, self._count, task))

    def wait(self, timeout_s: float) -> list[LandmarkResult]:
        """The landmark that ends next."""
        if not self._flight:
            return []
        end, _, task = heapq.heappop(self._flight)
        self.clock.advance_to(end)
        return [self._outcome(task)]

    def _at(self, task: LandmarkTask) -> tuple[int, int]:
        assert self._table is not None
        row = self._table.row(str(task.candidate.params["curve"]))
        if task.fidelity is None:
            return row, -1
        return row, int(np.searchsorted(self._table.fidelities, task.fidelity))

    def _outcome(self, task: LandmarkTask) -> LandmarkResult:
        assert self._table is not None
        row, level = self._at(task)
        names = [o.name for o in self._table.objectives]
        values = dict(zip(names, self._table.values[row, level].tolist(), strict=True))
        if task.split == "test":
            return LandmarkResult(
                key=task.key,
                kind="ok",
                evaluation=Evaluation({f"test_{k}": v for k, v in values.items()}),
            )
        cost = Cost(wall_s=float(np.nan_to_num(self._table.cost_s[row, level])))
        if not self._table.measured[row, level]:
            error = f"the table has no value at fidelity {task.fidelity:g}"
            return LandmarkResult(key=task.key, kind="failed", cost=cost, error=error)
        evaluation = Evaluation(values)
        if not evaluation.is_finite():
            return LandmarkResult(
                key=task.key,
                kind="failed",
                evaluation=evaluation,
                cost=cost,
                error="recorded as failed",
            )
        return LandmarkResult(key=task.key, kind="ok", evaluation=evaluation, cost=cost)

    def cancel(self) -> list[LandmarkResult]:
        """Forget what is in flight."""
        abandoned = [LandmarkResult(key=t.key, kind="cancelled") for _, _, t in self._flight]
        self._flight.clear()
        return abandoned

    def close(self) -> None:
        """Drop the table."""
        self._table = None
        self._flight.clear()
