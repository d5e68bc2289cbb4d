"""A pool that grows while it is searched: what a policy sees of trials that others own.

`lamps.search` knows its pool before it starts. Ray Tune and Optuna add trials as they go, so the
policy is shown the trials that exist, and is prepared anew whenever there are more of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lamps import pareto
from lamps import policy as policies
from lamps.errors import ConfigError, ContractError
from lamps.pareto import Floats
from lamps.policy import WAIT, Action, Observation, Pool
from lamps.types import Candidate, Direction

_DIRECTIONS: dict[str, Direction] = {
    "min": "minimize",
    "max": "maximize",
    "minimize": "minimize",
    "maximize": "maximize",
}


@dataclass(slots=True)
class Row:
    """One trial of the pool.

    Args:
        values: [K, m], minimised; NaN where no landmark has ended.
        cost_s: [K] seconds of each landmark; NaN where none has ended.
        candidate: Its params as far as they are JSON, for policies that look at them.
        size_hint: What is known of its size; NaN if nothing.
        landmark: The last landmark that ended well; -1 before the first.
        in_flight: Whether it works towards its next landmark.
        failed: Whether it has ended without reaching the last landmark.
    """

    values: Floats
    cost_s: Floats
    candidate: Candidate
    size_hint: float = math.nan
    landmark: int = -1
    in_flight: bool = False
    failed: bool = False


@dataclass(slots=True)
class GrowingPool:
    """Trials by key, and the policy that decides among them.

    Args:
        directions: Objective name to ``min``, ``max``, ``minimize`` or ``maximize``, in order.
        landmarks: Increasing positive efforts at which trials are compared; the last is the full
            effort.
        policy: Name of an allocation policy, with options in brackets.
        seed: Seed of its decisions.
        family: Family name that candidates get.

    Raises:
        ConfigError: Objectives, directions or landmarks that cannot be used.
        UnknownMethod: There is no such policy.
    """

    directions: Mapping[str, str]
    landmarks: Sequence[float]
    policy: str = "lamps"
    seed: int = 0
    family: str = "other"
    rows: dict[str, Row] = field(default_factory=dict)
    n_decisions: int = 0
    _rule: policies.Policy = field(init=False, repr=False)
    _prepared: int = field(init=False, default=-1, repr=False)

    def __post_init__(self) -> None:
        self.directions = check_directions(self.directions)
        self.landmarks = check_landmarks(self.landmarks)
        self._rule = policies.make(self.policy, seed=self.seed)

    def __getstate__(self) -> dict[str, Any]:
        # The policy follows from name and seed; it is made again where the pool is unpickled.
        kept = ("directions", "landmarks", "policy", "seed", "family", "rows", "n_decisions")
        return {name: getattr(self, name) for name in kept}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self._rule, self._prepared = policies.make(self.policy, seed=self.seed), -1

    @property
    def n_landmarks(self) -> int:
        """Landmarks of a full run."""
        return len(self.landmarks)

    def add(self, key: str, method: str, params: Mapping[str, Any], size_hint: Any = None) -> Row:
        """A new trial at the end of the pool."""
        shape = (self.n_landmarks, len(self.directions))
        row = Row(
            values=np.full(shape, np.nan),
            cost_s=np.full(shape[0], np.nan),
            candidate=Candidate(self.family, method),
        )
        self.rows[key] = row
        self.describe(key, method, params, size_hint)
        return row

    def describe(
        self, key: str, method: str, params: Mapping[str, Any], size_hint: Any = None
    ) -> None:
        """Say what a trial is, once that is known."""
        row = self.rows[key]
        known = {k: v for k, v in params.items() if _is_scalar(v)}
        row.candidate, row.size_hint = Candidate(self.family, method, known), _number(size_hint)
        self._prepared = -1

    def level_of(self, effort: float) -> int:
        """Index of the last landmark that an effort has reached; -1 before the first.

        Example:
            >>> pool = GrowingPool({"loss": "min"}, (1, 2, 4), policy="exhaustive")
            >>> [pool.level_of(t) for t in (0.5, 1, 3, 9)]
            [-1, 0, 1, 2]
        """
        # Efforts that were summed up from floats may end a hair below their landmark.
        near = effort * (1 + 1e-9)
        return int(np.searchsorted(np.asarray(self.landmarks, dtype=float), near, "right")) - 1

    def record(self, key: str, level: int, values: Sequence[float], cost_s: float) -> None:
        """A trial has reached a landmark.

        Landmarks that it jumped over get the same values, and share the cost by their length.

        Args:
            key: Of the trial.
            level: Index of the landmark.
            values: [m] in the objectives' own directions.
            cost_s: Seconds since the landmark before.
        """
        row = self.rows[key]
        vector = pareto.to_minimization([list(values)], list(self._directions()))[0]
        row.in_flight = False
        if not np.isfinite(vector).all():
            row.failed = True
            return
        new = slice(row.landmark + 1, level + 1)
        steps = np.diff(np.asarray([0.0, *self.landmarks]))[new]
        row.values[new] = vector
        row.cost_s[new] = cost_s * steps / steps.sum()
        row.landmark = level

    def finish(self, key: str) -> None:
        """A trial has nothing more to do: its last values are its final ones, at no cost."""
        row = self.rows[key]
        rest = slice(row.landmark + 1, None)
        row.values[rest], row.cost_s[rest] = row.values[row.landmark], 0.0
        row.landmark, row.in_flight = self.n_landmarks - 1, False

    def complete(self, key: str) -> bool:
        """Whether a trial has reached the last landmark."""
        return self.rows[key].landmark == self.n_landmarks - 1

    def observation(self, n_workers: int = 1) -> Observation:
        """The pool as a policy sees it, in the order in which trials were added."""
        rows = list(self.rows.values())
        obs = Observation.empty(
            len(rows),
            np.asarray(self.landmarks, dtype=float) / self.landmarks[-1],
            len(self.directions),
            np.array([r.size_hint for r in rows]),
        )
        for i, row in enumerate(rows):
            obs.values[i], obs.cost_s[i], obs.landmark[i] = row.values, row.cost_s, row.landmark
            obs.in_flight[i], obs.failed[i] = row.in_flight, row.failed
        obs.n_workers, obs.seq = n_workers, self.n_decisions
        return obs

    def choose(self, n_workers: int = 1) -> str | Action:
        """The key of the trial that the policy wants to advance, `STOP` or `WAIT`.

        Counts as a decision where it is a trial: the caller must advance it.

        Raises:
            ContractError: The policy chose a trial that may not advance, or waits for nothing.
        """
        if self._prepared != len(self.rows):
            candidates = tuple(r.candidate for r in self.rows.values())
            self._rule.prepare(Pool(tuple(c.label for c in candidates), candidates))
            self._prepared = len(self.rows)
        obs = self.observation(n_workers)
        mask = obs.mask
        choice = self._rule.propose(obs, mask)
        if choice == WAIT and not obs.in_flight.any():
            raise ContractError(f"policy {self.policy!r} waits while nothing is in flight")
        if choice < 0:
            return choice
        if choice >= len(mask) or not mask[choice]:
            raise ContractError(
                f"policy {self.policy!r} chose trial {choice}, which may not advance"
            )
        self.n_decisions += 1
        key = list(self.rows)[choice]
        self.rows[key].in_flight = True
        return key

    def front(self) -> list[str]:
        """Keys of the finished trials that no other finished one dominates."""
        done = [k for k in self.rows if self.complete(k)]
        if not done:
            return []
        keep = pareto.is_nondominated([self.rows[k].values[-1] for k in done])
        return [k for k, on in zip(done, keep, strict=True) if on]

    def _directions(self) -> list[Direction]:
        return [_DIRECTIONS[d] for d in self.directions.values()]


def check_directions(directions: Mapping[str, str]) -> dict[str, str]:
    """Objectives with their directions, as a plain dict.

    Raises:
        ConfigError: There is none, or a direction is not known.
    """
    if not directions:
        raise ConfigError("no objective was given, expected at least one name with min or max")
    for name, direction in directions.items():
        if direction not in _DIRECTIONS:
            raise ConfigError(
                f"objective {name!r} has direction {direction!r}, expected 'min' or 'max'"
            )
    return dict(directions)


def check_landmarks(landmarks: Sequence[float]) -> tuple[float, ...]:
    """Landmarks as a tuple.

    Raises:
        ConfigError: There is none, or they are not positive, finite and increasing.
    """
    given = tuple(landmarks)
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in given)
    if not given or not numbers or not all(math.isfinite(v) for v in given):
        raise ConfigError(f"landmarks are {list(given)}, expected one finite number or more")
    if given[0] <= 0 or any(b <= a for a, b in itertools.pairwise(given)):
        raise ConfigError(f"landmarks are {list(given)}, expected positive, increasing numbers")
    return given


def doubling(full: float) -> tuple[float, ...]:
    """Landmarks 1, 2, 4, ... up to the full effort.

    Example:
        >>> doubling(16), doubling(10)
        ((1, 2, 4, 8, 16), (1, 2, 4, 8, 10))
    """
    if not (isinstance(full, (int, float)) and math.isfinite(full) and full > 0):
        raise ConfigError(f"the full effort is {full}, expected a positive finite number")
    below = [2**k for k in range(math.ceil(math.log2(full)))] if full > 1 else []
    return (*below, full)


def _is_scalar(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (bool, int, str))


def _number(value: Any) -> float:
    """A size as a float; NaN where there is none.

    Raises:
        ConfigError: It is not a number.
    """
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"size is {value!r}, expected a number")
    return float(value)
