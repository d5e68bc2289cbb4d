"""What an allocation policy sees and answers.

A policy is a pure function of the pool, of the observation and of a seed: it is shown the pool
once and keeps nothing between calls. That is why a search that was killed at any line goes on with
the decisions that it would have taken anyway.

Shapes: ``n`` trials, ``K`` landmarks, ``m`` objectives. All objectives are minimised here.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lamps import pareto
from lamps.errors import ConfigError
from lamps.pareto import Floats
from lamps.tables import LandmarkTable
from lamps.types import Candidate

Action = int
STOP: Action = -1
"""Nothing more is worth its cost; the search ends when what is in flight has ended."""
WAIT: Action = -2
"""Decide again after the next landmark has ended; refused while nothing is in flight."""


@dataclass(slots=True)
class Observation:
    """The pool as a policy sees it.

    Args:
        values: [n, K, m] float64; NaN where a landmark has not ended or has failed.
        cost_s: [n, K] float64, seconds per landmark; NaN where it has not ended.
        landmark: [n] int64, index of the last landmark that ended well; -1 before the first.
        in_flight: [n] bool, a landmark of the trial is running.
        failed: [n] bool, the trial has ended without reaching the last landmark.
        size_hint: [n] float64, what is known of a candidate's size before anything ran; NaN if
            nothing.
        fidelities: [K] float64, increasing, from 0 to 1.
        n_workers: How many landmarks can run at once.
        seq: Number of decisions taken so far.
        budget_used: Largest used share of any bound of the budget, in [0, 1]; 0 without a budget.
    """

    values: Floats
    cost_s: Floats
    landmark: NDArray[np.int64]
    in_flight: NDArray[np.bool_]
    failed: NDArray[np.bool_]
    size_hint: Floats
    fidelities: Floats
    n_workers: int = 1
    seq: int = 0
    budget_used: float = 0.0

    @classmethod
    def empty(
        cls, n: int, fidelities: Floats, n_objectives: int, size_hint: Floats | None = None
    ) -> Observation:
        """A pool in which nothing has run."""
        k = len(fidelities)
        return cls(
            values=np.full((n, k, n_objectives), np.nan),
            cost_s=np.full((n, k), np.nan),
            landmark=np.full(n, -1, dtype=np.int64),
            in_flight=np.zeros(n, dtype=bool),
            failed=np.zeros(n, dtype=bool),
            size_hint=np.full(n, np.nan)
            if size_hint is None
            else np.asarray(size_hint, dtype=float),
            fidelities=np.asarray(fidelities, dtype=float),
        )

    @property
    def n_trials(self) -> int:
        """Size of the pool."""
        return len(self.landmark)

    @property
    def n_landmarks(self) -> int:
        """Landmarks of a full run, the untouched one included."""
        return len(self.fidelities)

    @property
    def complete(self) -> NDArray[np.bool_]:
        """[n] bool: the last landmark has ended well."""
        done: NDArray[np.bool_] = self.landmark == self.n_landmarks - 1
        return done

    @property
    def mask(self) -> NDArray[np.bool_]:
        """[n] bool: trials that may advance now."""
        free: NDArray[np.bool_] = ~(self.in_flight | self.failed | self.complete)
        return free

    def last_values(self) -> Floats:
        """[n, m]: objectives at the last landmark that ended well; NaN before the first."""
        rows = self.values[np.arange(self.n_trials), np.maximum(self.landmark, 0)]
        return np.where((self.landmark >= 0)[:, None], rows, np.nan)

    def values_at(self, level: int) -> Floats:
        """[n, m]: objectives at ``level``.

        Or at the last landmark before it; NaN before the first.
        """
        at = np.minimum(self.landmark, level)
        rows = self.values[np.arange(self.n_trials), np.maximum(at, 0)]
        return np.where((at >= 0)[:, None], rows, np.nan)

    def living_values_at(self, level: int) -> Floats:
        """[n, m]: `values_at`, NaN for failed trials: what cannot be finished beats nobody."""
        return np.where(self.failed[:, None], np.nan, self.values_at(level))

    def ranks_at_own_level(self) -> NDArray[np.int64]:
        """[n]: Pareto rank among all trials as they stood at this trial's landmark; -1 if none.

        A trial that has had little training is compared with what others were worth after as
        little, so nobody is beaten merely for having started later. Failed trials beat nobody and
        have rank -1.
        """
        result = np.full(self.n_trials, -1, dtype=np.int64)
        for level in np.unique(self.landmark[self.landmark >= 0]):
            here = self.landmark == level
            result[here] = pareto.ranks(self.living_values_at(int(level)))[here]
        return result

    def digest(self) -> str:
        """Hash of everything a decision may depend on."""
        h = hashlib.blake2b(digest_size=8)
        for array in (self.values, self.cost_s, self.landmark, self.in_flight, self.failed):
            h.update(np.ascontiguousarray(array).tobytes())
        h.update(repr((self.n_workers, self.seq, self.budget_used)).encode())
        return h.hexdigest()


@dataclass(frozen=True, slots=True)
class Hindsight:
    """How a recorded pool ends: known in a replay, never in a live search.

    Args:
        values: [n, K, m] float64, minimised; not finite where a landmark fails or was not run.
        cost_s: [n, K] float64, seconds of each landmark on its own; NaN where it was not run.
    """

    values: Floats
    cost_s: Floats

    @classmethod
    def of_table(
        cls,
        table: LandmarkTable,
        candidates: Sequence[str],
        objectives: Sequence[str],
        fidelities: Sequence[float],
    ) -> Hindsight:
        """A landmark table in the order of a pool.

        Args:
            table: The recorded curves.
            candidates: [n] labels of the table, in trial order; a label may come more than once.
            objectives: [m] names of objectives of the table, those of the front.
            fidelities: [K] of the run; each is read where a replay reads it.

        Raises:
            ProblemError: The table has no such candidate.
            ConfigError: The table has no such objective.
        """
        names = [o.name for o in table.objectives]
        if missing := [o for o in objectives if o not in names]:
            raise ConfigError(
                f"table {table.name!r} has no objective {missing[0]!r}, only {names}"
            )
        columns = [names.index(o) for o in objectives]
        rows = np.array([table.row(c) for c in candidates], dtype=np.int64)
        levels = np.searchsorted(table.fidelities, np.asarray(fidelities, dtype=float))
        levels = np.minimum(levels, len(table.fidelities) - 1)
        picked = table.values[np.ix_(rows, levels, np.array(columns))]
        flat = pareto.to_minimization(
            picked.reshape(-1, len(columns)), [table.objectives[c].direction for c in columns]
        )
        return cls(flat.reshape(picked.shape), table.cost_s[np.ix_(rows, levels)])

    @property
    def finishes(self) -> NDArray[np.bool_]:
        """[n] bool: every landmark of the trial has been recorded and is finite."""
        return np.asarray(np.isfinite(self.values).all(axis=(1, 2)), dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class Pool:
    """What is known of the trials before any of them ran.

    Args:
        labels: [n] names for people, in trial order.
        candidates: [n] methods and params, in trial order; None where only labels are known.
        hindsight: The recorded outcome of all trials, in a replay; else None.
    """

    labels: tuple[str, ...]
    candidates: tuple[Candidate, ...] | None = None
    hindsight: Hindsight | None = None


class Policy(ABC):
    """Decides which trial advances next.

    Args:
        seed: Seed of the run; the generator of a decision depends on it and on the decision's
            number alone.
    """

    name: ClassVar[str]
    version: ClassVar[str] = "1"
    summary: ClassVar[str]
    equivariant: ClassVar[bool] = False
    """Whether a pool in another order gets the same decisions, ties aside."""

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def prepare(self, pool: Pool) -> None:  # noqa: B027 - most policies need not look
        """Look at the pool; called once before the first decision, after a resume too.

        What a policy keeps of it must follow from the pool alone. By default it keeps nothing.

        Raises:
            ConfigError: The policy cannot work on this pool.
        """

    @abstractmethod
    def propose(self, observation: Observation, mask: NDArray[np.bool_]) -> Action:
        """The index of a trial with ``mask`` True.

        `STOP`, or `WAIT` while something is in flight.
        """

    def rng(self, observation: Observation) -> np.random.Generator:
        """The generator of this decision."""
        return np.random.default_rng([self.seed, observation.seq])


def nothing_left(observation: Observation) -> Action:
    """The answer where no trial may advance: wait for what is in flight, else stop."""
    return WAIT if observation.in_flight.any() else STOP


def first_started(
    observation: Observation, mask: NDArray[np.bool_], order: NDArray[np.int64]
) -> Action:
    """Depth first: go on with a started trial, else start the next one in ``order``."""
    ready = order[mask[order]]
    if not len(ready):
        return nothing_left(observation)
    started = ready[observation.landmark[ready] >= 0]
    return int(started[0] if len(started) else ready[0])
