"""Candidates by size, each to the end.

Hard to beat where small models win, useless where they do not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lamps.policy.base import Action, Observation, Policy, first_started


class SmallestFirst(Policy):
    """Every candidate to the last landmark.

    Smallest first; unknown sizes last, ties in a random order.
    """

    name = "smallest-first"
    summary = "every candidate to the end, smallest first"

    def propose(self, observation: Observation, mask: NDArray[np.bool_]) -> Action:
        """Go on with what was started, else start the smallest one left."""
        # Ties must not be decided by the order of the pool, which is alphabetical more often than
        # not.
        ties = np.random.default_rng(self.seed).permutation(observation.n_trials)
        order = np.lexsort((ties, observation.size_hint))
        return first_started(observation, mask, order)
