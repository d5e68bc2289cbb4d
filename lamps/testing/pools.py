"""Made-up pools, and searches played on them with every answer of the policy checked."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lamps.pareto import Floats
from lamps.policy import STOP, WAIT, Hindsight, Observation, Policy, Pool
from lamps.types import Candidate

Make = Callable[[int], Policy]
"""A new policy with a seed."""
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Curves:
    """A made-up pool: what every trial would be worth at every landmark.

    Args:
        values: [n, K, m] float64, minimised.
        cost_s: [n, K] float64, positive seconds of each landmark.
        size: [n] float64, the size hints.
        fails_at: [n] int64, the landmark at which a trial fails; K for one that never does.
        candidates: [n] methods and params.
    """

    values: Floats
    cost_s: Floats
    size: Floats
    fails_at: NDArray[np.int64]
    candidates: tuple[Candidate, ...]

    @classmethod
    def falling(
        cls, n: int, k: int, m: int, *, seed: int = 0, failing: float = 0.0, front: bool = False
    ) -> Curves:
        """Curves that fall towards an end and mostly keep their order.

        Args:
            n: Trials.
            k: Landmarks.
            m: Objectives.
            seed: Of everything.
            failing: Share of trials that fail at some landmark.
            front: Whether every trial is on the front at every landmark.
        """
        rng = np.random.default_rng(seed)
        end = rng.uniform(0.1, 1.0, (n, 1, m))
        gain = 1.0 + 0.1 * rng.uniform(size=(n, 1, m))
        if front:
            place = rng.permutation(n)[:, None]
            sign = np.where(np.arange(m) % 2, -1.0, 1.0)
            end = (place * sign if m > 1 else 0.0 * place)[:, None, :] / max(n, 1)
            gain = np.ones((n, 1, m))
        left = (1.0 - _shares(k)[None, :, None]) ** 2
        size = rng.permutation(n) + rng.uniform(0.1, 0.9, n)
        cost = np.diff(_shares(k), prepend=-0.05)[None, :] * size[:, None]
        fails_at = np.where(rng.uniform(size=n) < failing, rng.integers(0, k, n), k)
        models = rng.choice(["small", "base", "large"], n)
        candidates = tuple(
            Candidate(
                "suite",
                str(rng.choice(["tune", "probe"])),
                {"model": str(model), "rate": float(10 ** rng.uniform(-5, -2)), "number": i},
            )
            for i, model in enumerate(models)
        )
        return cls(end + gain * left, cost, size, fails_at, candidates)

    def permuted(self, order: NDArray[np.int64]) -> Curves:
        """The same pool in another order: trial ``i`` is what was ``order[i]``."""
        return Curves(
            self.values[order],
            self.cost_s[order],
            self.size[order],
            self.fails_at[order],
            tuple(self.candidates[i] for i in order),
        )

    def pool(self) -> Pool:
        """What a policy is shown of it, hindsight included."""
        known = np.arange(self.values.shape[1]) < self.fails_at[:, None]
        return Pool(
            tuple(c.label for c in self.candidates),
            self.candidates,
            Hindsight(np.where(known[..., None], self.values, np.nan), self.cost_s),
        )

    def untouched(self) -> Observation:
        """The observation before anything ran."""
        n, k, m = self.values.shape
        return Observation.empty(n, _shares(k), m, self.size)

    def at(self, landmark: NDArray[np.int64]) -> Observation:
        """The observation with every trial at a landmark of its own. Shape: [n]."""
        seen = self.untouched()
        seen.landmark[:] = np.minimum(landmark, self.fails_at - 1)
        seen.failed[:] = landmark >= self.fails_at
        known = np.arange(self.values.shape[1]) <= seen.landmark[:, None]
        seen.values[:] = np.where(known[..., None], self.values, np.nan)
        seen.cost_s[:] = np.where(known, self.cost_s, np.nan)
        seen.seq = int((seen.landmark + 1).sum())
        return seen


def _shares(k: int) -> Floats:
    """0, then doubling up to 1. Shape: [k]."""
    return np.append(0.0, 0.5 ** np.arange(k - 2.0, -1.0, -1.0)) if k > 1 else np.ones(1)


@dataclass(slots=True)
class Played:
    """A search from start to end.

    Args:
        seen: The observation at the end.
        actions: Every answer in turn, `WAIT` and `STOP` included.
    """

    seen: Observation
    actions: list[int] = field(default_factory=list)

    @property
    def started(self) -> list[int]:
        """The trials that advanced, in the order of the decisions."""
        return [a for a in self.actions if a >= 0]


def play(
    make: Make, curves: Curves, *, workers: int = 1, seed: int = 0, fresh: bool = False
) -> Played:
    """Let a policy search a pool, with every answer checked.

    Args:
        make: Builds the policy.
        curves: The pool.
        workers: Landmarks at once.
        seed: Of the policy.
        fresh: Whether a new policy takes each decision, as after a resume at every line.

    Raises:
        AssertionError: An answer breaks the contract, or the search does not end.
    """
    pool = curves.pool()
    n, k, _ = curves.values.shape
    seen = curves.untouched()
    seen.n_workers = workers
    played = Played(seen)
    policy = prepared(make, seed, pool)
    flight: list[tuple[float, int]] = []
    now, stopped = 0.0, False
    while True:
        waiting = stopped
        while len(flight) < workers and not waiting:
            if fresh:
                policy = prepared(make, seed, pool)
            action = decide(policy, seen, seen.mask)
            played.actions.append(action)
            stopped = action == STOP
            waiting = action in (STOP, WAIT)
            if waiting:
                continue
            seen.in_flight[action] = True
            seen.seq += 1
            assert seen.seq <= n * k, "more decisions than there are landmarks"
            level = seen.landmark[action] + 1
            heapq.heappush(flight, (now + curves.cost_s[action, level], action))
        if not flight:
            assert stopped, "the policy waits while nothing is in flight"
            return played
        now, trial = heapq.heappop(flight)
        level = seen.landmark[trial] + 1
        seen.in_flight[trial] = False
        seen.cost_s[trial, level] = curves.cost_s[trial, level]
        if level == curves.fails_at[trial]:
            seen.failed[trial] = True
            continue
        seen.landmark[trial] = level
        seen.values[trial, level] = curves.values[trial, level]


def prepared(make: Make, seed: int, pool: Pool) -> Policy:
    """A new policy that has seen the pool."""
    policy = make(seed)
    policy.prepare(pool)
    return policy


def decide(policy: Policy, seen: Observation, mask: Mask) -> int:
    """One answer, checked against the contract.

    Raises:
        AssertionError: The answer may not be given here, or the policy wrote to what it was shown.
    """
    before, sizes, free = seen.digest(), seen.size_hint.copy(), mask.copy()
    action = policy.propose(seen, mask)
    assert seen.digest() == before, "the policy wrote to the observation"
    assert np.array_equal(sizes, seen.size_hint, equal_nan=True), "the policy wrote to size_hint"
    assert np.array_equal(free, mask), "the policy wrote to the mask"
    assert isinstance(action, int), f"the answer is a {type(action).__name__}, expected an int"
    if action == WAIT:
        assert seen.in_flight.any(), "WAIT was answered while nothing is in flight"
    elif action != STOP:
        assert 0 <= action < len(mask), f"trial {action} was proposed, the pool has {len(mask)}"
        assert mask[action], f"trial {action} was proposed, which may not advance"
    return action


def any_observation(seed: int) -> tuple[Pool, Observation, Mask]:
    """A random state, reachable or not, with NaN, infinities and huge numbers among the values."""
    rng = np.random.default_rng(seed)
    n, k, m = (int(rng.integers(1, end)) for end in (20, 6, 7))
    curves = Curves.falling(n, k, m, seed=seed, failing=0.2)
    seen = curves.untouched()
    seen.values[:] = rng.integers(0, 4, seen.values.shape)
    odd = np.array([np.nan, np.inf, -np.inf, 1e308, -1e308, 0.0])
    spots = rng.uniform(size=seen.values.shape) < rng.choice([0.0, 0.1, 1.0])
    seen.values[spots] = rng.choice(odd, spots.sum())
    seen.landmark[:] = rng.integers(-1, k, n)
    seen.cost_s[:] = rng.choice([np.nan, 0.0, 0.1, 1.0, 1e6], (n, k))
    seen.in_flight[:] = (rng.uniform(size=n) < 0.3) & ~seen.complete
    seen.failed[:] = (rng.uniform(size=n) < 0.2) & ~seen.complete & ~seen.in_flight
    seen.size_hint[:] = rng.choice([np.nan, 1.0, 2.0, np.inf], n)
    seen.n_workers, seen.seq = int(rng.integers(1, 4)), int(rng.integers(0, 99))
    seen.budget_used = float(rng.choice([0.0, 0.5, 0.99]))
    return curves.pool(), seen, seen.mask & (rng.uniform(size=n) < rng.choice([0.5, 1.0]))
