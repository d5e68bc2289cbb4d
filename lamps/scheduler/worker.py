"""One landmark inside a worker: load, fit, evaluate, measure, write the checkpoint.

Runs in the process of the local backend or in a Ray task. It knows nothing of the store: what it
returns is all that the controller learns.
"""

from __future__ import annotations

import errno
import math
import os
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lamps.artifacts import Checkpoint, read_checkpoint, write_checkpoint
from lamps.errors import ContractError, MethodFailed, StoreError
from lamps.method import MEASURED_BY_WORKER, Method, Problem
from lamps.plugins import registry
from lamps.types import Candidate, Cost, Evaluation, Resources, Split

_TRAIN_S = "lamps.train_s"  # key of ours inside a checkpoint, beside the method's own

ResultKind = Literal["ok", "failed", "crashed", "cancelled", "storage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LandmarkTask:
    """Everything a worker needs besides the problem.

    Args:
        key: The decision's id in the store; comes back with the result.
        candidate: What to run.
        fidelity: Up to where; None to only evaluate the checkpoint (the final test).
        split: What to evaluate on.
        seed: Seed of the run; the trial's stream is made of it and the candidate's key.
        checkpoint: Where the trial stands; None for an untouched one.
        target: URI of the checkpoint to write.
        plugin_path: Folders with loose plugins.
        resources: What it occupies.
        label: Name shown by Ray's dashboard.
    """

    key: int
    candidate: Candidate
    fidelity: float | None
    seed: int
    target: str
    checkpoint: tuple[str, str] | None = None
    split: Split = "val"
    plugin_path: str = ""
    resources: Resources = field(default_factory=Resources)
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandmarkResult:
    """What became of a task.

    Args:
        key: The task's key.
        kind: ``ok``; ``failed`` (the method raised or returned nonsense); ``crashed`` (the worker
            vanished); ``cancelled``; ``storage`` (the artifact root refused to work, which is
            nobody's fault).
        evaluation: Objectives and signals; kept for a failed landmark too where there was one.
        cost: What was spent.
        checkpoint: The checkpoint that was written.
        error: One line; the traceback follows after a newline where there is one.
    """

    key: int
    kind: ResultKind
    evaluation: Evaluation | None = None
    cost: Cost | None = None
    checkpoint: Checkpoint | None = None
    error: str = ""


def trial_stream(seed: int, candidate: Candidate) -> np.random.Generator:
    """The random stream of a trial in its start state: equal for equal run seed and candidate."""
    return np.random.default_rng([seed, int(candidate.key, 16)])


def build_method(candidate: Candidate, plugin_path: str) -> Method[Any, Any]:
    """An untouched method of a candidate."""
    cls = registry(plugin_path).load_method(candidate.family, candidate.method)
    return cls.from_params(candidate.params)


def restore_method(task: LandmarkTask, problem: Problem) -> tuple[Method[Any, Any], float]:
    """The method as its checkpoint left it, and the seconds it has been fitted so far.

    A checkpoint that is missing or damaged costs time, not the trial: fits are path-free, so an
    untouched method that is fitted again reaches the same numbers.
    """
    method = build_method(task.candidate, task.plugin_path)
    if task.checkpoint is None:
        return method, 0.0
    try:
        state = read_checkpoint(*task.checkpoint)
    except StoreError:
        if task.fidelity is None:
            raise
        return method, 0.0
    train_s = float(state.pop(_TRAIN_S))
    try:
        method.load_state_dict(state, problem)
    except (KeyError, TypeError, ValueError) as error:
        raise MethodFailed(
            f"the checkpoint does not fit this version of {task.candidate.method} "
            f"({type(error).__name__}: {error}); use the release that wrote it, or start a new run"
        ) from error
    return method, train_s


def run_landmark(task: LandmarkTask, problem: Problem) -> LandmarkResult:
    """Run one landmark; raises nothing but KeyboardInterrupt and Ray's own end of a worker."""
    started, cpu = time.perf_counter(), time.process_time()
    _reset_peak_memory()
    evaluation: Evaluation | None = None
    try:
        method, train_s = restore_method(task, problem)
        if task.fidelity is not None:
            before = time.perf_counter()
            method.partial_fit(problem, task.fidelity, rng=trial_stream(task.seed, task.candidate))
            train_s += time.perf_counter() - before
        evaluation = _checked(method.evaluate(problem, task.split), task)
        evaluation = _with_measured(evaluation, problem, task, train_s)
        checkpoint = None
        if task.fidelity is not None:
            _require_finite(evaluation)
            state = method.state_dict() | {_TRAIN_S: train_s}
            checkpoint = write_checkpoint(task.target, state)
    except StoreError as error:
        return LandmarkResult(key=task.key, kind="storage", error=str(error))
    except (Exception, SystemExit) as error:
        if hasattr(error, "ray_terminate_msg"):
            raise  # Ray ends this process, as on SIGTERM: the worker dies, the method did nothing
        # Methods are foreign code: whatever they raise fails their trial, and only that.
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return LandmarkResult(key=task.key, kind="storage", error=f"disk full: {error}")
        return LandmarkResult(
            key=task.key,
            kind="failed",
            evaluation=evaluation,
            cost=_cost(started, cpu, None),
            error=_explain(error),
        )
    return LandmarkResult(
        key=task.key,
        kind="ok",
        evaluation=evaluation,
        cost=_cost(started, cpu, checkpoint),
        checkpoint=checkpoint,
    )


def _checked(evaluation: object, task: LandmarkTask) -> Evaluation:
    if not isinstance(evaluation, Evaluation):
        raise ContractError(
            f"{task.candidate.method} returned {evaluation!r} from evaluate, "
            "expected an Evaluation"
        )
    for name, value in evaluation.objectives.items():
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
            raise ContractError(
                f"{task.candidate.method} returned {name}={value!r}, expected a number"
            )
    return evaluation


def _with_measured(
    evaluation: Evaluation, problem: Problem, task: LandmarkTask, train_s: float
) -> Evaluation:
    values = {k: float(v) for k, v in evaluation.objectives.items()}
    if task.split == "val":
        measured = {"train_s": train_s, "peak_bytes": float(_peak_memory())}
        names = [o.name for o in problem.objectives]
        values |= {k: v for k, v in measured.items() if k in names and k in MEASURED_BY_WORKER}
        missing = [n for n in names if n not in values]
        if missing:
            raise ContractError(
                f"{task.candidate.method} did not measure {', '.join(missing)}; "
                f"family {problem.family} declares {', '.join(names)}"
            )
        values = {n: values[n] for n in names}
    return Evaluation(values, {k: float(v) for k, v in evaluation.signals.items()})


def _require_finite(evaluation: Evaluation) -> None:
    bad = {k: v for k, v in evaluation.objectives.items() if not math.isfinite(v)}
    if bad:
        listed = ", ".join(f"{k}={v}" for k, v in bad.items())
        raise MethodFailed(f"not finite: {listed}")


def _explain(error: BaseException) -> str:
    head = f"{type(error).__name__}: {error}".replace("\n", " ").strip()
    if isinstance(error, SystemExit):
        head = f"the method called sys.exit({error.code!r})"
    if isinstance(error, (ContractError, MethodFailed)):
        return head
    return head + "\n" + "".join(traceback.format_exception(error)[-6:])


def _cost(started: float, cpu: float, checkpoint: Checkpoint | None) -> Cost:
    return Cost(
        wall_s=time.perf_counter() - started,
        device_s=time.process_time() - cpu,
        peak_bytes=_peak_memory(),
        checkpoint_bytes=checkpoint.size_bytes if checkpoint else 0,
    )


def _reset_peak_memory() -> None:
    """Start a new high-water mark, so that a worker's peak is that of this landmark."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        # Not Linux, or not allowed: the peak is then that of the process, an upper bound.
        return


def _peak_memory() -> int:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if os.uname().sysname == "Darwin" else peak * 1024
