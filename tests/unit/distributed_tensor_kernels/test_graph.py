"""Graphs and schedules: dependencies are those of the slices, and every schedule respects them."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lamps_plugins.distributed_tensor_kernels._graph import Graph, GraphBuilder, even_slices
from lamps_plugins.distributed_tensor_kernels._operators.decode_step import step_graph
from lamps_plugins.distributed_tensor_kernels._plan import SCHEDULERS
from lamps_plugins.distributed_tensor_kernels._schedule import (
    Schedule,
    Step,
    makespan,
    schedule,
)
from lamps_plugins.distributed_tensor_kernels._scoreboard import Scoreboard

from lamps.errors import MethodFailed, ProblemError

pytestmark = pytest.mark.timeout(60)

STEP = {"layers": 2, "b": 2, "d": 64, "h": 8, "hkv": 4, "f": 96, "s": 64}


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, list[tuple[int, int, int]]]:
    """A chain of stages with tiles of drawn sizes; with (stage, producer, size) of each."""
    builder, length, made = GraphBuilder(), draw(st.integers(1, 30)), []
    for stage in range(draw(st.integers(1, 6))):
        size = draw(st.integers(1, length))
        reads, producer = [], -1
        slices = even_slices(length, size)
        if stage:
            producer = draw(st.integers(0, stage - 1))
            reads = [(f"b{producer}", slices)]
        cost = draw(st.floats(0.1, 2.0))
        builder.add("op", stage, slices, reads, buffer=f"b{stage}", cost=cost)
        made.append((stage, producer, size))
    return builder.build(), made


def brute(graph: Graph, made: list[tuple[int, int, int]], node: int) -> set[int]:
    """Nodes whose slices meet that of a node, one by one."""
    stage, tile = graph.tile(node)
    producer = made[stage.layer][1]
    if producer < 0:
        return set()
    there = graph.stages[producer]
    a, b = stage.writes[tile]
    meets = [i for i, (c, d) in enumerate(there.writes) if c < b and a < d]
    return {there.start + i for i in meets}


def needed(graph: Graph, node: int) -> set[int]:
    return {n for first, last in graph.needs(node) for n in range(first, last)}


@given(graphs())
def test_dependencies_are_the_slices_that_meet(
    case: tuple[Graph, list[tuple[int, int, int]]],
) -> None:
    graph, made = case
    for node in range(graph.n_nodes):
        assert needed(graph, node) == brute(graph, made, node)


@given(graphs(), st.integers(1, 4), st.sampled_from(SCHEDULERS))
def test_schedules_run_every_node_once_after_what_it_needs(
    case: tuple[Graph, list[tuple[int, int, int]]], workers: int, how: str
) -> None:
    graph, _ = case
    plan = schedule(graph, workers, how)
    assert sorted(s.node for q in plan.queues for s in q) == list(range(graph.n_nodes))
    total, longest = graph.costs.sum(), makespan(graph, plan)
    assert total / workers - 1e-9 <= longest <= total + 1e-9
    if workers == 1:
        assert longest == pytest.approx(total)


@given(graphs(), st.integers(1, 3), st.sampled_from(SCHEDULERS))
@settings(deadline=None, max_examples=30)
def test_waits_that_were_dropped_are_not_missed(
    case: tuple[Graph, list[tuple[int, int, int]]], workers: int, how: str
) -> None:
    graph, _ = case
    plan = schedule(graph, workers, how)
    done: set[int] = set()
    early: list[int] = []
    lock = threading.Lock()

    def body(node: int) -> None:
        with lock:
            if not needed(graph, node) <= done:
                early.append(node)
            done.add(node)

    board = Scoreboard(plan, graph.n_nodes, body, wait_s=5)
    board.run(1)
    board.close()
    assert not early
    assert len(done) == graph.n_nodes
    kept = sum(len(step.waits) for queue in plan.queues for step in queue)
    assert kept + plan.dropped == sum(len(graph.needs(n)) for n in range(graph.n_nodes))


def test_list_scheduling_is_within_grahams_bound_and_beats_dealing() -> None:
    graph = step_graph(STEP, 16, 8, 4, 96)
    spans = {how: makespan(graph, schedule(graph, 2, how)) for how in SCHEDULERS}
    longest_path = makespan(graph, schedule(graph, graph.n_nodes, "list"))
    assert spans["list"] <= graph.costs.sum() / 2 + longest_path
    assert spans["list"] <= min(spans["rr"], spans["zigzag"]) * 1.001


def test_a_queue_that_was_waited_for_is_not_waited_for_again() -> None:
    graph = step_graph(STEP, 16, 8, 4, 96)
    assert schedule(graph, 2, "rr").dropped > 0
    one = schedule(graph, 1, "rr")
    assert all(not step.waits for queue in one.queues for step in queue)


def test_slices_that_overlap_or_reach_too_far_are_refused() -> None:
    builder = GraphBuilder()
    with pytest.raises(ProblemError, match="empty, unsorted or overlap"):
        builder.add("op", 0, np.array([[0, 3], [2, 4]]), [], buffer="x", cost=1.0)
    builder.add("op", 0, even_slices(4, 2), [], buffer="x", cost=1.0)
    with pytest.raises(ProblemError, match="up to 5, only 4 are written"):
        builder.add("next", 1, even_slices(5, 5), [("x", even_slices(5, 5))], buffer="y", cost=1.0)


def test_bad_schedules_are_refused() -> None:
    graph = step_graph(STEP, 64, 8, 4, 96)
    with pytest.raises(ProblemError, match="0 workers"):
        schedule(graph, 0, "rr")
    with pytest.raises(ProblemError, match="Did you mean 'zigzag'"):
        schedule(graph, 1, "zigzak")
    reversed_queue = tuple(Step(n, tuple(graph.needs(n))) for n in range(graph.n_nodes))[::-1]
    with pytest.raises(ProblemError, match="wait for each other"):
        makespan(graph, Schedule((reversed_queue,), 0))


def test_a_task_that_waits_in_vain_is_named() -> None:
    graph = step_graph(STEP, 64, 8, 4, 96)
    steps = tuple(Step(n, tuple(graph.needs(n))) for n in range(graph.n_nodes))[::-1]
    board = Scoreboard(
        Schedule((steps,), 0), graph.n_nodes, lambda n: None, wait_s=0.1, name="step"
    )
    with pytest.raises(MethodFailed, match=r"of step waited 0.1 s for tasks"):
        board.run(1)


def test_an_error_in_a_task_stops_all_workers() -> None:
    graph = step_graph(STEP, 16, 8, 4, 96)

    def body(node: int) -> None:
        if node == 5:
            raise ValueError("task 5 fails")

    board = Scoreboard(schedule(graph, 3, "rr"), graph.n_nodes, body, wait_s=5)
    with pytest.raises(ValueError, match="task 5 fails"):
        board.run(1)
    board.close()
