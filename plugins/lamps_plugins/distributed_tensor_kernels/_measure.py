"""Runs a method's plan on the problem's ranks and turns their reports into numbers."""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from lamps.types import Evaluation
from lamps_plugins.distributed_tensor_kernels._calibrate import Calibration
from lamps_plugins.distributed_tensor_kernels._cost import expected_s
from lamps_plugins.distributed_tensor_kernels._job import Job, RankReport
from lamps_plugins.distributed_tensor_kernels._launch import Group, group_for
from lamps_plugins.distributed_tensor_kernels._problem import REPETITIONS, WARMUPS, TileProblem

if TYPE_CHECKING:
    from lamps_plugins.distributed_tensor_kernels._planned import Planned

__all__ = ["combined", "extended", "ranks_of", "summary", "tested"]


def extended(
    method: Planned[Any], problem: TileProblem, fidelity: float, known: dict[str, Any]
) -> dict[str, Any]:
    """What is known of a method at a fidelity, continuing from an earlier landmark.

    Args:
        method: Its plan or library call.
        problem: The problem.
        fidelity: Where it is to stand.
        known: What an earlier landmark of the same sizes gave; empty if none did.

    Raises:
        MethodFailed: The plan is wrong, or a rank did not answer.
    """
    before = known.get("latencies_ms", np.zeros(0))
    job = Job(
        operator=problem.operator,
        shape=problem.sizes(fidelity),
        plan=method.plan_for(problem, fidelity),
        library=method.library,
        seed=problem.seed,
        warmups=WARMUPS[fidelity],
        repetitions=REPETITIONS[fidelity] - len(before),
    )
    with ranks_of(problem, method.library) as group:
        machine = group.calibrate()
        found = combined(group.run(job), machine)
    for name in ("latencies_ms", "alone_ms"):
        found[name] = np.concatenate([known.get(name, np.zeros(0)), found[name]])
    plan = method.plan()
    found["expected_ms"] = 1e3 * expected_s(
        problem.operator, job.shape, problem.ranks, plan, machine
    )
    found["sizes"] = dict(job.shape)
    return found


def ranks_of(problem: TileProblem, library: str) -> AbstractContextManager[Group]:
    """The ranks of a problem; for collectives those of gloo, which is what has them."""
    transport = "gloo" if library == "collective" else problem.transport
    return group_for(problem.ranks, transport, wait_s=problem.wait_s, link=problem.link)


def combined(reports: list[RankReport], machine: Calibration) -> dict[str, Any]:
    """Reports of all ranks as one: the slowest rank counts in each repetition."""
    return {
        "latencies_ms": np.array([r.latencies_ms for r in reports]).max(axis=0),
        "alone_ms": np.array([r.alone_ms for r in reports]).max(axis=0),
        "held_bytes": max(r.held_bytes for r in reports),
        "bytes_sent": max(r.bytes_sent for r in reports),
        "worst": max(r.worst for r in reports),
        "relative": max(r.relative for r in reports),
        "digest": "".join(r.digest for r in reports),
        "machine": machine.as_json(),
    }


def summary(times: dict[str, Any], problem: TileProblem) -> Evaluation:
    """Objectives and signals of what was measured."""
    machine = Calibration(**times["machine"])
    latency, alone = (float(np.median(times[k])) for k in ("latencies_ms", "alone_ms"))
    objectives = {
        "latency_ms": latency,
        # On busy cores computing alone may come out slower: noise must win no front.
        "exposed_ms": max(latency - alone, 0.0),
        "buffer_bytes": float(times["held_bytes"]),
    }
    signals = {
        "alone_ms": alone,
        "latency_p90_ms": float(np.quantile(times["latencies_ms"], 0.9)),
        "repetitions": float(len(times["latencies_ms"])),
        "bytes_sent": float(times["bytes_sent"]),
        "error_of_bound": float(times["worst"]),
        "relative_error": float(times["relative"]),
        "expected_ms": float(times["expected_ms"]),
        "alpha_us": 1e6 * machine.alpha_s,
        "beta_mb_s": 1e-6 * machine.bytes_s,
        "gflops": 1e-9 * machine.flops_s,
        # Equal bits of all ranks' answers give equal numbers, across plans and runs.
        "answer": float(int(times["digest"][:12] or "0", 16)),
        "simulated_link": float(problem.simulated),
    }
    return Evaluation(objectives, signals)


def tested(method: Planned[Any], problem: TileProblem, fidelity: float) -> Evaluation:
    """Objectives as ``test_NAME`` for operands that no landmark saw, timed now."""
    other = dataclasses.replace(problem, seed=problem.seed + 1)
    found = summary(extended(method, other, fidelity, {}), other)
    return Evaluation(
        {f"test_{name}": value for name, value in found.objectives.items()}, found.signals
    )
