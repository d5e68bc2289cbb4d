"""The sum of the partial results of W ranks, always in the order of the ranks.

    out = (((p_0 + p_1) + p_2) + ...) + p_{W-1}        in float32, rounded once at the end

A fixed order makes the sum a function of the parts alone: neither the order of their arrival nor
the way they were cut into pieces shows in a bit. Memory-bound: W reads and one write an element.

Source: the reduction kernels of Zheng et al., DITRON, arXiv 2605.02953; the order is our rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

BLOCK = 1024
"""Elements per program of the kernel."""


def add_reduce(parts: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Sum the parts in their order; see the module.

    Args:
        parts: W tensors of one shape and dtype, each contiguous.
        out: Written to; may be one of the parts. A new tensor if None.

    Returns:
        ``out``, in the shape and dtype of a part.

    Raises:
        ValueError: Shapes or dtypes other than these.

    Example:
        >>> import torch
        >>> add_reduce([torch.tensor([1e8]), torch.tensor([-1e8]), torch.tensor([1.0])])
        tensor([1.])
    """
    call = add_reduce_triton if parts and parts[0].is_cuda and triton else add_reduce_torch
    return call(parts, out=out)


def _check(parts: Sequence[Tensor], out: Tensor | None) -> None:
    if not parts:
        raise ValueError("parts are none; expected the partial results of one rank or more")
    first = parts[0]
    if first.dtype not in DTYPES:
        raise ValueError(f"part 0 is {first.dtype}; expected float32, float16 or bfloat16")
    for i, part in enumerate(parts):
        if part.shape != first.shape or part.dtype != first.dtype or part.device != first.device:
            raise ValueError(
                f"part {i} is {part.dtype} {list(part.shape)} on {part.device}; expected "
                f"{first.dtype} {list(first.shape)} on {first.device}"
            )
        if not part.is_contiguous():
            raise ValueError(f"part {i} has strides {part.stride()}; expected contiguous parts")
    if out is not None and (out.shape != first.shape or out.dtype != first.dtype):
        raise ValueError(
            f"out is {out.dtype} {list(out.shape)}; expected {first.dtype} {list(first.shape)}"
        )


def add_reduce_torch(parts: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """`add_reduce` in torch operations, on any device."""
    _check(parts, out)
    total = parts[0].float()
    for i, part in enumerate(parts[1:]):
        total = total + part if i == 0 else total.add_(part)
    if out is None:
        return total.to(parts[0].dtype, copy=total is parts[0])
    return out.copy_(total)


def add_reduce_float64(parts: Sequence[Tensor]) -> Tensor:
    """The sum in float64."""
    return torch.stack([part.double() for part in parts]).sum(0)


def add_reduce_triton(parts: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """`add_reduce` as one Triton kernel that reads through a table of addresses."""
    _check(parts, out)
    if triton is None:
        raise ValueError("the kernel needs triton, which is not installed; the twin does not")
    out = torch.empty_like(parts[0]) if out is None else out
    if not out.is_contiguous():
        raise ValueError(f"out has strides {out.stride()}; expected a contiguous one")
    n = out.numel()
    if n:
        places = torch.tensor([p.data_ptr() for p in parts], dtype=torch.int64).to(out.device)
        _kernel[(triton.cdiv(n, BLOCK),)](places, out, n, W=len(parts), BLOCK=BLOCK)
    return out


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _kernel(places, out, n, W: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = at < n
        total = tl.zeros((BLOCK,), tl.float32)
        for part in range(W):
            start = tl.load(places + part).to(out.dtype)
            total += tl.load(start + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


def _drawn(count: int, *shape: int) -> Callable[..., dict[str, Any]]:
    def inputs(
        device: torch.device, dtype: torch.dtype, generator: torch.Generator
    ) -> dict[str, Any]:
        parts = [torch.randn(shape, generator=generator).to(device, dtype) for _ in range(count)]
        return {"parts": parts}

    return inputs


def _bad(*parts: Tensor) -> Callable[[], dict[str, Any]]:
    return lambda: {"parts": list(parts)}


def _bench(device: torch.device, dtype: torch.dtype) -> Mapping[str, Callable[[], Any]]:
    parts = [torch.randn(1 << 20, device=device, dtype=dtype) for _ in range(4)]
    stacked, out = torch.stack(parts), torch.empty_like(parts[0])
    return {
        "torch.sum": lambda: torch.sum(stacked, 0, out=out),
        "torch": lambda: add_reduce_torch(parts, out=out),
        "triton": lambda: add_reduce_triton(parts, out=out),
    }


KERNEL = Kernel(
    name="add_reduce",
    torch=add_reduce_torch,
    triton=add_reduce_triton,
    reference=add_reduce_float64,
    exact=True,
    cases=(
        Case(name="three", inputs=_drawn(3, 7, 300), dtypes=TRIED),
        Case(name="one", inputs=_drawn(1, 5)),
        Case(name="two-blocks", inputs=_drawn(2, BLOCK + 3)),
    ),
    refusals=(
        Refusal(name="none", inputs=_bad(), match="parts are none"),
        Refusal(name="shapes", inputs=_bad(torch.zeros(3), torch.zeros(4)), match="part 1 is"),
        Refusal(name="dtypes", inputs=_bad(torch.zeros(3).double()), match="part 0 is"),
        Refusal(name="strides", inputs=_bad(torch.zeros(3, 4).T), match="contiguous"),
    ),
    tolerances={
        torch.float32: Tolerance(absolute=1e-6, relative=1e-6),
        torch.float16: Tolerance(absolute=2**-10, relative=2**-10),
        torch.bfloat16: Tolerance(absolute=2**-7, relative=2**-7),
    },
    signatures=() if triton is None else tuple(
        Signature(
            function=_kernel,
            types={
                "places": "*i64", "out": f"*{t}", "n": "i32",
                "W": "constexpr", "BLOCK": "constexpr",
            },
            constants={"W": 4, "BLOCK": BLOCK},
        )
        for t in ("fp32", "bf16")
    ),
    benches=(
        Bench(size="W=4 N=1M", prepare=_bench, flops=3 * (1 << 20), bytes=5 * 4 * (1 << 20)),
    ),
)  # fmt: skip
