"""What is known of a kernel: its two versions, cases with a float64 answer, refusals, timings.

A kernel file ends with ``KERNEL = Kernel(...)``. One suite, `lamps.testing.kernels`, reads all of
them; so a new file is tested, listed and timed without another line anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch import device as Device
from torch import dtype as DType

Inputs: TypeAlias = dict[str, Any]
"""Keyword arguments of one call."""


class Tolerance(NamedTuple):
    """How far a result may lie from the float64 one.

    Args:
        absolute: Bound of ``max |got - wanted| / max(1, max |wanted|)``.
        relative: Bound of the Frobenius norm of the difference over that of what is wanted.
    """

    absolute: float
    relative: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Inputs that a kernel must answer.

    Args:
        name: Name of the test.
        inputs: ``inputs(device, dtype, generator)`` draws the keyword arguments on the CPU's
            ``generator`` and moves them to ``device``.
        dtypes: Element types to try; those without a tolerance are left out.
    """

    name: str
    inputs: Callable[[torch.device, torch.dtype, torch.Generator], Inputs]
    dtypes: tuple[torch.dtype, ...] = (torch.float32,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Inputs that both versions of a kernel refuse with `ValueError`.

    Args:
        name: Name of the test.
        inputs: Gives the keyword arguments, on the CPU.
        match: Regular expression found in the message.
    """

    name: str
    inputs: Callable[[], Inputs]
    match: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """How a `triton.jit` function is compiled where no GPU is.

    Args:
        function: The function.
        types: Triton's type of each argument, such as ``*fp32``, ``i32`` or ``constexpr``.
        constants: Values of the ``constexpr`` arguments.
        warps: Warps of a program.
    """

    function: Any
    types: Mapping[str, str]
    constants: Mapping[str, Any]
    warps: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One size at which a kernel is timed.

    Args:
        size: What is timed, in words, such as ``"L=8192 H=4 D=64"``.
        prepare: ``prepare(device, dtype)`` gives calls to time by name, in turns: ``"torch"`` is
            the twin, ``"triton"`` the kernel (left out by the caller where it cannot run), every
            other name the library that is compared with.
        gpu_only: Too large for a CPU.
        flops: Floating-point operations of one call, 0 where memory bounds it.
        bytes: Bytes read and written by one call.
        density: Share of the dense work, for sparse kernels; 1 for dense ones.
        dtype: Element type; ``None`` is float32 on a CPU and bfloat16 on a GPU.
    """

    size: str
    prepare: Callable[[torch.device, torch.dtype], Mapping[str, Callable[[], Any]]]
    gpu_only: bool = False
    flops: float = 0.0
    bytes: float = 0.0
    density: float | Callable[[], float] = 1.0
    dtype: torch.dtype | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel and everything that is asked of it.

    Args:
        name: Name of its file.
        torch: The twin in torch operations, on any device.
        triton: The same by Triton; on CPU tensors under ``TRITON_INTERPRET=1``.
        reference: The same in float64 and in the plainest form, from the same (rounded) inputs.
        cases: Inputs that must be answered.
        refusals: Inputs that must be refused.
        tolerances: Bounds for each element type.
        exact: Both versions give the same bits.
        compare: Turns a result into the tensors that are compared; by default the floating-point
            tensors of a tensor, tuple or named tuple.
        signatures: Functions to compile where no GPU is.
        benches: Sizes to time.
    """

    name: str
    torch: Callable[..., Any]
    triton: Callable[..., Any]
    reference: Callable[..., Any]
    cases: tuple[Case, ...]
    refusals: tuple[Refusal, ...] = ()
    tolerances: Mapping[DType, Tolerance]
    exact: bool = False
    compare: Callable[[Any], tuple[Tensor, ...]] | None = None
    signatures: tuple[Signature, ...] = ()
    benches: tuple[Bench, ...] = field(default=())

    def implementation(self, device: Device | str) -> str:
        """``"triton"`` where Triton runs it, on a GPU, and ``"torch"`` elsewhere."""
        return "triton" if torch.device(device).type == "cuda" and has_triton() else "torch"

    def tensors(self, result: Any) -> tuple[Tensor, ...]:
        """What of ``result`` is compared with the reference."""
        if self.compare is not None:
            return self.compare(result)
        parts = result if isinstance(result, tuple) else (result,)
        return tuple(p for p in parts if isinstance(p, Tensor))


def has_triton() -> bool:
    """Whether triton can be imported."""
    try:
        import triton  # type: ignore[import-untyped]  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True
