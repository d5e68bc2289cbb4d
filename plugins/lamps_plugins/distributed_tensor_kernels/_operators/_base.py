"""What an operator owes: operands, a float64 answer, and one rank's part of it under a plan."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

from lamps.errors import ProblemError
from lamps_plugins.distributed_tensor_kernels._mesh import DeviceMesh
from lamps_plugins.distributed_tensor_kernels._plan import MODES, Plan
from lamps_plugins.distributed_tensor_kernels._symmetric import SymmBuffer

__all__ = ["Operands", "Operator", "Reference", "Shape", "Verdict", "gemm_reference", "judge"]

Shape = Mapping[str, int]
"""Sizes of an operator's problem by name."""

Operands = dict[str, Tensor]
"""Inputs by name."""

UNIT = 2.0**-24
"""Rounding error of float32, relative."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The answer in float64, and how far a float32 one may lie from it.

    Args:
        value: Shape: [...] float64.
        bound: Largest difference of each element; None where only the norm counts.
        relative: Largest Frobenius norm of the difference, over that of ``value``.
    """

    value: Tensor
    bound: Tensor | None
    relative: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """How far an answer lies from its reference.

    Args:
        worst: Largest difference of an element in units of its bound.
        relative: Frobenius norm of the difference over that of the reference.
        right: Whether both are within tolerance.
    """

    worst: float
    relative: float
    right: bool


def judge(got: Tensor, reference: Reference) -> Verdict:
    """Compare an answer with its reference; anything that is not finite is wrong."""
    if not got.numel():
        return Verdict(0.0, 0.0, got.shape == reference.value.shape)
    off = (got.double() - reference.value).abs()
    size = float(reference.value.norm())
    relative = float(off.norm()) / size if size else float(off.norm())
    worst = 0.0 if reference.bound is None else float((off / reference.bound).max())
    if not (math.isfinite(relative) and math.isfinite(worst)):
        return Verdict(math.inf, math.inf, right=False)
    return Verdict(worst, relative, worst <= 1.0 and relative <= reference.relative)


def gemm_reference(a: Tensor, b: Tensor) -> Reference:
    """The product in float64; 2 K u (|A||B|) an element, and the norm grows with sqrt(K)."""
    depth = a.shape[1]
    bound = 2 * depth * UNIT * (a.double().abs() @ b.double().abs())
    relative = 1e-6 * max(1.0, math.sqrt(depth) / 4)
    return Reference(a.double() @ b.double(), bound.clamp_min(1e-300), relative)


class Operator(ABC):
    """One rank's part of a fused operator.

    Args:
        mesh: The ranks.
        shape: Sizes of the problem, complete.
        plan: A legal plan; see `legal`.
    """

    name: ClassVar[str]
    sizes: ClassVar[Shape]
    """Names and defaults of the problem's sizes."""
    halved: ClassVar[tuple[str, ...]]
    """Sizes that are halved for the cheapest landmark."""
    modes: ClassVar[tuple[str, ...]] = MODES
    uses: ClassVar[tuple[str, ...]] = ("mode", "chunks", "swizzle", "block_m", "block_n")
    """Fields of a plan that make a difference."""

    def __init__(self, mesh: DeviceMesh, shape: Shape, plan: Plan) -> None:
        self.mesh, self.shape, self.plan = mesh, shape, plan
        self.buffers: list[SymmBuffer] = []

    # --- the problem ---------------------------------------------------------------------------

    @classmethod
    def check_shape(cls, shape: Shape, world: int) -> None:
        """Refuse sizes that are no problem.

        Raises:
            ProblemError: The message names the size.
        """
        for name, size in shape.items():
            if size < 1:
                raise ProblemError(f"{cls.name}: {name} is {size}, expected 1 or more")

    @classmethod
    @abstractmethod
    def tiles(cls, shape: Shape, world: int, plan: Plan) -> int:
        """Tiles of the longest shard, that chunks are made of."""

    @classmethod
    def relevant(cls, plan: Plan) -> Plan:
        """The plan with defaults where a field makes no difference."""
        return Plan(**{name: getattr(plan, name) for name in cls.uses})

    @classmethod
    def legal(cls, shape: Shape, world: int, plan: Plan) -> None:
        """Refuse a plan that cannot be run on a problem.

        Raises:
            ProblemError: The message names the field.
        """
        plan.check()
        plan = cls.relevant(plan)
        if plan.mode not in cls.modes:
            raise ProblemError(
                f"{cls.name} has no mode {plan.mode!r}; it has {', '.join(cls.modes)}"
            )
        tiles = cls.tiles(shape, world, plan)
        if plan.chunks > max(tiles, 1):
            raise ProblemError(
                f"{cls.name}: {plan.chunks} chunks of {tiles} tiles; use fewer chunks or smaller "
                "tiles"
            )
        if plan.swizzle == "xor" and (world & (world - 1) or plan.mode == "ring"):
            raise ProblemError(
                f"swizzle 'xor' pairs a power of two of ranks that all send to all; got {world} "
                f"ranks in mode {plan.mode!r}"
            )

    @classmethod
    @abstractmethod
    def draw(cls, shape: Shape, seed: int) -> Operands:
        """All operands, whole; equal for equal seeds on every rank. float32."""

    @classmethod
    @abstractmethod
    def local(cls, full: Operands, shape: Shape, rank: int, world: int) -> Operands:
        """The operands that a rank holds, in memory of their own."""

    @classmethod
    @abstractmethod
    def reference(cls, full: Operands, shape: Shape) -> Reference:
        """The whole answer in float64."""

    @classmethod
    @abstractmethod
    def part(cls, whole: Tensor, shape: Shape, rank: int, world: int) -> Tensor:
        """What a rank holds of the answer."""

    @classmethod
    def part_of(cls, reference: Reference, shape: Shape, rank: int, world: int) -> Reference:
        """`part` of a reference and its bound."""
        bound = reference.bound
        return Reference(
            cls.part(reference.value, shape, rank, world),
            None if bound is None else cls.part(bound, shape, rank, world),
            reference.relative,
        )

    @classmethod
    @abstractmethod
    def flops(cls, shape: Shape) -> float:
        """Floating-point operations of all ranks together."""

    @classmethod
    @abstractmethod
    def wire_bytes(cls, shape: Shape, world: int) -> float:
        """Bytes that a rank must send at least."""

    @classmethod
    @abstractmethod
    def single(cls, full: Operands, shape: Shape) -> Tensor:
        """The whole answer by torch on one rank."""

    @classmethod
    @abstractmethod
    def collective(cls, own: Operands, shape: Shape, mesh: DeviceMesh) -> Tensor:
        """A rank's part by collectives of ``torch.distributed``, then torch."""

    @classmethod
    @abstractmethod
    def computing(cls, full: Operands, own: Operands, shape: Shape, rank: int, world: int) -> None:
        """What a rank computes in `collective`, on data that is there already."""

    @classmethod
    @abstractmethod
    def collective_bytes(cls, shape: Shape, world: int) -> int:
        """Memory of a rank in `collective` besides operands and results."""

    # --- one rank ------------------------------------------------------------------------------

    @abstractmethod
    def run(self, own: Operands, value: int) -> Tensor:
        """One repetition.

        Args:
            own: What `local` gave.
            value: Number of the repetition, from 1, rising by one.

        Returns:
            This rank's part of the answer, valid until the next call.

        Raises:
            MethodFailed: A chunk did not come.
        """

    @abstractmethod
    def alone(self, full: Operands, own: Operands) -> None:
        """All that this rank computes, on data that is there already."""

    def buffer(self, buffer: SymmBuffer) -> SymmBuffer:
        """Keep a buffer, to release and close it with the others."""
        self.buffers.append(buffer)
        return buffer

    def finish(self, value: int) -> None:
        """End a repetition: all is sent, and nothing of it is read any more."""
        self.mesh.join()
        for buffer in self.buffers:
            buffer.release(value)

    def close(self) -> None:
        """Free symmetric memory."""
        for buffer in self.buffers:
            buffer.close()
        self.buffers.clear()

    def slot(self, src: int, dst: int, chunk: int) -> int:
        """Where the chunk of a rank lies at another one."""
        return (src - dst - 1) % self.mesh.num_ranks() * self.plan.chunks + chunk

    def sources(self) -> list[int]:
        """Which rank writes each slot of `slot` here."""
        return [rank for rank in self.mesh.others for _ in range(self.plan.chunks)]

    def receivers(self) -> list[int]:
        """The other ranks, those first that come to our chunks first."""
        rank, world = self.mesh.rank(), self.mesh.num_ranks()
        if self.plan.swizzle == "rank":
            return [(rank - step) % world for step in range(1, world)]
        if self.plan.swizzle == "xor":
            return [rank ^ step for step in range(1, world)]
        return [other for other in range(world) if other != rank]


def gather_rows(x: Tensor, lengths: Sequence[int]) -> Tensor:
    """Rows of all ranks by ``all_gather``, which wants equal lengths and so is padded."""
    longest = max(lengths)
    padded = x.new_zeros((longest, *x.shape[1:]))
    padded[: len(x)] = x
    found = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(found, padded)
    return torch.cat([part[:n] for part, n in zip(found, lengths, strict=True)])


def owned(x: Tensor) -> Tensor:
    """A contiguous copy in memory of its own."""
    return x.clone(memory_format=torch.contiguous_format)
