"""The learned policy: a set network, trained in replayed searches, decides who advances.

Paper: LAMPS, Landmark-Guided Policy Optimization for Multi-Objective Language Model Selection,
ICML 2026. Ours, not the paper's: any pool size and number of objectives (`lamps.policy.network`),
pool-relative features (`lamps.policy.features`), several workers, a stop rule that needs nothing
hidden, and a fallback.

It advances the trial of the highest score and stops, unless there is a budget to spend, when the
network gives less than ``doubt`` to the chance that more than 2 % of the reachable hypervolume is
still missing, every candidate has been looked at once (a pool with a single landmark, where a look
is the whole cost, is exempt), and none that is under way promises volume of its own. Where a pool
looks like nothing in its training it says so once and leaves the search to `front-racing`.
"""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lamps.errors import ConfigError, LampsWarning
from lamps.policy.base import STOP, Action, Observation, Policy, Pool, nothing_left
from lamps.policy.features import (
    POOL_FEATURES,
    TRIAL_FEATURES,
    Array,
    Features,
    blinded,
    features,
    state_of,
)
from lamps.policy.front_racing import FrontRacing
from lamps.policy.weights import REGRET_LEVELS, SHIPPED, Weights, load

_STOP_LEVEL = REGRET_LEVELS.index(0.02)
_VOLUME = TRIAL_FEATURES.index("volume")
_PROMISE = 0.01
"""Volume, in boxes of the pool's ranges, that an open candidate may promise at a stop.

The network alone stops with candidates left that are on the front by their own last values. On the
tasks kept out this never delays a stop; on Pythia, Gemstones and TaskSet from 70 to 73 % of the
time of everything.
"""
_WATCHED = ("n_trials", "n_landmarks", "n_objectives")


@cache
def _weights(path: Path) -> Weights:
    return load(path)


class Lamps(Policy):
    """See the module's docstring.

    Args:
        weights: File of other weights; the shipped ones if empty.
        doubt: Chance of a loss of more than 2 % that is accepted when stopping; 0 takes the value
            that was calibrated in training.
    """

    name = "lamps"
    summary = "learned on past searches; stops when little is left to gain"
    equivariant = True

    def __init__(self, *, seed: int = 0, weights: str = "", doubt: float = 0.0) -> None:
        super().__init__(seed=seed)
        if not 0 <= doubt <= 1:
            raise ConfigError(f"doubt is {doubt}, expected 0 to 1")
        self._fallback = FrontRacing(seed=seed)
        self._said = False
        self.weights: Weights | None = None
        try:
            self.weights = _weights(Path(weights) if weights else SHIPPED)
        except ConfigError as error:
            if weights:
                raise  # these were asked for by name
            self._say(f"this installation ({error})")
            return
        self.version = self.weights.sha256[:12]  # type: ignore[misc]
        self.doubt = doubt or float(self.weights.metadata["doubt"])

    def prepare(self, pool: Pool) -> None:
        """Forget that something was said."""
        self._said = False

    def propose(self, observation: Observation, mask: NDArray[np.bool_]) -> Action:
        """The trial of the highest score; stop when the rest is not worth it."""
        if not mask.any():
            return nothing_left(observation)
        if self.weights is None:
            return self._fallback.propose(observation, mask)
        state = state_of(observation)
        inputs = features(state)
        if odd := out_of_range(inputs, self.weights):
            self._say(odd)
            return self._fallback.propose(observation, mask)
        scores, missing = forward(self.weights, inputs, state.present, mask[None])
        if (
            observation.budget_used == 0
            and observation.complete.any()
            and missing[0, _STOP_LEVEL] < self.doubt
            and _nothing_promised(observation, inputs, mask)
        ):
            return nothing_left(observation) if observation.in_flight.any() else STOP
        return int(scores[0].argmax())

    def _say(self, what: str) -> None:
        if not self._said:
            self._said = True
            warnings.warn(
                f"the learned policy does not fit {what}; front-racing decides instead",
                LampsWarning,
                stacklevel=2,
            )


def _nothing_promised(observation: Observation, inputs: Features, mask: NDArray[np.bool_]) -> bool:
    """Whether all candidates were looked at, and no open one is expected to add volume."""
    seen = (observation.landmark >= 0) | observation.failed
    if not seen.all() and observation.n_landmarks > 1:
        return False
    return bool((inputs.trials[_VOLUME, 0][mask] <= _PROMISE).all())


def forward(
    weights: Weights, inputs: Features, present: NDArray[np.bool_], mask: NDArray[np.bool_]
) -> tuple[Array, Array]:
    """`Weights.forward` on the features that these weights were trained with."""
    blind = tuple(weights.metadata.get("blind", ()))
    return weights.forward(blinded(inputs, blind), present, mask)


def out_of_range(inputs: Features, weights: Weights) -> str:
    """What of a pool lies outside of the training, in words; empty if nothing."""
    for name in _WATCHED:
        value = float(inputs.pool[POOL_FEATURES.index(name), 0])
        low, high = weights.metadata["bounds"][name]
        if not low <= value <= high:
            return f"{name} ({value:.2f} on the network's scale, trained on {low} to {high:.2f})"
    for part in ("objectives", "trials", "pool"):
        if not np.isfinite(getattr(inputs, part)).all():
            return f"features of its {part} that are not finite"
    return ""
