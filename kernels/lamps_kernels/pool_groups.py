"""Composite tokens: the mean over groups of neighbouring tokens and over heads that go together.

    y[b, i, a] = mean of x[b, h, t] over the tokens t of group a and the heads h of bundle i

A group is ``size`` tokens in a row; the last one may be shorter and is divided by its own count.
Memory-bound: one read of x, ``B H L D`` elements, and 1 / (size heads) of it written. Means are
taken in float32 (float64 for float64).

Source: Liu et al., A Unified Sparse Attention via Multi-Granularity Compression, arXiv 2512.14082:
the compression of sequences; that heads are compressed by their mean is our reading.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lamps_kernels._kernel import Bench, Case, Inputs, Kernel, Refusal, Signature, Tolerance

try:
    import triton  # type: ignore[import-untyped]
    import triton.language as tl  # type: ignore[import-untyped]
except ModuleNotFoundError:  # torch without triton: the twin does all the work
    triton = None

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

GROUPS = 16
"""Groups per program of the kernel, at most."""


def pool_groups(x: Tensor, *, size: int, heads: int = 1) -> Tensor:
    """Means of groups of tokens; see the module.

    Args:
        x: Elements of a token side by side. Shape: [B, H, L, D] floating.
        size: Tokens of a group.
        heads: Heads of a bundle; divides H.

    Returns:
        Shape: [B, H / heads, ceil(L / size), D] float32, float64 for float64.

    Raises:
        ValueError: Shapes, dtype or settings other than these.

    Example:
        >>> import torch
        >>> pool_groups(torch.tensor([[[[1.0], [3.0], [7.0]]]]), size=2).flatten()
        tensor([2., 7.])
    """
    if x.is_cuda and triton is not None:
        return pool_groups_triton(x, size=size, heads=heads)
    return pool_groups_torch(x, size=size, heads=heads)


def _check(x: Tensor, size: int, heads: int) -> None:
    if x.ndim != 4 or not x.numel() or x.dtype not in DTYPES:
        raise ValueError(
            f"x is {x.dtype} {list(x.shape)}; expected floating [B, H, L, D], none of them 0"
        )
    if x.shape[3] > 1 and x.stride(3) != 1:
        raise ValueError(
            f"x has strides {x.stride()}; expected the elements of a token side by side"
        )
    if size < 1:
        raise ValueError(f"size is {size}; expected at least 1 token a group")
    if heads < 1 or x.shape[1] % heads:
        raise ValueError(f"heads is {heads}; expected a divisor of the {x.shape[1]} heads of x")


def _wide(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def pool_groups_torch(x: Tensor, *, size: int, heads: int = 1) -> Tensor:
    """`pool_groups` in torch operations, on any device."""
    _check(x, size, heads)
    b, h, length, d = x.shape
    full = length // size
    wide = _wide(x)
    parts = []
    if full:
        whole = x[:, :, : full * size].reshape(b, h, full, size, d)  # a view
        parts.append(whole.mean(3, dtype=wide))
    if length > full * size:
        parts.append(x[:, :, full * size :].mean(2, keepdim=True, dtype=wide))
    groups = torch.cat(parts, 2) if len(parts) > 1 else parts[0]
    return groups.view(b, h // heads, heads, -1, d).mean(2) if heads > 1 else groups


def pool_groups_float64(x: Tensor, *, size: int, heads: int = 1) -> Tensor:
    """The definition in float64, group by group."""
    b, h, length, d = x.shape
    rows = [
        x[:, :, start : start + size].double().mean(2).view(b, h // heads, heads, d).mean(2)
        for start in range(0, length, size)
    ]
    return torch.stack(rows, 2)


def pool_groups_triton(x: Tensor, *, size: int, heads: int = 1) -> Tensor:
    """`pool_groups` as one Triton kernel; on CPU tensors under ``TRITON_INTERPRET=1``."""
    _check(x, size, heads)
    if triton is None:
        raise ValueError(
            "the kernel needs triton, which is not installed; pool_groups_torch does not"
        )
    b, h, length, d = x.shape
    n = triton.cdiv(length, size)
    y = torch.empty((b, h // heads, n, d), dtype=_wide(x), device=x.device)
    rows = min(GROUPS, triton.next_power_of_2(n))
    _kernel[(triton.cdiv(n, rows), b * (h // heads))](
        x, y, length, n, h // heads, d, size, heads,
        x.stride(0), x.stride(1), x.stride(2),
        ROWS=rows, DIM=triton.next_power_of_2(d), WIDE=_wide(x) == torch.float64,
    )  # fmt: skip
    return y


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _kernel(  # type: ignore[no-untyped-def]
        x, y, length, n, bundles, d, size, heads, stride_b, stride_h, stride_l,
        ROWS: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
    ):  # fmt: skip
        bundle = tl.program_id(1).to(tl.int64)
        group = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        column = tl.arange(0, DIM)
        inside = (group[:, None] < n) & (column[None, :] < d)
        total = tl.zeros((ROWS, DIM), tl.float64 if WIDE else tl.float32)
        head = x + (bundle // bundles) * stride_b + (bundle % bundles) * heads * stride_h
        for _ in range(heads):
            for token in range(size):
                at = group * size + token
                row = head + at[:, None].to(tl.int64) * stride_l + column[None, :]
                seen = inside & (at[:, None] < length)
                total += tl.load(row, mask=seen, other=0.0).to(total.dtype)
            head += stride_h
        count = tl.minimum(length - group * size, size) * heads
        out = y + (bundle * n + group[:, None]) * d + column[None, :]
        tl.store(out, total / tl.maximum(count, 1)[:, None].to(total.dtype), mask=inside)


_ALL = (torch.float32, torch.float16, torch.float64)


def _drawn(b: int, h: int, length: int, d: int, size: int, heads: int) -> Case:
    """Standard normal tokens with gaps between them in memory."""

    def make(device: torch.device, dtype: torch.dtype, generator: torch.Generator) -> Inputs:
        x = torch.randn(b, length, h, d + 3, generator=generator).to(device, dtype)
        return {"x": x[..., :d].transpose(1, 2), "size": size, "heads": heads}

    return Case(name=f"{b}x{h}x{length}x{d}/{size}x{heads}", inputs=make, dtypes=_ALL)


def _refused(name: str, match: str, **change: object) -> Refusal:
    good: Inputs = {"x": torch.zeros(1, 4, 6, 2), "size": 2, "heads": 2}
    return Refusal(name=name, inputs=lambda: good | change, match=match)


def _bench(length: int, *, gpu_only: bool = False) -> Bench:
    def prepare(device: torch.device, dtype: torch.dtype) -> dict[str, Callable[[], Tensor]]:
        x = torch.randn(1, 8, length, 64, device=device, dtype=dtype)
        return {
            "torch": lambda: pool_groups_torch(x, size=8, heads=2),
            "triton": lambda: pool_groups_triton(x, size=8, heads=2),
            "avg_pool3d": lambda: torch.nn.functional.avg_pool3d(
                x.view(1, 1, 8, length, 64), (2, 8, 1)
            ),
        }

    return Bench(
        size=f"L={length} H=8 D=64 c=8 heads=2",
        prepare=prepare,
        gpu_only=gpu_only,
        bytes=8 * length * 64 * (4.0 + 4 / 16),
        dtype=torch.float32,
    )


_NUMBERS = ("length", "n", "bundles", "d", "size", "heads")
_STRIDES = ("stride_b", "stride_h", "stride_l")
_FIXED = {"ROWS": 16, "DIM": 64, "WIDE": False}

KERNEL = Kernel(
    name="pool_groups",
    torch=pool_groups_torch,
    triton=pool_groups_triton,
    reference=pool_groups_float64,
    cases=(
        _drawn(2, 4, 70, 32, 4, 2),
        _drawn(1, 2, 64, 20, 8, 1),
        _drawn(1, 8, 3, 32, 4, 8),
        _drawn(1, 1, 33, 32, 1, 1),
    ),
    refusals=(
        _refused("empty", "none of them 0", x=torch.zeros(1, 4, 0, 2)),
        _refused("integers", "torch.int64", x=torch.zeros(1, 4, 6, 2).long()),
        _refused("columns", "side by side", x=torch.zeros(1, 4, 2, 6).mT),
        _refused("size", "size is 0", size=0),
        _refused("heads", "heads is 3", heads=3),
    ),
    tolerances={
        torch.float32: Tolerance(absolute=1e-6, relative=1e-6),
        torch.float16: Tolerance(absolute=1e-6, relative=1e-6),
        torch.float64: Tolerance(absolute=1e-14, relative=1e-14),
    },
    signatures=tuple(
        Signature(
            function=_kernel,
            types={"x": f"*{dtype}", "y": "*fp32"}
            | dict.fromkeys(_NUMBERS, "i32")
            | dict.fromkeys(_STRIDES, "i64")
            | dict.fromkeys(_FIXED, "constexpr"),
            constants=_FIXED,
        )
        for dtype in ("fp32", "bf16")
        if triton is not None
    ),
    benches=(_bench(8192), _bench(131072, gpu_only=True)),
)
