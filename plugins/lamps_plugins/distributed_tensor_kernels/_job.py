"""One job of one rank: check an operator under a plan against float64, then time it.

Every rank of a group gets the same job and draws the operands itself, so that nothing but chunks
travels. Three sets of operands take turns, so that none is found in a cache by being the last one.
An answer outside its tolerance ends the job before anything is timed.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lamps.errors import MethodFailed
from lamps.types import Json
from lamps_plugins.distributed_tensor_kernels._library import library_call
from lamps_plugins.distributed_tensor_kernels._mesh import Conditions, DeviceMesh
from lamps_plugins.distributed_tensor_kernels._operators import operator_class
from lamps_plugins.distributed_tensor_kernels._operators._base import (
    Operands,
    Reference,
    Shape,
    judge,
)
from lamps_plugins.distributed_tensor_kernels._plan import Plan
from lamps_plugins.distributed_tensor_kernels._transports import Transport

__all__ = ["Job", "RankReport", "do", "operands"]

SETS = 3
"""Sets of operands that take turns."""

SINGLE = ("single", "numpy")
"""Libraries that do everything on rank 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a group of ranks is asked to do.

    Args:
        operator: Name of the operator.
        shape: Its sizes.
        plan: How; None for a library call.
        library: ``collective``, ``single`` or ``numpy`` instead of a plan.
        seed: Root of the operands.
        warmups: Repetitions that are not timed.
        repetitions: Repetitions that are timed.
        conditions: See `Conditions`.
        check: Whether answers must be right; off only to show what goes wrong without signals.
    """

    operator: str
    shape: Shape
    plan: Plan | None = None
    library: str = ""
    seed: int = 0
    warmups: int = 3
    repetitions: int = 5
    conditions: Conditions = field(default_factory=Conditions)
    check: bool = True

    def as_json(self) -> dict[str, Json]:
        """All fields."""
        return {
            **{f.name: getattr(self, f.name) for f in dataclasses.fields(self)},
            "shape": dict(self.shape),
            "plan": None if self.plan is None else self.plan.as_json(),
            "conditions": dataclasses.asdict(self.conditions),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Job:
        """The inverse of `as_json`."""
        plan = values["plan"]
        return cls(
            **{
                **values,
                "plan": None if plan is None else Plan.from_json(plan),
                "conditions": Conditions(**values["conditions"]),
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """What a rank measured.

    Args:
        rank: Which one.
        latencies_ms: Of each timed repetition, from the barrier to its end.
        alone_ms: Of as many repetitions of its computing without any communication.
        held_bytes: Symmetric memory and scratch.
        bytes_sent: Payload a repetition.
        worst: Largest error in units of its bound.
        relative: Relative Frobenius norm of the error.
        digest: Hash of the bits of the answer for the first set of operands.
    """

    rank: int
    latencies_ms: list[float]
    alone_ms: list[float]
    held_bytes: int
    bytes_sent: int
    worst: float
    relative: float
    digest: str

    def as_json(self) -> dict[str, Json]:
        """All fields."""
        return dataclasses.asdict(self)


@functools.lru_cache(maxsize=SETS)
def operands(operator: str, sizes: tuple[tuple[str, int], ...], seed: int) -> Operands:
    """All operands of a problem; kept, since many plans are tried on one problem."""
    return operator_class(operator).draw(dict(sizes), seed)


@functools.lru_cache(maxsize=SETS)
def _reference(operator: str, sizes: tuple[tuple[str, int], ...], seed: int) -> Reference:
    cls = operator_class(operator)
    return cls.reference(operands(operator, sizes, seed), dict(sizes))


def do(job: Job, transport: Transport) -> RankReport:
    """Check and time a job on this rank; all ranks of the group do it together.

    Raises:
        MethodFailed: An answer is outside of its tolerance, or a rank did not answer.
    """
    mesh = DeviceMesh(transport, job.operator, job.conditions)
    try:
        return _Run(job, mesh).report()
    finally:
        mesh.close()


class _Run:
    """A job under way."""

    def __init__(self, job: Job, mesh: DeviceMesh) -> None:
        self.job, self.mesh = job, mesh
        self.cls = operator_class(job.operator)
        self.sizes = tuple(job.shape.items())
        rank, world = mesh.rank(), mesh.num_ranks()
        drawn = [operands(job.operator, self.sizes, self._seed(i)) for i in range(SETS)]
        self.full = [self._there(full) for full in drawn]
        self.own = [self._there(self.cls.local(f, job.shape, rank, world)) for f in drawn]
        self.value = 0
        self.operator = None if job.plan is None else self.cls(mesh, job.shape, job.plan)

    def _there(self, found: Operands) -> Operands:
        return {name: x.to(self.mesh.device) for name, x in found.items()}

    def _seed(self, which: int) -> int:
        return self.job.seed * SETS + which

    @property
    def idle(self) -> bool:
        """Whether a library has nothing for this rank to do."""
        return self.job.library in SINGLE and self.mesh.rank() > 0

    def once(self) -> tuple[int, Tensor | None]:
        """Which set of operands it was, and this rank's answer where it has one."""
        which = self.value % SETS
        self.value += 1
        full, own = self.full[which], self.own[which]
        if self.operator is not None:
            return which, self.operator.run(own, self.value)
        if self.idle:
            return which, None
        how, shape = self.job.library, self.job.shape
        return which, library_call(how, self.cls, full, own, shape, self.mesh)

    def report(self) -> RankReport:
        """Check, then time."""
        worst, relative, digest = self._check()
        sent = self.mesh.bytes_sent
        for _ in range(max(self.job.warmups - SETS, 0)):
            self.once()
        latencies = [self._timed() for _ in range(self.job.repetitions)]
        alone = latencies  # a single rank does nothing but compute
        if self.job.library not in SINGLE:
            alone = [self._timed_alone(i) for i in range(self.job.repetitions)]
        held = self.mesh.held_bytes + self._library_bytes()
        if self.operator is not None:
            self.mesh.barrier()
            self.operator.close()
        return RankReport(
            rank=self.mesh.rank(),
            latencies_ms=latencies,
            alone_ms=alone,
            held_bytes=held,
            bytes_sent=sent // SETS,
            worst=worst,
            relative=relative,
            digest=digest,
        )

    def _check(self) -> tuple[float, float, str]:
        """The first repetitions, one for each set, against float64."""
        rank, world = self.mesh.rank(), self.mesh.num_ranks()
        worst, relative, digest = 0.0, 0.0, ""
        for _ in range(SETS):
            which, answer = self.once()
            if answer is None:
                continue
            found = answer.cpu()
            if not which:
                digest = hashlib.sha256(found.contiguous().numpy().tobytes()).hexdigest()[:12]
            whole = _reference(self.job.operator, self.sizes, self._seed(which))
            wanted = whole
            if self.job.library not in SINGLE:
                wanted = self.cls.part_of(whole, self.job.shape, rank, world)
            verdict = judge(found, wanted)
            worst, relative = max(worst, verdict.worst), max(relative, verdict.relative)
            if self.job.check and not verdict.right:
                how = self.job.library or self.job.plan
                raise MethodFailed(
                    f"rank {rank}: {self.job.operator} by {how} is wrong: error "
                    f"{verdict.worst:.3g} times its bound, relative {verdict.relative:.3g} of "
                    f"{wanted.relative:.3g}; nothing was timed"
                )
        return worst, relative, digest

    def _timed(self) -> float:
        self.mesh.barrier()
        start = time.perf_counter()
        self.once()
        self._synchronize()
        return 1e3 * (time.perf_counter() - start)

    def _timed_alone(self, turn: int) -> float:
        """Computing only, of a plan or of a rank in a collective."""
        which = turn % SETS
        full, own = self.full[which], self.own[which]
        self.mesh.barrier()
        start = time.perf_counter()
        if self.operator is not None:
            self.operator.alone(full, own)
        else:
            rank, world = self.mesh.rank(), self.mesh.num_ranks()
            self.cls.computing(full, own, self.job.shape, rank, world)
        self._synchronize()
        return 1e3 * (time.perf_counter() - start)

    def _library_bytes(self) -> int:
        """Memory of a library call besides operands and results."""
        if self.operator is not None or self.idle:
            return 0
        if self.job.library == "collective":
            return self.cls.collective_bytes(self.job.shape, self.mesh.num_ranks())
        return _n_bytes(self.full[0]) - _n_bytes(self.own[0])  # what other ranks would hold

    def _synchronize(self) -> None:
        if self.mesh.device.type == "cuda":
            torch.cuda.current_stream().synchronize()


def _n_bytes(found: Operands) -> int:
    return sum(x.numel() * x.element_size() for x in found.values())
