"""Who runs which tile task when: static schedules, made before anything runs.

A schedule is one queue of nodes for each worker. All queues together can be put into one order in
which every node comes after what it needs, and it is the same order on every rank; so the first
node in it that has not run is at the head of a queue and can run, and nothing waits forever.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lamps.errors import ProblemError, did_you_mean
from lamps_plugins.distributed_tensor_kernels._graph import Graph
from lamps_plugins.distributed_tensor_kernels._plan import SCHEDULERS

__all__ = ["Schedule", "Step", "makespan", "schedule"]


@dataclass(frozen=True, slots=True)
class Step:
    """A node in a queue.

    Args:
        node: Which one.
        waits: Ranges of nodes that must have run, without those that this queue knows have.
    """

    node: int
    waits: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """A queue of steps for each worker.

    Args:
        queues: See above.
        dropped: Dependencies that need no waiting because of an earlier one in their queue.
    """

    queues: tuple[tuple[Step, ...], ...]
    dropped: int


def schedule(graph: Graph, workers: int, how: str) -> Schedule:
    """Distribute the nodes of a graph.

    Args:
        graph: What to run.
        workers: Number of queues.
        how: ``rr`` deals nodes in their order; ``zigzag`` as well, to and fro; ``list`` gives the
            free worker the ready node with the longest path of expected seconds to the end.

    Raises:
        ProblemError: The rule is unknown, or there is no worker.
    """
    if workers < 1:
        raise ProblemError(f"{workers} workers; expected 1 or more")
    if how not in SCHEDULERS:
        raise ProblemError(f"no scheduler {how!r}. {did_you_mean(how, SCHEDULERS)}")
    nodes = np.arange(graph.n_nodes)
    if how == "list":
        return _reduced(graph, _by_longest_path(graph, workers))
    turn = nodes % workers
    if how == "zigzag":
        turn = np.where(nodes // workers % 2, workers - 1 - turn, turn)
    return _reduced(graph, [nodes[turn == worker].tolist() for worker in range(workers)])


def _consumers(graph: Graph) -> tuple[list[list[int]], np.ndarray]:
    """Nodes that need each node, and how many nodes each needs."""
    after: list[list[int]] = [[] for _ in range(graph.n_nodes)]
    count = np.zeros(graph.n_nodes, dtype=np.int64)
    for node in range(graph.n_nodes):
        needed = {n for first, last in graph.needs(node) for n in range(first, last)}
        count[node] = len(needed)
        for n in needed:
            after[n].append(node)
    return after, count


def _by_longest_path(graph: Graph, workers: int) -> list[list[int]]:
    after, count = _consumers(graph)
    length = graph.costs.copy()
    for node in range(graph.n_nodes - 1, -1, -1):
        length[node] += max((length[n] for n in after[node]), default=0.0)
    ready = [(-length[n], n) for n in range(graph.n_nodes) if not count[n]]
    heapq.heapify(ready)
    free = list(range(workers))
    running: list[tuple[float, int, int]] = []
    queues: list[list[int]] = [[] for _ in range(workers)]
    now = 0.0
    while ready or running:
        while ready and free:
            _, node = heapq.heappop(ready)
            worker = heapq.heappop(free)
            queues[worker].append(node)
            heapq.heappush(running, (now + graph.costs[node], node, worker))
        now, node, worker = heapq.heappop(running)
        heapq.heappush(free, worker)
        for n in after[node]:
            count[n] -= 1
            if not count[n]:
                heapq.heappush(ready, (-length[n], n))
    return queues


def _reduced(graph: Graph, queues: Sequence[Sequence[int]]) -> Schedule:
    """Queues of steps without waits that an earlier step of the same queue implies."""
    made, dropped = [], 0
    for queue in queues:
        known = np.zeros(graph.n_nodes, dtype=bool)
        steps = []
        for node in queue:
            waits = []
            for first, last in graph.needs(node):
                if known[first:last].all():
                    dropped += 1
                else:
                    waits.append((first, last))
                    known[first:last] = True
            known[node] = True
            steps.append(Step(node, tuple(waits)))
        made.append(tuple(steps))
    return Schedule(tuple(made), dropped)


def makespan(graph: Graph, plan: Schedule) -> float:
    """Expected seconds from the first start to the last end.

    Raises:
        ProblemError: The queues wait for each other.
    """
    end = np.full(graph.n_nodes, np.inf)
    at, clock = [0] * len(plan.queues), [0.0] * len(plan.queues)
    left = graph.n_nodes
    while left:
        moved = False
        for worker, queue in enumerate(plan.queues):
            while at[worker] < len(queue):
                step = queue[at[worker]]
                ready = max(
                    (float(end[a:b].max()) for a, b in graph.needs(step.node)), default=0.0
                )
                if ready == np.inf:
                    break
                clock[worker] = max(clock[worker], ready) + float(graph.costs[step.node])
                end[step.node] = clock[worker]
                at[worker] += 1
                left -= 1
                moved = True
        if not moved:
            raise ProblemError(f"{left} tasks wait for each other in these queues")
    return max(clock)
