"""Successive halving by Pareto rank, with re-admission of those that were left behind.

Plain successive halving throws losers away, and on fronts with many members it throws Pareto
members away with them. Here a rung only says who goes *first*: when the last rung holds its quota,
all quotas above rung 0 grow by their own size and the best of those left behind are admitted
again, until a round has brought no new member to the front.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lamps import pareto
from lamps.errors import ConfigError
from lamps.policy.base import STOP, WAIT, Action, Observation, Policy, nothing_left


class MoSuccessiveHalving(Policy):
    """Promote the best 1/eta of each rung by rank and crowding distance; re-admit in rounds.

    Args:
        eta: Share that is promoted is 1/eta.
        patience: Rounds without a new front member after which the search stops.
    """

    name = "mo-successive-halving"
    summary = (
        "promote the best half of each rung by Pareto rank; losers are admitted again in rounds"
    )

    def __init__(self, *, seed: int = 0, eta: float = 2.0, patience: int = 2) -> None:
        super().__init__(seed=seed)
        if not eta > 1:
            raise ConfigError(f"eta is {eta}, expected more than 1")
        if not patience >= 0:
            raise ConfigError(f"patience is {patience}, expected 0 or more")
        self.eta = eta
        self.patience = patience

    def propose(self, observation: Observation, mask: NDArray[np.bool_]) -> Action:
        """The best trial of the lowest rung whose next rung is short of its quota."""
        if not mask.any():
            return nothing_left(observation)
        alive = ~observation.failed
        reached = observation.landmark + observation.in_flight
        last = observation.n_landmarks - 1
        base = np.ceil(alive.sum() * self.eta ** -np.arange(last + 1.0)).astype(int)
        rounds = int(np.sum((reached >= last) & alive) // max(base[last], 1))
        if (
            rounds
            and not observation.in_flight.any()
            and self._stale(observation, rounds, base[last])
        ):
            return STOP
        for level in range(last + 1):
            grown = (
                int(alive.sum())
                if level == 0
                else min(int(alive.sum()), base[level] * (rounds + 1))
            )
            if np.sum((reached >= level) & alive) >= grown:
                continue
            ready = np.flatnonzero(mask & (observation.landmark == level - 1))
            if level > 0 and observation.in_flight[observation.landmark < level - 1].any():
                return WAIT  # the rung below is still being filled, and its order may change
            if not len(ready):
                continue
            return self._best(observation, ready, level - 1)
        ready = np.flatnonzero(mask)
        deepest = ready[observation.landmark[ready] == observation.landmark[ready].max()]
        return self._best(observation, deepest, int(observation.landmark[deepest[0]]))

    def _best(self, observation: Observation, ready: NDArray[np.int64], level: int) -> Action:
        if level < 0:
            return int(ready[0])
        values = observation.living_values_at(level)
        order = np.lexsort((-pareto.crowding_distance(values)[ready], pareto.ranks(values)[ready]))
        return int(ready[order[0]])

    def _stale(self, observation: Observation, rounds: int, quota: int) -> bool:
        """Whether the last ``patience`` rounds have left the front of finished trials unchanged.

        Trials finish in the order in which they were ranked, so the finished ones of the last
        rounds are those whose own rank at the rung before the last is worst.
        """
        done = np.flatnonzero(observation.complete)
        if rounds <= self.patience or len(done) <= self.patience * quota:
            return False
        before = observation.values_at(max(observation.n_landmarks - 2, 0))
        order = np.lexsort((-pareto.crowding_distance(before)[done], pareto.ranks(before)[done]))
        late = done[order[len(done) - self.patience * quota :]]
        front = done[pareto.is_nondominated(observation.last_values()[done])]
        return not np.isin(late, front).any()
