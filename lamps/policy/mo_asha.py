"""Asynchronous successive halving by Pareto rank: promote as soon as a rung allows it.

The rungs are the landmarks at about 1, 1/eta, 1/eta^2, ... of the full effort, as many as leave
one of the pool at the top; what lies between them is run through. Whenever a worker is free, the
highest rung is looked at first: if a trial in the best 1/eta of those that have reached it has not
gone on, it goes on. If no rung has such a trial, a new one is started. Nobody waits for a rung to
fill.

Source: Li et al. 2020, A system for massively parallel hyperparameter tuning, algorithm 2; with
several objectives as Schmucker et al. 2021, MO-ASHA, arXiv 2106.12639: nondominated rank first,
then crowding distance.

Ours: a rung that nobody else can reach promotes its best trial even if it holds fewer than eta,
since small pools would finish nothing otherwise; failed trials leave their rung. The classical
rule throws losers away for good, and Pareto members with them: ``readmit=1`` goes on with them
when it would have stopped, best of the highest rung first, until everything is finished.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lamps import pareto
from lamps.errors import ConfigError
from lamps.pareto import Floats
from lamps.policy.base import Action, Observation, Policy, nothing_left

Indices = NDArray[np.int64]


def rung_levels(fidelities: Floats, eta: float, n_trials: int) -> Indices:
    """Landmarks at which trials are compared: from the last one down, each at most 1/eta of it.

    No more than leave one of the trials at the top. The untouched landmark is no rung: what a
    trial is worth before any training says little.

    Shape:
        fidelities: [K].  Returns increasing indices, at least the last one.

    Example:
        >>> rung_levels(np.array([0.0, 0.125, 0.25, 0.5, 1.0]), 3.0, 20).tolist()
        [2, 4]
    """
    levels = [len(fidelities) - 1]
    bound, left = fidelities[-1] / eta, n_trials / eta
    for level in range(len(fidelities) - 2, -1, -1):
        # Shares such as 1/3 are not exact.
        if left >= 1 - 1e-9 and 0 < fidelities[level] <= bound * (1 + 1e-9):
            levels.append(level)
            bound, left = fidelities[level] / eta, left / eta
    return np.array(levels[::-1], dtype=np.int64)


def best_first(values: Floats, ties: Indices) -> Indices:
    """Rows by Pareto rank, then crowding distance, then ``ties``; not finite ones come last.

    Shape:
        values: [n, m];  ties: [n], distinct.  Returns a permutation of [n].
    """
    rank = pareto.ranks(values)
    rank = np.where(rank < 0, np.iinfo(np.int64).max, rank)
    order: Indices = np.lexsort((ties, -pareto.crowding_distance(values), rank))
    return order


class MoAsha(Policy):
    """Promote the best 1/eta of each rung at once, start new trials otherwise.

    Args:
        eta: Share that is promoted is 1/eta, and rungs are eta apart.
        readmit: 1 to go on with those left behind instead of stopping; 0 is the classical rule.
    """

    name = "mo-asha"
    summary = "asynchronous successive halving: promote the best third of each rung by Pareto rank"

    def __init__(self, *, seed: int = 0, eta: float = 3.0, readmit: int = 0) -> None:
        super().__init__(seed=seed)
        if not 1 < eta < np.inf:
            raise ConfigError(f"eta is {eta}, expected more than 1")
        if readmit not in (0, 1):
            raise ConfigError(f"readmit is {readmit}, expected 0 or 1")
        self.eta, self.readmit = eta, readmit

    def propose(self, observation: Observation, mask: NDArray[np.bool_]) -> Action:
        """A trial between two rungs, else one to promote, else a new one."""
        if not mask.any():
            return nothing_left(observation)
        ties = np.random.default_rng(self.seed).permutation(observation.n_trials)
        rungs = rung_levels(observation.fidelities, self.eta, observation.n_trials)
        landmark = observation.landmark
        between = np.flatnonzero(mask & (landmark >= 0) & ~np.isin(landmark, rungs))
        if len(between):
            return int(between[np.lexsort((ties[between], -landmark[between]))[0]])
        lower = [int(level) for level in rungs[-2::-1]]
        for level in lower:
            if (chosen := self._promotable(observation, mask, level, ties)) is not None:
                return chosen
        new = np.flatnonzero(mask & (landmark < 0))
        if len(new):
            return int(new[np.argmin(ties[new])])
        for level in lower:
            # Nobody comes to this rung any more, and it has sent nobody on.
            below = observation.in_flight & (landmark < level)
            if not below.any():
                chosen = self._promotable(observation, mask, level, ties, at_least=1)
                if chosen is not None:
                    return chosen
        if self.readmit:
            ready = np.flatnonzero(mask)
            level = int(landmark[ready].max())
            order = best_first(observation.living_values_at(level), ties)
            return int(order[np.isin(order, ready[landmark[ready] == level])][0])
        return nothing_left(observation)

    def _promotable(
        self,
        observation: Observation,
        mask: NDArray[np.bool_],
        level: int,
        ties: Indices,
        at_least: int = 0,
    ) -> int | None:
        """The best trial of a rung's top that has not gone on."""
        reached = ~observation.failed & (observation.landmark >= level)
        waiting = mask & (observation.landmark == level)
        if not waiting.any():
            return None
        members = np.flatnonzero(reached)
        quota = max(int(len(members) // self.eta), at_least)
        gone_on = reached & ((observation.landmark > level) | observation.in_flight)
        if quota == 0 or (at_least and gone_on.any()):
            return None
        order = members[best_first(observation.values_at(level)[members], ties[members])]
        ready = order[:quota][waiting[order[:quota]]]
        return int(ready[0]) if len(ready) else None
