"""What could be done by someone who knew how every curve ends: the yardstick, in a replay only.

Finishes exactly the members of the true Pareto front, among the trials that can finish, in the
order of the greatest hypervolume gained per remaining second over what is finished or under way.
Ties and duplicates of front points are members like any other. Then it stops.

As in the published comparison, everybody's first landmark is run and paid for at the start
(``zero_shot=1``), since no policy can know the pool without it; 0 leaves that out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lamps import pareto
from lamps.errors import ConfigError
from lamps.pareto import Floats
from lamps.policy.base import Action, Hindsight, Observation, Policy, Pool, nothing_left
from lamps.policy.ehvi import expected_improvement

_EXACT = 24
"""Members up to which a gain in three or more objectives is a difference of two hypervolumes."""


class Oracle(Policy):
    """Finish the true front, the best gain per second first.

    Args:
        zero_shot: 1 to run the first landmark of every trial before anything else, 0 not to.
    """

    name = "oracle"
    summary = "replay only: finish exactly the true front, greatest gain per second first"
    equivariant = True

    def __init__(self, *, seed: int = 0, zero_shot: int = 1) -> None:
        super().__init__(seed=seed)
        if zero_shot not in (0, 1):
            raise ConfigError(f"zero_shot is {zero_shot}, expected 0 or 1")
        self.zero_shot = zero_shot
        self._hindsight: Hindsight | None = None

    def prepare(self, pool: Pool) -> None:
        """Take the recorded outcome.

        Raises:
            ConfigError: There is none, as in every live search.
        """
        self._hindsight = _required(pool.hindsight)

    def propose(self, observation: Observation, mask: NDArray[np.bool_]) -> Action:
        """A first landmark that is due, else the member of the front that gains most a second."""
        hindsight = _required(self._hindsight)
        if len(hindsight.values) != observation.n_trials:
            raise ConfigError(
                f"policy 'oracle' was prepared for {len(hindsight.values)} trials, but the pool "
                f"has {observation.n_trials}; prepare it with this pool"
            )
        if self.zero_shot:
            new = np.flatnonzero(mask & (observation.landmark < 0))
            if len(new):
                return int(new[np.argsort(observation.size_hint[new], kind="stable")[0]])
        ends = np.where(hindsight.finishes[:, None], hindsight.values[:, -1], np.nan)
        member = pareto.is_nondominated(ends)
        ready = np.flatnonzero(mask & member)
        if not len(ready):
            return nothing_left(observation)
        levels = np.arange(hindsight.cost_s.shape[1])
        ahead = levels > observation.landmark[ready, None]
        cost = np.where(ahead, np.nan_to_num(hindsight.cost_s[ready]), 0.0).sum(axis=1)
        settled = member & (observation.complete | observation.in_flight)
        gain = self._gains(observation, ends, ready, settled)
        order = np.lexsort((cost, -gain / np.maximum(cost, 1e-12)))
        return int(ready[order[0]])

    def _gains(
        self,
        observation: Observation,
        ends: Floats,
        ready: NDArray[np.int64],
        settled: NDArray[np.bool_],
    ) -> Floats:
        """Hypervolume that each trial of ``ready`` adds to the settled ones. Shape: [r]."""
        known = np.isfinite(ends).all(axis=1)
        low, high = ends[known].min(axis=0), pareto.reference_point(ends)
        unit = pareto.normalized(ends, low, high)
        reference = np.ones(ends.shape[1])
        front = unit[settled]
        if len(reference) <= 2 or len(ready) > _EXACT or len(front) > 8 * _EXACT:
            sure = np.zeros((len(ready), len(reference)))
            return expected_improvement(
                unit[ready], sure, front, reference, rng=np.random.default_rng(self.seed)
            )
        before = pareto.hypervolume(front, reference)
        after = [pareto.hypervolume(np.vstack([front, unit[[i]]]), reference) for i in ready]
        return np.array(after) - before


def _required(hindsight: Hindsight | None) -> Hindsight:
    if hindsight is None:
        raise ConfigError(
            "policy 'oracle' needs to know how every curve ends, which only a replay of a "
            "landmark table does; choose another policy, or use --problem replay:FILE"
        )
    return hindsight
