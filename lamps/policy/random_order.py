"""Candidates in random order.

Each to the end: the control that any policy with an idea must beat.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lamps.policy.base import Action, Observation, Policy, first_started


class RandomOrder(Policy):
    """Every candidate to the last landmark, in an order drawn once from the seed."""

    name = "random"
    summary = "every candidate to the end, in random order"

    def propose(self, observation: Observation, mask: NDArray[np.bool_]) -> Action:
        """Go on with what was started, else start the next one of the permutation."""
        order = np.random.default_rng(self.seed).permutation(observation.n_trials)
        return first_started(observation, mask, order)
