"""Race the front: advance only what is Pareto-optimal among equals, stop when that is finished.

Every trial gets its first landmarks: the untouched one says little of what training will do, so
there are at least two. From then on, a trial is compared with all others as they stood at its
own landmark. Trials on that front advance, the smallest first; when it is finished, the trials
of the next rank get their turn, up to ``depth``. Then the search stops, a rule that needs nothing
hidden; where the user gave a budget, that is permission to spend it, and the next ranks follow.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lamps.errors import ConfigError
from lamps.policy.base import Action, Observation, Policy, nothing_left
from lamps.policy.extrapolate import first_landmarks


class FrontRacing(Policy):
    """Advance what is on the front among equals.

    Args:
        first: Landmarks that every trial gets before it must earn more; 0 chooses by the
            fidelities: a third of them, at least two, and as many as reach 1/16 of the effort.
        depth: Highest Pareto rank that is still finished before the search stops; 0 is the front
            alone. The default of 1 pays for the noise of early landmarks.
    """

    name = "front-racing"
    summary = (
        "advance what is on the front among equals; without a budget, stop when that is finished"
    )

    equivariant = True

    def __init__(self, *, seed: int = 0, first: int = 0, depth: int = 1) -> None:
        super().__init__(seed=seed)
        if not first >= 0:
            raise ConfigError(f"first is {first}, expected 0 or more")
        if not depth >= 0:
            raise ConfigError(f"depth is {depth}, expected 0 or more")
        self.first, self.depth = first, depth

    def propose(self, observation: Observation, mask: NDArray[np.bool_]) -> Action:
        """The trial of the lowest rank, then the smallest, then of the fewest landmarks."""
        if not mask.any():
            return nothing_left(observation)
        first = first_landmarks(self.first, observation)
        behind = np.flatnonzero(mask & (observation.landmark < first - 1))
        if len(behind):
            # Breadth first, so that a small budget has seen everybody once.
            order = np.lexsort((observation.size_hint[behind], observation.landmark[behind]))
            return int(behind[order[0]])
        rank = observation.ranks_at_own_level()
        ready = np.flatnonzero(mask & (rank <= self.depth))
        if not len(ready):
            if not 0.0 < observation.budget_used < 1.0:
                # What is in flight may still change the ranks.
                return nothing_left(observation)
            ready = np.flatnonzero(mask)  # no worker idles while there is budget
        # Small ones first: their landmarks are cheap, so a budget that ends early has finished
        # members. Measured seconds would say that better, but then no search would repeat itself.
        best = np.lexsort(
            (observation.landmark[ready], observation.size_hint[ready], rank[ready])
        )[0]
        return int(ready[best])
