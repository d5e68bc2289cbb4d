"""Train everything to the end.

One candidate after the other: the bill that every other policy must undercut.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lamps.policy.base import Action, Observation, Policy, first_started


class Exhaustive(Policy):
    """Every candidate to the last landmark, in the order of the pool."""

    name = "exhaustive"
    summary = "every candidate to the end, in the order of the pool"

    def propose(self, observation: Observation, mask: NDArray[np.bool_]) -> Action:
        """Go on with what was started, else start the next one."""
        return first_started(observation, mask, np.arange(observation.n_trials))
