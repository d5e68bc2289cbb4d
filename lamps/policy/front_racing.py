"""Race the front: advance only what is Pareto-optimal among equals, stop when that is finished.

Every trial gets its first landmark. From then on, a trial is compared with all others as they
stood at its own landmark. Trials on that front advance, those with the fewest landmarks first;
when the front is finished, the trials of the next rank get their turn, up to ``depth``. Then the
search stops: a rule that needs nothing hidden.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lamps.errors import ConfigError
from lamps.policy.base import Action, Observation, Policy, nothing_left


class FrontRacing(Policy):
    """Advance what is on the front among equals.

    Args:
        depth: Highest Pareto rank that is still finished before the search stops; 0 is the front
            alone. The default of 1 pays for the noise of early landmarks.
    """

    name = "front-racing"
    summary = (
        "advance what is on the front among equals; stop when front and next rank are finished"
    )

    def __init__(self, *, seed: int = 0, depth: int = 1) -> None:
        super().__init__(seed=seed)
        if not depth >= 0:
            raise ConfigError(f"depth is {depth}, expected 0 or more")
        self.depth = depth

    def propose(self, observation: Observation, mask: NDArray[np.bool_]) -> Action:
        """The trial of the lowest rank, then of the fewest landmarks, then the smallest."""
        if not mask.any():
            return nothing_left(observation)
        untouched = np.flatnonzero(mask & (observation.landmark < 0))
        if len(untouched):
            return int(untouched[0])
        rank = observation.ranks_at_own_level()
        ready = np.flatnonzero(mask & (rank <= self.depth))
        if not len(ready):
            # What is in flight may still change the ranks.
            return nothing_left(observation)
        # Measured seconds would decide ties too, but then a search would not repeat itself.
        best = np.lexsort(
            (observation.size_hint[ready], observation.landmark[ready], rank[ready])
        )[0]
        return int(ready[best])
