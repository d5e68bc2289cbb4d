"""Seconds per decision, in the middle of a search, for every policy."""

from __future__ import annotations

import numpy as np
from bench_table import Figure, figure, timed

from lamps import policy as policies
from lamps.policy import Hindsight, Observation, Pool


def half_done(n: int, landmarks: int = 6, objectives: int = 3) -> Observation:
    """A pool in which every trial stands somewhere."""
    rng = np.random.default_rng(n)
    obs = Observation.empty(n, np.linspace(0, 1, landmarks), objectives, rng.random(n))
    obs.landmark[:] = rng.integers(0, landmarks - 1, n)
    for k in range(landmarks):
        reached = obs.landmark >= k
        obs.values[reached, k] = rng.random((int(reached.sum()), objectives))
        obs.cost_s[reached, k] = rng.random(int(reached.sum()))
    return obs


def measure() -> list[Figure]:
    """The slowest policy at 100 and at 1,000 trials."""
    figures = []
    for n, goal in ((100, 5.0), (1000, 50.0)):
        obs = half_done(n)
        # What the oracle would know; to the others it is only a pool.
        hindsight = Hindsight(np.nan_to_num(obs.values), np.nan_to_num(obs.cost_s))
        pool = Pool(tuple(map(str, range(n))), None, hindsight)
        worst: tuple[list[float], str] = ([0.0], "")
        for name in policies.names():
            rule = policies.make(name)
            rule.prepare(pool)
            times = [
                1e3 * timed(lambda r=rule, o=obs: (o.digest(), r.propose(o, o.mask)))
                for _ in range(20)
            ]
            if sorted(times)[10] > sorted(worst[0])[len(worst[0]) // 2]:
                worst = (times, name)
        figures.append(
            figure(f"decision at {n} trials", worst[0], "ms", goal, note=f"slowest: {worst[1]}")
        )
    return figures
