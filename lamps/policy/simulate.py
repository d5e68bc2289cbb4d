"""A whole search on a landmark table in simulated time, for any policy.

What the controller does with the replay backend, without the store: the same observations, the
same order of events. A test holds the two together.

Shapes: ``n`` trials, ``K`` landmarks, ``m`` objectives (minimised).
"""

from __future__ import annotations

import heapq
import math
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lamps.pareto import Floats
from lamps.policy.base import STOP, WAIT, Observation, Policy
from lamps.policy.recorded import Recorded


@dataclass(frozen=True, slots=True)
class Trace:
    """What happened.

    Args:
        trial: [T] int64, whose landmark ended, in the order of time.
        level: [T] int64, which landmark.
        ok: [T] bool, whether it ended well.
        at_s: [T] float64, when.
        decisions: Number of decisions.
        decision_s: Seconds spent deciding, measured.
        stopped: Whether the policy stopped by itself while something could still advance.
    """

    trial: NDArray[np.int64]
    level: NDArray[np.int64]
    ok: NDArray[np.bool_]
    at_s: Floats
    decisions: int
    decision_s: float
    stopped: bool


def simulate(policy: Policy, pool: Recorded, *, workers: int = 1, spend: bool = False) -> Trace:
    """Run ``policy`` on ``pool`` until it stops or nothing is left.

    Args:
        policy: Who decides; it is shown the pool here.
        pool: The curves.
        workers: Landmarks at once.
        spend: Tell the policy that there is a budget to spend, so that it goes on after the point
            where it would stop by itself.
    """
    n, _, m = pool.values.shape
    policy.prepare(pool.pool())
    seen = Observation.empty(n, pool.fidelities, m, pool.size)
    seen.n_workers = workers
    total = float(pool.cost_s.sum()) or 1.0
    flight: list[tuple[float, int, int]] = []
    events: list[tuple[int, int, bool, float]] = []
    now, spent, deciding, stopped = 0.0, 0.0, 0.0, False
    while True:
        waiting = stopped
        while len(flight) < workers and not waiting:
            mask = seen.mask
            if spend:
                seen.budget_used = min(max(spent / total, 1e-9), 1 - 1e-9)
            begin = time.perf_counter()
            action = policy.propose(seen, mask)
            deciding += time.perf_counter() - begin
            if action == STOP:
                stopped = waiting = True
            elif action == WAIT:
                waiting = True
            else:
                level = int(seen.landmark[action]) + 1
                cost = float(pool.cost_s[action, level])
                seen.in_flight[action] = True
                seen.seq += 1
                heapq.heappush(flight, (now + cost, seen.seq, action))
        if not flight:
            break
        now, _, trial = heapq.heappop(flight)
        level = int(seen.landmark[trial]) + 1
        seen.in_flight[trial] = False
        value = pool.values[trial, level]
        ok = bool(pool.measured[trial, level] and all(math.isfinite(v) for v in value.tolist()))
        cost = float(pool.cost_s[trial, level])
        spent += cost
        if ok:
            seen.landmark[trial] = level
            seen.values[trial, level] = value
            seen.cost_s[trial, level] = cost
        else:
            seen.failed[trial] = True
        events.append((trial, level, ok, now))
    columns = list(zip(*events, strict=True)) or [(), (), (), ()]
    return Trace(
        trial=np.array(columns[0], dtype=np.int64),
        level=np.array(columns[1], dtype=np.int64),
        ok=np.array(columns[2], dtype=bool),
        at_s=np.array(columns[3], dtype=float),
        decisions=seen.seq,
        decision_s=deciding,
        stopped=stopped and bool(seen.mask.any()),
    )
