"""Steps per second of the replay environment that the learned policy is trained in."""

from __future__ import annotations

import time

import numpy as np
from bench_table import Figure, figure

from lamps.policy.env import ReplayEnv
from lamps.policy.synthetic import synthetic_episodes

POOL, LANDMARKS, ENVS, STEPS = 32, 10, 512, 60


def measure() -> list[Figure]:
    """Decisions per second on one core, features and new episodes included, at pool 32."""
    rng = np.random.default_rng(0)
    env = ReplayEnv(lambda c: synthetic_episodes(rng, c, POOL, LANDMARKS, 2), ENVS)

    def play() -> None:
        for _ in range(STEPS):
            env.observe()
            mask = env.mask()
            mask[:, -1] &= ~mask[:, :-1].any(axis=1)
            env.step((rng.random(mask.shape, dtype=np.float32) * mask).argmax(axis=1))

    play()  # until slots stand at different places of their searches
    rates = []
    for _ in range(7):
        begin = time.process_time()
        play()
        rates.append(STEPS * ENVS / (time.process_time() - begin) / 1e3)
    return [
        figure(
            "environment steps per second of one core, pool of 32",
            rates,
            "thousand",
            50.0,
            at_least=True,
        )
    ]
