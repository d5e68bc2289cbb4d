"""Latencies of several plans side by side: in turns, so that a busy moment meets all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from lamps_plugins.distributed_tensor_kernels._graph import Graph
from lamps_plugins.distributed_tensor_kernels._job import Job
from lamps_plugins.distributed_tensor_kernels._launch import Group, group_for
from lamps_plugins.distributed_tensor_kernels._operators import operator_class
from lamps_plugins.distributed_tensor_kernels._plan import Plan
from lamps_plugins.distributed_tensor_kernels._schedule import schedule
from lamps_plugins.distributed_tensor_kernels._scoreboard import Scoreboard
from lamps_plugins.distributed_tensor_kernels._transports import Link

__all__ = ["FAST", "even_link", "makespans", "medians"]

FAST = Link(alpha_us=0.0, beta_mb_s=1e6)
"""A link that takes no time worth mentioning."""


def medians(
    group: Group, operator: str, shape: Mapping[str, int], plans: Mapping[str, Plan], seed: int,
    *, rounds: int, repetitions: int = 5,
) -> dict[str, tuple[float, str]]:  # fmt: skip
    """Median latency in ms of the slowest rank, and hash of the bits of the answer, by plan."""
    times: dict[str, list[float]] = {name: [] for name in plans}
    bits: dict[str, str] = {}
    for _ in range(rounds):
        for name, plan in plans.items():
            job = Job(
                operator=operator, shape=dict(shape), plan=plan, seed=seed,
                repetitions=repetitions,
            )  # fmt: skip
            reports = group.run(job)
            times[name] += np.array([r.latencies_ms for r in reports]).max(0).tolist()
            bits[name] = "".join(r.digest for r in reports)
    return {name: (float(np.median(t)), bits[name]) for name, t in times.items()}


def even_link(operator: str, shape: Mapping[str, int], plan: Plan, seed: int) -> Link:
    """A link on which sending takes as long as computing does now, between two ranks."""
    job = Job(operator=operator, shape=dict(shape), plan=plan, seed=seed, repetitions=9)
    with group_for(2, "simlink", wait_s=60.0, link=FAST) as group:
        reports = group.run(job)
    alone_us = 1e3 * float(np.median(np.array([r.alone_ms for r in reports]).max(0)))
    n_bytes = operator_class(operator).wire_bytes(dict(shape), 2)
    return Link(alpha_us=50.0, beta_mb_s=n_bytes / alone_us)


def makespans(
    graph: Graph, rules: Mapping[str, tuple[int, str]], seconds: float
) -> dict[str, float]:
    """Seconds that schedules of a graph take when each task sleeps for its expected time.

    The schedule is run by the threads of the scoreboard; sleeping stands for cores that are not
    shared with anybody, as a simulated link stands for a network.

    Args:
        graph: What is scheduled.
        rules: Workers and rule by name.
        seconds: Sum of all tasks; costs are scaled to it.
    """
    scale = seconds / float(graph.costs.sum())
    body: Callable[[int], None] = lambda node: time.sleep(scale * float(graph.costs[node]))  # noqa: E731
    found = {}
    for name, (workers, how) in rules.items():
        board = Scoreboard(schedule(graph, workers, how), graph.n_nodes, body, name=name)
        start = time.perf_counter()
        board.run(1)
        found[name] = time.perf_counter() - start
        board.close()
    return found
