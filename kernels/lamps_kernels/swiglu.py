"""The gated activation of a feed-forward layer.

    out = silu(gate) * up,      silu(v) = v / (1 + exp(-v))

Memory-bound: two reads and one write an element. Computed in float32.

Source: Shazeer, GLU variants improve Transformer, arXiv 2002.05202, equation (6); one of the tile
programs of a decoding step in DITRON, arXiv 2605.02953.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as nnf

from lamps_kernels._kernel import Bench, Case, Kernel, Refusal, Signature, Tolerance

try:
    import triton  # type: ignore[import-untyped]
    import triton.language as tl  # type: ignore[import-untyped]
except ModuleNotFoundError:  # torch without triton: the twin does all the work
    triton = None

DTYPES = (torch.float16, torch.float32, torch.bfloat16)
TRIED = DTYPES if torch.cuda.is_available() else DTYPES[:2]
"""Element types of the cases: Triton's interpreter has no bfloat16."""

BLOCK = 1024
"""Elements of a row per program of the kernel, at most."""


def swiglu(gate: Tensor, up: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``silu(gate) * up``; see the module.

    Args:
        gate: Elements of a row side by side; rows may lie apart. Shape: [R, D] float32, float16
            or bfloat16.
        up: As ``gate``.
        out: Written to; a new tensor if None. Shape: [R, D].

    Raises:
        ValueError: Shapes or dtypes other than these.

    Example:
        >>> import torch
        >>> swiglu(torch.zeros(1, 2), torch.ones(1, 2))
        tensor([[0., 0.]])
    """
    call = swiglu_triton if gate.is_cuda and triton is not None else swiglu_torch
    return call(gate, up, out=out)


def _check(gate: Tensor, up: Tensor, out: Tensor | None) -> None:
    if gate.ndim != 2 or gate.dtype not in DTYPES:
        raise ValueError(f"gate is {gate.dtype} {list(gate.shape)}; expected floating [R, D]")
    for name, x in (("gate", gate), ("up", up), ("out", out)):
        if x is None:
            continue
        if x.shape != gate.shape or x.dtype != gate.dtype:
            raise ValueError(
                f"{name} is {x.dtype} {list(x.shape)}; expected {gate.dtype} {list(gate.shape)}"
            )
        if x.shape[1] > 1 and x.stride(1) != 1:
            raise ValueError(
                f"{name} has strides {x.stride()}; expected the elements of a row side by side"
            )


def swiglu_torch(gate: Tensor, up: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`swiglu` in torch operations, on any device."""
    _check(gate, up, out)
    found = nnf.silu(gate.float()) * up.float()
    return found.to(gate.dtype) if out is None else out.copy_(found)


def swiglu_float64(gate: Tensor, up: Tensor) -> Tensor:
    """The definition in float64."""
    wide = gate.double()
    return wide / (1 + torch.exp(-wide)) * up.double()


def swiglu_triton(gate: Tensor, up: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`swiglu` as one Triton kernel; on CPU tensors under ``TRITON_INTERPRET=1``."""
    _check(gate, up, out)
    if triton is None:
        raise ValueError("the kernel needs triton, which is not installed; the twin does not")
    out = torch.empty_like(gate, memory_format=torch.contiguous_format) if out is None else out
    rows, columns = gate.shape
    if rows and columns:
        block = min(triton.next_power_of_2(columns), BLOCK)
        _kernel[(rows, triton.cdiv(columns, block))](
            gate, up, out, columns, gate.stride(0), up.stride(0), out.stride(0), BLOCK=block
        )
    return out


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _kernel(  # type: ignore[no-untyped-def]
        gate, up, out, columns, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr,
    ):  # fmt: skip
        row = tl.program_id(0).to(tl.int64)
        at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = at < columns
        g = tl.load(gate + row * stride_gate + at, mask=inside, other=0.0).to(tl.float32)
        u = tl.load(up + row * stride_up + at, mask=inside, other=0.0).to(tl.float32)
        found = g / (1.0 + tl.exp(-g)) * u
        tl.store(out + row * stride_out + at, found.to(out.dtype.element_ty), mask=inside)


def _whole(device: torch.device, dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    gate, up = (torch.randn(5, 130, generator=generator).to(device, dtype) for _ in range(2))
    return {"gate": gate, "up": up}


def _halves(
    device: torch.device, dtype: torch.dtype, generator: torch.Generator
) -> dict[str, Any]:
    both = torch.randn(3, 80, generator=generator).to(device, dtype)
    return {"gate": both[:, :40], "up": both[:, 40:]}


def _large(device: torch.device, dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    # exp overflows there in float32, and silu is still -0 or the value itself.
    gate = torch.tensor([[-200.0, -90.0, 0.0, 90.0, 200.0]]).to(device, dtype)
    return {"gate": gate, "up": torch.ones_like(gate)}


def _bad(**changes: Any) -> Callable[[], dict[str, Any]]:
    return lambda: {"gate": torch.zeros(2, 8), "up": torch.zeros(2, 8)} | changes


def _bench(device: torch.device, dtype: torch.dtype) -> Mapping[str, Callable[[], Any]]:
    gate, up = (torch.randn(1024, 1024, device=device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(gate)
    return {
        "torch.silu*up": lambda: nnf.silu(gate) * up,
        "torch": lambda: swiglu_torch(gate, up, out=out),
        "triton": lambda: swiglu_triton(gate, up, out=out),
    }


KERNEL = Kernel(
    name="swiglu",
    torch=swiglu_torch,
    triton=swiglu_triton,
    reference=swiglu_float64,
    cases=(
        Case(name="whole", inputs=_whole, dtypes=TRIED),
        Case(name="halves", inputs=_halves),
        Case(name="large", inputs=_large),
    ),
    refusals=(
        Refusal(name="shapes", inputs=_bad(up=torch.zeros(2, 7)), match="up is"),
        Refusal(name="dtype", inputs=_bad(gate=torch.zeros(2, 8).long()), match="gate is"),
        Refusal(name="strides", inputs=_bad(up=torch.zeros(8, 2).T), match="side by side"),
    ),
    tolerances={
        torch.float32: Tolerance(absolute=1e-6, relative=1e-6),
        torch.float16: Tolerance(absolute=2**-9, relative=2**-10),
        torch.bfloat16: Tolerance(absolute=2**-6, relative=2**-7),
    },
    signatures=() if triton is None else tuple(
        Signature(
            function=_kernel,
            types={
                "gate": f"*{t}", "up": f"*{t}", "out": f"*{t}", "columns": "i32",
                "stride_gate": "i64", "stride_up": "i64", "stride_out": "i64",
                "BLOCK": "constexpr",
            },
            constants={"BLOCK": 1024},
        )
        for t in ("fp32", "bf16")
    ),
    benches=(
        Bench(size="R=D=1024", prepare=_bench, flops=5 * (1 << 20), bytes=3 * 4 * (1 << 20)),
    ),
)  # fmt: skip
