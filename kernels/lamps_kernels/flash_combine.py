"""Attention over all keys from attention over parts of them, be it splits or ranks.

    m* = max_p m_p,   out = sum_p exp(m_p - m*) o_p / sum_p exp(m_p - m*) l_p
    lse = m* + log sum_p exp(m_p - m*) l_p

Sums run in the order of the parts, in float32, so that equal parts give equal bits wherever they
came from. Memory-bound and small: P (D + 2) numbers read a row. A row none of whose parts has a
key gives 0 and lse = -inf; NaN spreads.

Source: Dao et al., Flash-Decoding, 2023; a tile program of DITRON, arXiv 2605.02953.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lamps_kernels._kernel import Bench, Case, Kernel, Refusal, Signature, Tolerance

try:
    import triton  # type: ignore[import-untyped]
    import triton.language as tl  # type: ignore[import-untyped]
except ModuleNotFoundError:  # torch without triton: the twin does all the work
    triton = None


class Combined(NamedTuple):
    """Attention over all keys.

    Args:
        out: Shape: [R, D] float32.
        lse: Logarithm of the sum of the exponentials of all scores. Shape: [R] float32.
    """

    out: Tensor
    lse: Tensor


def flash_combine(o: Tensor, m: Tensor, l: Tensor) -> Combined:  # noqa: E741
    """Put parts together; see the module.

    Args:
        o: Weighted values of each part, contiguous. Shape: [R, P, D] float32.
        m: Largest score of each part. Shape: [R, P] float32.
        l: Sum of weights of each part. Shape: [R, P] float32.

    Raises:
        ValueError: Shapes or dtypes other than these.

    Example:
        >>> import torch
        >>> zero = torch.zeros(1, 2)
        >>> flash_combine(torch.tensor([[[1.0], [3.0]]]), zero, zero + 1).out
        tensor([[2.]])
    """
    call = flash_combine_triton if o.is_cuda and triton is not None else flash_combine_torch
    return call(o, m, l)


def _check(o: Tensor, m: Tensor, l: Tensor) -> None:  # noqa: E741
    if o.ndim != 3 or m.shape != o.shape[:2] or l.shape != o.shape[:2] or not o.shape[1]:
        raise ValueError(
            f"o is {list(o.shape)}, m {list(m.shape)}, l {list(l.shape)}; expected [R, P, D] and "
            "twice [R, P], P >= 1"
        )
    for name, x in (("o", o), ("m", m), ("l", l)):
        if x.dtype != torch.float32:
            raise ValueError(f"{name} is {x.dtype}; expected float32")
        if not x.is_contiguous():
            raise ValueError(f"{name} has strides {x.stride()}; expected a contiguous tensor")


def flash_combine_torch(o: Tensor, m: Tensor, l: Tensor) -> Combined:  # noqa: E741
    """`flash_combine` in torch operations, on any device."""
    _check(o, m, l)
    top = m.amax(1)
    base = torch.where(top == -torch.inf, 0, top)
    out, weight = torch.zeros_like(o[:, 0]), torch.zeros_like(top)
    for part in range(o.shape[1]):
        share = torch.exp(m[:, part] - base)
        out += share[:, None] * o[:, part]
        weight += share * l[:, part]
    out = torch.where(weight[:, None] == 0, 0, out / weight[:, None])
    return Combined(out, top + torch.log(weight))


def flash_combine_float64(o: Tensor, m: Tensor, l: Tensor) -> Combined:  # noqa: E741
    """The definition in float64."""
    top = m.double().amax(1)
    base = torch.where(top == -torch.inf, 0, top)
    share = torch.exp(m.double() - base[:, None])
    weight = (share * l.double()).sum(1)
    out = (share[:, :, None] * o.double()).sum(1)
    return Combined(
        torch.where(weight[:, None] == 0, 0, out / weight[:, None]), top + torch.log(weight)
    )


def flash_combine_triton(o: Tensor, m: Tensor, l: Tensor) -> Combined:  # noqa: E741
    """`flash_combine` as one Triton launch; on CPU tensors under ``TRITON_INTERPRET=1``."""
    _check(o, m, l)
    if triton is None:
        raise ValueError("the kernel needs triton, which is not installed; the twin does not")
    rows, parts, d = o.shape
    out, lse = o.new_empty((rows, d)), o.new_empty(rows)
    if rows:
        _kernel[(rows,)](o, m, l, out, lse, parts, d, DIM=triton.next_power_of_2(max(d, 1)))
    return Combined(out, lse)


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _kernel(o, m, l, out, lse, parts, d, DIM: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: E741
        row = tl.program_id(0).to(tl.int64)
        column = tl.arange(0, DIM)
        top = tl.load(m + row * parts)
        for part in range(1, parts):
            v = tl.load(m + row * parts + part)
            # A comparison with NaN is false, so ask in the way that lets NaN through.
            top = tl.where(v <= top, top, tl.where(top == top, v, top))
        base = tl.where(top == float("-inf"), 0.0, top)
        weight = 0.0
        total = tl.zeros((DIM,), tl.float32)
        for part in range(parts):
            share = tl.exp(tl.load(m + row * parts + part) - base)
            values = o + (row * parts + part) * d + column
            total += share * tl.load(values, mask=column < d, other=0.0)
            weight += share * tl.load(l + row * parts + part)
        found = tl.where(weight == 0, 0.0, total / tl.where(weight == 0, 1.0, weight))
        tl.store(out + row * d + column, found, mask=column < d)
        tl.store(lse + row, top + tl.log(weight))


def _parts(device: torch.device, dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    o, m = torch.randn(6, 3, 20, generator=generator), torch.randn(6, 3, generator=generator) * 9
    return {"o": o.to(device), "m": m.to(device), "l": 0.5 + torch.rand(6, 3, generator=generator)
            .to(device)}  # fmt: skip


def _empty_parts(
    device: torch.device, dtype: torch.dtype, generator: torch.Generator
) -> dict[str, Any]:
    made = _parts(device, dtype, generator)
    for row, part in ((0, 0), (0, 1), (2, 2)):
        made["o"][row, part], made["l"][row, part] = 0, 0
        made["m"][row, part] = -torch.inf
    return made


def _no_key(
    device: torch.device, dtype: torch.dtype, generator: torch.Generator
) -> dict[str, Any]:
    return {
        "o": torch.zeros(2, 2, 8, device=device),
        "m": torch.full((2, 2), -torch.inf, device=device),
        "l": torch.zeros(2, 2, device=device),
    }


def _tensors(found: Combined) -> tuple[Tensor, ...]:
    """The values, and the logarithms with those of rows without a key told by a number."""
    return found.out, torch.where(found.lse == -torch.inf, -1.0, found.lse.double())


def _bad(**changes: Any) -> Callable[[], dict[str, Any]]:
    return lambda: (
        {"o": torch.zeros(2, 3, 4), "m": torch.zeros(2, 3), "l": torch.ones(2, 3)} | changes
    )


def _bench(device: torch.device, dtype: torch.dtype) -> Mapping[str, Callable[[], Any]]:
    o = torch.randn(256, 8, 64, device=device)
    m, weights = torch.randn(256, 8, device=device), torch.ones(256, 8, device=device)
    return {
        "softmax and einsum": lambda: torch.einsum(
            "rp,rpd->rd", torch.softmax(m + torch.log(weights), 1), o
        ),
        "torch": lambda: flash_combine_torch(o, m, weights),
        "triton": lambda: flash_combine_triton(o, m, weights),
    }


KERNEL = Kernel(
    name="flash_combine",
    torch=flash_combine_torch,
    triton=flash_combine_triton,
    reference=flash_combine_float64,
    compare=_tensors,
    cases=(
        Case(name="parts", inputs=_parts),
        Case(name="empty-parts", inputs=_empty_parts),
        Case(name="no-key", inputs=_no_key),
    ),
    refusals=(
        Refusal(name="shapes", inputs=_bad(m=torch.zeros(2, 4)), match="expected .R, P, D."),
        Refusal(name="dtype", inputs=_bad(l=torch.ones(2, 3).double()), match="l is"),
        Refusal(
            name="strides", inputs=_bad(o=torch.zeros(3, 2, 4).transpose(0, 1)), match="contiguous"
        ),
    ),
    tolerances={torch.float32: Tolerance(absolute=1e-5, relative=2e-6)},
    signatures=() if triton is None else (
        Signature(
            function=_kernel,
            types={
                "o": "*fp32", "m": "*fp32", "l": "*fp32", "out": "*fp32", "lse": "*fp32",
                "parts": "i32", "d": "i32", "DIM": "constexpr",
            },
            constants={"DIM": 64},
        ),
    ),
    benches=(
        Bench(
            size="R=256 P=8 D=64", prepare=_bench, flops=2 * 256 * 8 * 64,
            bytes=4 * (256 * 8 * 66 + 256 * 65), dtype=torch.float32,
        ),
    ),
)  # fmt: skip
