"""Hyperband over a fixed pool: brackets that differ in how early they compare, one after another.

With rungs r_0 < ... < r_S (r_S the full effort, about eta apart), bracket s = S, S-1, ..., 0 runs
its trials to r_{S-s} before it compares them for the first time, then keeps the best 1/eta by
Pareto rank and crowding distance at every rung. The first bracket trusts early landmarks most, the
last one does not trust them at all and finishes all of its trials.

Hyperband draws new configurations for each bracket; here the pool is finite. It is shuffled once
and cut into consecutive brackets in the proportions of the original, ceil((S+1)/(s+1) eta^s), so
each candidate belongs to exactly one bracket and no bracket sees another's.

Source: Li et al. 2018, Hyperband, JMLR 18, algorithm 1. Ours: the cut of the pool; failed trials
make room for the next best; every bracket finishes at least one trial; a free worker begins the
next bracket rather than wait for the current rung to fill.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lamps.errors import ConfigError
from lamps.policy.base import Action, Observation, Policy, nothing_left
from lamps.policy.mo_asha import Indices, best_first, rung_levels


def bracket_sizes(n: int, n_rungs: int, eta: float) -> list[int]:
    """How many trials each bracket gets, the one that compares earliest first; they sum to n.

    Example:
        >>> bracket_sizes(22, 3, 3.0)
        [12, 6, 4]
    """
    shares = np.array([np.ceil(n_rungs / (s + 1) * eta**s) for s in range(n_rungs - 1, -1, -1)])
    ends = np.rint(n * np.cumsum(shares) / shares.sum()).astype(int)
    return [int(size) for size in np.diff(ends, prepend=0)]


class Hyperband(Policy):
    """Successive halving by Pareto rank in brackets.

    Args:
        eta: Share that goes on at a rung is 1/eta, and rungs are eta apart.
    """

    name = "hyperband"
    summary = "brackets of successive halving by Pareto rank, from hasty to patient"

    def __init__(self, *, seed: int = 0, eta: float = 3.0) -> None:
        super().__init__(seed=seed)
        if not 1 < eta < np.inf:
            raise ConfigError(f"eta is {eta}, expected more than 1")
        self.eta = eta

    def propose(self, observation: Observation, mask: NDArray[np.bool_]) -> Action:
        """The next landmark of the first bracket that has one."""
        if not mask.any():
            return nothing_left(observation)
        order = np.random.default_rng(self.seed).permutation(observation.n_trials)
        rungs = rung_levels(observation.fidelities, self.eta, observation.n_trials)
        start = 0
        for first, size in enumerate(bracket_sizes(len(order), len(rungs), self.eta)):
            members = order[start : start + size]
            start += size
            if not mask[members].any():
                continue
            if (chosen := self._next(observation, mask, members, rungs[first:])) is not None:
                return chosen
        return nothing_left(observation)

    def _next(
        self,
        observation: Observation,
        mask: NDArray[np.bool_],
        members: Indices,
        rungs: Indices,
    ) -> int | None:
        """What a bracket wants to run now; None while it waits, or when it is over."""
        alive = members[~observation.failed[members]]
        entered = alive
        for j, level in enumerate(rungs):
            short = entered[observation.landmark[entered] < level]
            ready = short[mask[short]]
            if len(ready):
                # Depth first, so that a rung fills one trial after the other.
                return int(ready[np.argmax(observation.landmark[ready])])
            if len(short) or j == len(rungs) - 1:
                return None  # the rung is not full yet, or it is the last one
            gone_on = entered[
                (observation.landmark[entered] > level) | observation.in_flight[entered]
            ]
            quota = max(int(len(members) // self.eta ** (j + 1)), 1)
            if len(gone_on) < quota:
                values = observation.values_at(int(level))[entered]
                for row in best_first(values, np.arange(len(entered))):
                    if mask[entered[row]] and observation.landmark[entered[row]] == level:
                        return int(entered[row])
            entered = gone_on
        return None
