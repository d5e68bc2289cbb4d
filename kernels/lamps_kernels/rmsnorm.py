"""Root mean square normalisation of rows.

    out[r] = x[r] / sqrt(mean_d x[r, d]^2 + eps) * weight

Memory-bound: one read and one write an element, one program a row. Sums run in float32.

Source: Zhang and Sennrich, Root Mean Square Layer Normalization, NeurIPS 2019, arXiv 1910.07467,
equation (4); one of the tile programs of a decoding step in DITRON, arXiv 2605.02953.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from lamps_kernels._kernel import Bench, Case, Kernel, Refusal, Signature, Tolerance

try:
    import triton  # type: ignore[import-untyped]
    import triton.language as tl  # type: ignore[import-untyped]
except ModuleNotFoundError:  # torch without triton: the twin does all the work
    triton = None

DTYPES = (torch.float16, torch.float32, torch.bfloat16)
TRIED = DTYPES if torch.cuda.is_available() else DTYPES[:2]
"""Element types of the cases: Triton's interpreter has no bfloat16."""


def rmsnorm(x: Tensor, weight: Tensor, *, eps: float = 1e-6, out: Tensor | None = None) -> Tensor:
    """Normalise rows; see the module.

    Args:
        x: Shape: [R, D] float32, float16 or bfloat16, contiguous.
        weight: Scale of each column, in the dtype of ``x``. Shape: [D].
        eps: Added to the mean of squares, in its unit.
        out: Written to; a new tensor if None. Shape: [R, D].

    Raises:
        ValueError: Shapes or dtypes other than these.

    Example:
        >>> import torch
        >>> rmsnorm(torch.tensor([[3.0, -3.0]]), torch.ones(2), eps=0.0)
        tensor([[ 1., -1.]])
    """
    call = rmsnorm_triton if x.is_cuda and triton is not None else rmsnorm_torch
    return call(x, weight, eps=eps, out=out)


def _check(x: Tensor, weight: Tensor, eps: float, out: Tensor | None) -> None:
    if x.ndim != 2 or x.dtype not in DTYPES or not x.shape[1]:
        raise ValueError(f"x is {x.dtype} {list(x.shape)}; expected floating [R, D], D >= 1")
    for name, y in (("x", x), ("out", out)):
        if y is not None and not y.is_contiguous():
            raise ValueError(f"{name} has strides {y.stride()}; expected a contiguous one")
    if weight.shape != x.shape[1:] or weight.dtype != x.dtype:
        raise ValueError(
            f"weight is {weight.dtype} {list(weight.shape)}; expected {x.dtype} [{x.shape[1]}]"
        )
    if out is not None and (out.shape != x.shape or out.dtype != x.dtype):
        raise ValueError(f"out is {out.dtype} {list(out.shape)}; expected that of x")
    if not eps >= 0:
        raise ValueError(f"eps is {eps}; expected 0 or more")


def rmsnorm_torch(
    x: Tensor, weight: Tensor, *, eps: float = 1e-6, out: Tensor | None = None
) -> Tensor:
    """`rmsnorm` in torch operations, on any device."""
    _check(x, weight, eps, out)
    wide = x.float()
    found = wide * torch.rsqrt(wide.square().mean(1, keepdim=True) + eps) * weight.float()
    return found.to(x.dtype) if out is None else out.copy_(found)


def rmsnorm_float64(x: Tensor, weight: Tensor, *, eps: float = 1e-6) -> Tensor:
    """The definition in float64."""
    wide = x.double()
    return wide / (wide.square().mean(1, keepdim=True) + eps).sqrt() * weight.double()


def rmsnorm_triton(
    x: Tensor, weight: Tensor, *, eps: float = 1e-6, out: Tensor | None = None
) -> Tensor:
    """`rmsnorm` as one Triton kernel; on CPU tensors under ``TRITON_INTERPRET=1``."""
    _check(x, weight, eps, out)
    if triton is None:
        raise ValueError("the kernel needs triton, which is not installed; the twin does not")
    out = torch.empty_like(x) if out is None else out
    rows, columns = x.shape
    if rows:
        block = min(triton.next_power_of_2(columns), 4096)
        _kernel[(rows,)](x, weight, out, columns, eps, BLOCK=block)
    return out


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _kernel(x, weight, out, columns, eps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        start = tl.program_id(0).to(tl.int64) * columns
        total = tl.zeros((BLOCK,), tl.float32)
        for first in range(0, columns, BLOCK):
            at = first + tl.arange(0, BLOCK)
            v = tl.load(x + start + at, mask=at < columns, other=0.0).to(tl.float32)
            total += v * v
        scale = 1.0 / tl.sqrt(tl.sum(total, 0) / columns + eps)
        for first in range(0, columns, BLOCK):
            at = first + tl.arange(0, BLOCK)
            v = tl.load(x + start + at, mask=at < columns, other=0.0).to(tl.float32)
            w = tl.load(weight + at, mask=at < columns, other=0.0).to(tl.float32)
            place = out + start + at
            tl.store(place, (v * scale * w).to(out.dtype.element_ty), mask=at < columns)


def _drawn(rows: int, columns: int) -> Callable[..., dict[str, Any]]:
    def inputs(
        device: torch.device, dtype: torch.dtype, generator: torch.Generator
    ) -> dict[str, Any]:
        x = torch.randn(rows, columns, generator=generator).to(device, dtype)
        return {"x": x, "weight": torch.randn(columns, generator=generator).to(device, dtype)}

    return inputs


def _bad(**changes: Any) -> Callable[[], dict[str, Any]]:
    return lambda: {"x": torch.zeros(2, 8), "weight": torch.zeros(8)} | changes


def _bench(device: torch.device, dtype: torch.dtype) -> Mapping[str, Callable[[], Any]]:
    x = torch.randn(1024, 1024, device=device, dtype=dtype)
    weight, out = torch.ones(1024, device=device, dtype=dtype), torch.empty_like(x)
    return {
        "torch.rms_norm": lambda: torch.nn.functional.rms_norm(x, (1024,), weight, 1e-6),
        "torch": lambda: rmsnorm_torch(x, weight, out=out),
        "triton": lambda: rmsnorm_triton(x, weight, out=out),
    }


KERNEL = Kernel(
    name="rmsnorm",
    torch=rmsnorm_torch,
    triton=rmsnorm_triton,
    reference=rmsnorm_float64,
    cases=(
        Case(name="even", inputs=_drawn(4, 64), dtypes=TRIED),
        Case(name="ragged", inputs=_drawn(3, 77)),
        Case(name="long", inputs=_drawn(1, 4100)),
    ),
    refusals=(
        Refusal(name="empty", inputs=_bad(x=torch.zeros(2, 0)), match="D >= 1"),
        Refusal(name="weight", inputs=_bad(weight=torch.zeros(7)), match="weight is"),
        Refusal(name="eps", inputs=_bad(eps=-1.0), match="eps is -1"),
        Refusal(name="strides", inputs=_bad(x=torch.zeros(8, 2).T), match="contiguous"),
    ),
    tolerances={
        torch.float32: Tolerance(absolute=1e-5, relative=1e-6),
        torch.float16: Tolerance(absolute=2**-9, relative=2**-10),
        torch.bfloat16: Tolerance(absolute=2**-6, relative=2**-7),
    },
    signatures=() if triton is None else tuple(
        Signature(
            function=_kernel,
            types={
                "x": f"*{t}", "weight": f"*{t}", "out": f"*{t}", "columns": "i32",
                "eps": "fp32", "BLOCK": "constexpr",
            },
            constants={"BLOCK": 1024},
        )
        for t in ("fp32", "bf16")
    ),
    benches=(
        Bench(size="R=D=1024", prepare=_bench, flops=4 * (1 << 20), bytes=2 * 4 * (1 << 20)),
    ),
)  # fmt: skip
