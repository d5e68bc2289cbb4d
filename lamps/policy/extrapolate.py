"""Finish what is predicted to be on the final front.

Every trial gets its first landmarks. Then the curve of each objective is extrapolated to the full
effort. Of the trials on the predicted front, the one that needs least to be finished goes on;
values that arrive on the way change the prediction, and with it who is next. A trial counts as on
the front while no other is predicted to beat it by more than ``doubt`` of its own spreads. The
search stops when all of those have been finished.

Remaining seconds come from measured ones where there are any, so the order of equal candidates
may differ between machines; a resumed search reads the same seconds and decides the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lamps import pareto
from lamps.errors import ConfigError
from lamps.pareto import Floats
from lamps.policy.base import Action, Observation, Policy, nothing_left
from lamps.policy.curves import KINDS, Kind, predict, remaining_cost_s

_BEGUN = 1 / 16


def first_landmarks(asked: int, observation: Observation) -> int:
    """How many landmarks everybody gets before curves are trusted.

    As asked; where 0 was, a third of them, at least two, and as many as reach 1/16 of the full
    effort: below that, most curves have not begun to move, and flat ones promise nothing.
    """
    if asked:
        return min(asked, observation.n_landmarks)
    begun = int(np.searchsorted(observation.fidelities, _BEGUN * (1 - 1e-9))) + 1
    third = -(-observation.n_landmarks // 3)
    return min(max(2, third, begun), observation.n_landmarks)


def behind(observation: Observation, mask: NDArray[np.bool_], first: int) -> int | None:
    """The trial furthest behind its first landmarks, the cheapest of several; None if none is."""
    rows = np.flatnonzero(mask & (observation.landmark < first - 1))
    if not len(rows):
        return None
    cost = remaining_cost_s(observation)[rows]
    order = np.lexsort((observation.size_hint[rows], cost, observation.landmark[rows]))
    return int(rows[order[0]])


def unbeaten(ends: Floats, hopes: Floats) -> NDArray[np.bool_]:
    """Whose hope is dominated by nobody's end; with hopes equal to ends, the Pareto front.

    Shape:
        ends: [n, m], NaN for what cannot be finished;  hopes: [n, m], no worse.  Returns [n] bool.
    """
    front = np.unique(ends[pareto.is_nondominated(ends)], axis=0)
    result = pareto.finite_rows(ends)
    for rival in front:
        # Only the front need be asked: it dominates whatever its followers do.
        beaten = (rival <= hopes).all(axis=1) & (rival < hopes).any(axis=1)
        result &= ~beaten
    return result


class Extrapolate(Policy):
    """Finish the predicted front, cheapest first.

    Args:
        first: Landmarks that every trial gets before its curve is trusted; 0 for as many as
            `first_landmarks` says.
        doubt: Spreads by which a trial may fall short of its prediction and still be finished.
        kind: ``rectified`` or ``power``, see `lamps.policy.curves`.
    """

    name = "extrapolate"
    summary = "extrapolate every curve and finish the predicted front"
    equivariant = True

    def __init__(
        self, *, seed: int = 0, first: int = 0, kind: Kind = "rectified", doubt: float = 0.5
    ) -> None:
        super().__init__(seed=seed)
        if not first >= 0:
            raise ConfigError(
                f"first is {first}, expected 1 or more, or 0 to let the fidelities say"
            )
        if kind not in KINDS:
            raise ConfigError(f"kind is {kind!r}, expected one of {', '.join(KINDS)}")
        if not 0 <= doubt < np.inf:
            raise ConfigError(f"doubt is {doubt}, expected a number of spreads, 0 or more")
        self.first, self.kind, self.doubt = first, kind, doubt

    def propose(self, observation: Observation, mask: NDArray[np.bool_]) -> Action:
        """The cheapest unfinished trial of the predicted front."""
        if not mask.any():
            return nothing_left(observation)
        late = behind(observation, mask, first_landmarks(self.first, observation))
        if late is not None:
            return late
        mean, spread = predict(observation, self.kind)
        mean[observation.failed] = np.nan
        ready = np.flatnonzero(mask & unbeaten(mean, mean - self.doubt * spread))
        if not len(ready):
            return nothing_left(observation)
        cost = remaining_cost_s(observation)[ready]
        return int(ready[np.lexsort((observation.size_hint[ready], cost))[0]])
