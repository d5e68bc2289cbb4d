"""Greedy searches of a network on blocks of episodes: validation and the stop rule's doubt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lamps.policy.env import ReplayEnv
from lamps.policy.episodes import Episodes
from lamps.policy.features import Array, Features
from lamps.policy.weights import REGRET_LEVELS

Forward = Callable[[Features, NDArray[np.bool_], NDArray[np.bool_]], tuple[Array, Array]]
"""Scores [B, n] and chances [B, 4], as `lamps.policy.weights.Weights.forward` gives them."""

DOUBTS = (0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.18, 0.25, 0.35, 0.5)
_STOP_LEVEL = REGRET_LEVELS.index(0.02)


@dataclass(frozen=True, slots=True)
class Rollout:
    """How ``E`` searches went.

    Args:
        area: [E] area under the weighted regret, in units of smallest-first's.
        time_to_99: [E] share of the seconds of everything; 1 if never.
        stop_value: [E, len(DOUBTS)] share of the optimum when each doubt would have stopped.
        stop_time: [E, len(DOUBTS)] and when, as a share of the seconds of everything.
    """

    area: Array
    time_to_99: Array
    stop_value: Array
    stop_time: Array


def rollout(forward: Forward, episodes: Episodes) -> Rollout:
    """Run every episode once to its end, always with the highest score."""
    e = len(episodes)
    env = ReplayEnv(lambda _: episodes, e, block=e, linger=0.0, in_order=True)
    alive = np.ones(e, dtype=bool)
    area, t99 = np.zeros(e), np.ones(e)
    value, time = np.ones((e, len(DOUBTS))), np.ones((e, len(DOUBTS)))
    stopped = np.zeros((e, len(DOUBTS)), dtype=bool)
    total = np.maximum(episodes.total, 1e-20)
    while alive.any():
        mask = env.state.mask
        scores, missing = forward(env.observe(), env.state.present, mask)
        now = alive & env.state.complete.any(axis=1)
        stop = (missing[:, _STOP_LEVEL, None] < DOUBTS) & ~stopped & now[:, None]
        stopped |= stop
        value = np.where(stop, 1 - env.regret_if_stopped()[:, None], value)
        time = np.where(stop, (env.now / total)[:, None], time)
        reward, ended, info = env.step(np.where(mask.any(axis=1), scores.argmax(axis=1), env.n))
        area -= np.where(alive, reward, 0)
        hit = alive & (t99 == 1) & (info["regret"] <= 0.01)
        t99[hit] = np.minimum(info["now"][hit] / total[hit], 1)
        alive &= ~ended
    return Rollout(
        area.astype(np.float32),
        t99.astype(np.float32),
        value.astype(np.float32),
        time.astype(np.float32),
    )


def calibrated_doubt(
    results: list[Rollout], *, mean: float = 0.99, tail: float = 0.95, share: float = 0.02
) -> float:
    """The largest doubt with which searches still keep enough of the optimum.

    Args:
        results: Of searches on tables of the training.
        mean: Least mean share of the optimum at the stop.
        tail: Share of the optimum that ...
        share: ... at most this share of searches may miss.
    """
    values = np.concatenate([r.stop_value for r in results])
    good = (values.mean(axis=0) >= mean) & ((values < tail).mean(axis=0) <= share)
    return DOUBTS[int(np.flatnonzero(good).max())] if good.any() else DOUBTS[0]
