"""One landmark each in turn ("ZigZag" in the LAMPS paper)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lamps.policy.base import Action, Observation, Policy, nothing_left


class RoundRobin(Policy):
    """Breadth first: whoever has had the fewest landmarks is next."""

    name = "round-robin"
    summary = "one landmark each in turn"

    def propose(self, observation: Observation, mask: NDArray[np.bool_]) -> Action:
        """The first trial with the fewest landmarks."""
        if not mask.any():
            return nothing_left(observation)
        return int(np.argmin(np.where(mask, observation.landmark, np.iinfo(np.int64).max)))
