"""One matrix product per expert over rows that are sorted by expert.

    out[t] = x[t] w[e]      for offsets[e] <= t < offsets[e + 1]

Groups have any length, also none: a table (expert, first row) says which tile of rows goes through
which weights, and is built on the host from the offsets. Nothing is padded. Compute-bound for long
groups, ``2 T K N`` operations; for short ones bound by reading the weights, ``E K N`` elements.
Sums run in float32.

Source: the expert layers of Zheng et al., DITRON, arXiv 2605.02953; the table is our reading.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from lamps_kernels._kernel import Bench, Case, Kernel, Refusal, Signature, Tolerance
from lamps_kernels.gemm import tile_product

try:
    import triton  # type: ignore[import-untyped]
    import triton.language as tl  # type: ignore[import-untyped]
except ModuleNotFoundError:  # torch without triton: the twin does all the work
    triton = None

DTYPES = (torch.float16, torch.float32, torch.bfloat16)
TRIED = DTYPES if torch.cuda.is_available() else DTYPES[:2]
"""Element types of the cases: Triton's interpreter has no bfloat16."""


def tile_table(offsets: Tensor, *, block_m: int = 64) -> Tensor:
    """Expert, first row and last row + 1 of each tile of rows.

    Returns:
        Shape: [n_tiles, 3] int32.

    Example:
        >>> import torch
        >>> tile_table(torch.tensor([0, 3, 3, 5], dtype=torch.int32), block_m=2).tolist()
        [[0, 0, 2], [0, 2, 3], [2, 3, 5]]
    """
    lengths = offsets.diff().long()
    tiles = (lengths + block_m - 1) // block_m
    expert = torch.repeat_interleave(torch.arange(len(lengths)), tiles)
    before = torch.cumsum(tiles, 0) - tiles
    first = offsets[expert] + (torch.arange(len(expert)) - before[expert]) * block_m
    last = torch.minimum(first + block_m, offsets[expert + 1])
    return torch.stack([expert, first, last], 1).int()


def grouped_gemm(
    x: Tensor,
    w: Tensor,
    offsets: Tensor,
    *,
    out: Tensor | None = None,
    block_m: int = 64,
    block_n: int = 64,
    block_k: int = 64,
) -> Tensor:
    """Each row through the weights of its expert; see the module.

    Args:
        x: Rows sorted by expert, elements side by side. Shape: [T, K] float32, float16, bfloat16.
        w: Weights, contiguous, in the dtype of ``x``. Shape: [E, K, N].
        offsets: Where the rows of each expert begin, from 0 to T, on the CPU. Shape: [E + 1]
            int32.
        out: Written to; a new tensor if None. Shape: [T, N].
        block_m: Rows of a tile, a power of two.
        block_n: Columns of a tile, a power of two.
        block_k: Elements of a sum taken at a time by the kernel, a power of two.

    Returns:
        Shape: [T, N], dtype of ``x``.

    Raises:
        ValueError: Shapes, dtypes, offsets or settings other than these.

    Example:
        >>> import torch
        >>> w = torch.tensor([[[1.0]], [[10.0]]])
        >>> grouped_gemm(torch.ones(3, 1), w, torch.tensor([0, 1, 3], dtype=torch.int32)).flatten()
        tensor([ 1., 10., 10.])
    """
    call = grouped_gemm_triton if x.is_cuda and triton is not None else grouped_gemm_torch
    return call(x, w, offsets, out=out, block_m=block_m, block_n=block_n, block_k=block_k)


def _check(
    x: Tensor, w: Tensor, offsets: Tensor, out: Tensor | None, blocks: tuple[int, int, int]
) -> None:
    if x.ndim != 2 or w.ndim != 3 or x.shape[1] != w.shape[1]:
        raise ValueError(
            f"x is {list(x.shape)}, w is {list(w.shape)}; expected [T, K] and [E, K, N]"
        )
    if x.dtype not in DTYPES or w.dtype != x.dtype:
        raise ValueError(
            f"x is {x.dtype}, w {w.dtype}; expected one of float32, float16 and bfloat16 for both"
        )
    if (x.shape[1] > 1 and x.stride(1) != 1) or not w.is_contiguous():
        raise ValueError(
            f"x has strides {x.stride()}, w {w.stride()}; expected rows side by side and a "
            "contiguous w"
        )
    if offsets.shape != (len(w) + 1,) or offsets.dtype != torch.int32 or offsets.is_cuda:
        raise ValueError(
            f"offsets are {offsets.dtype} {list(offsets.shape)} on {offsets.device}; expected "
            f"int32 [{len(w) + 1}] on the CPU"
        )
    if offsets[0] != 0 or offsets[-1] != len(x) or bool((offsets.diff() < 0).any()):
        raise ValueError(f"offsets are {offsets.tolist()}; expected to rise from 0 to {len(x)}")
    shape = (len(x), w.shape[2])
    if out is not None and (out.shape != shape or out.dtype != x.dtype or out.stride(1) != 1):
        raise ValueError(f"out is {out.dtype} {list(out.shape)}; expected {x.dtype} {list(shape)}")
    for name, size in zip(("block_m", "block_n", "block_k"), blocks, strict=True):
        if size < 16 or size & (size - 1):
            raise ValueError(f"{name} is {size}; expected a power of two from 16 up")


def grouped_gemm_torch(
    x: Tensor,
    w: Tensor,
    offsets: Tensor,
    *,
    out: Tensor | None = None,
    block_m: int = 64,
    block_n: int = 64,
    block_k: int = 64,
) -> Tensor:
    """`grouped_gemm` in torch operations, one product a tile, on any device."""
    _check(x, w, offsets, out, (block_m, block_n, block_k))
    out = x.new_empty((len(x), w.shape[2])) if out is None else out
    for expert, first, last in tile_table(offsets, block_m=block_m).tolist():
        for start in range(0, w.shape[2], block_n):
            at = slice(start, start + block_n)
            tile, weights = x[first:last], w[expert, :, at]
            if x.dtype == torch.float32:
                tile_product(tile, weights, out[first:last, at])
            else:
                out[first:last, at] = tile.float() @ weights.float()
    return out


def grouped_gemm_float64(
    x: Tensor, w: Tensor, offsets: Tensor, *, block_m: int = 64, block_n: int = 64,
    block_k: int = 64,
) -> Tensor:  # fmt: skip
    """The definition in float64, row by row."""
    expert = torch.repeat_interleave(torch.arange(len(w)), offsets.diff().long())
    rows = [row.double() @ w[int(e)].double() for row, e in zip(x, expert, strict=True)]
    return torch.stack(rows) if rows else x.new_zeros((0, w.shape[2])).double()


def grouped_gemm_triton(
    x: Tensor,
    w: Tensor,
    offsets: Tensor,
    *,
    out: Tensor | None = None,
    block_m: int = 64,
    block_n: int = 64,
    block_k: int = 64,
) -> Tensor:
    """`grouped_gemm` as one Triton launch; on CPU tensors under ``TRITON_INTERPRET=1``."""
    _check(x, w, offsets, out, (block_m, block_n, block_k))
    if triton is None:
        raise ValueError("the kernel needs triton, which is not installed; the twin does not")
    n = w.shape[2]
    out = x.new_empty((len(x), n)) if out is None else out
    table = tile_table(offsets, block_m=block_m)
    if len(table) and n:
        _kernel[(len(table), triton.cdiv(n, block_n))](
            x, w, out, table.to(x.device), n, x.shape[1], x.stride(0), out.stride(0),
            BM=block_m, BN=block_n, BK=block_k,
        )  # fmt: skip
    return out


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _kernel(  # type: ignore[no-untyped-def]
        x, w, out, table, n, depth, stride_x, stride_out,
        BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    ):  # fmt: skip
        entry = table + 3 * tl.program_id(0)
        weights = w + tl.load(entry).to(tl.int64) * depth * n
        row = tl.load(entry + 1) + tl.arange(0, BM)
        last = tl.load(entry + 2)
        column = tl.program_id(1) * BN + tl.arange(0, BN)
        inner = tl.arange(0, BK)
        total = tl.zeros((BM, BN), tl.float32)
        wide_row = row.to(tl.int64)
        for k in range(0, depth, BK):
            at = k + inner
            left = tl.load(
                x + wide_row[:, None] * stride_x + at[None, :],
                mask=(row[:, None] < last) & (at[None, :] < depth), other=0.0,
            )  # fmt: skip
            right = tl.load(
                weights + at[:, None].to(tl.int64) * n + column[None, :],
                mask=(at[:, None] < depth) & (column[None, :] < n), other=0.0,
            )  # fmt: skip
            total = tl.dot(left, right, total, input_precision="ieee")
        place = out + wide_row[:, None] * stride_out + column[None, :]
        inside = (row[:, None] < last) & (column[None, :] < n)
        tl.store(place, total.to(out.dtype.element_ty), mask=inside)


def _drawn(lengths: tuple[int, ...], k: int, n: int) -> Callable[..., dict[str, Any]]:
    def inputs(
        device: torch.device, dtype: torch.dtype, generator: torch.Generator
    ) -> dict[str, Any]:
        x = torch.randn(sum(lengths), k, generator=generator).to(device, dtype)
        w = torch.randn(len(lengths), k, n, generator=generator).to(device, dtype)
        offsets = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)
        return {
            "x": x, "w": w, "offsets": offsets, "block_m": 16, "block_n": 32, "block_k": 32,
        }  # fmt: skip

    return inputs


def _bad(**changes: Any) -> Callable[[], dict[str, Any]]:
    def inputs() -> dict[str, Any]:
        offsets = torch.tensor([0, 2, 4], dtype=torch.int32)
        return {"x": torch.zeros(4, 8), "w": torch.zeros(2, 8, 6), "offsets": offsets} | changes

    return inputs


def _bench(device: torch.device, dtype: torch.dtype) -> Mapping[str, Callable[[], Any]]:
    generator = torch.Generator().manual_seed(0)
    made = _drawn((64, 0, 300, 148), 512, 512)(device, dtype, generator)
    x, w, offsets = made["x"], made["w"], made["offsets"]
    bounds = offsets.tolist()
    block: dict[str, Any] = {"block_m": 64, "block_n": 128}
    return {
        "torch.mm per expert": lambda: [
            x[i:j] @ w[e] for e, (i, j) in enumerate(itertools.pairwise(bounds))
        ],
        "torch": lambda: grouped_gemm_torch(x, w, offsets, **block),
        "triton": lambda: grouped_gemm_triton(x, w, offsets, **block),
    }


KERNEL = Kernel(
    name="grouped_gemm",
    torch=grouped_gemm_torch,
    triton=grouped_gemm_triton,
    reference=grouped_gemm_float64,
    cases=(
        Case(
            name="even", inputs=_drawn((16, 16), 32, 32),
            dtypes=TRIED,
        ),
        Case(name="ragged-and-empty", inputs=_drawn((5, 0, 19, 1), 45, 37)),
        Case(name="one-expert", inputs=_drawn((0, 7, 0), 16, 16)),
        Case(name="no-row", inputs=_drawn((0, 0), 16, 16)),
    ),
    refusals=(
        Refusal(name="depth", inputs=_bad(x=torch.zeros(4, 7)), match="expected .T, K. and"),
        Refusal(name="dtypes", inputs=_bad(x=torch.zeros(4, 8).half()), match="for both"),
        Refusal(name="strides", inputs=_bad(x=torch.zeros(8, 4).T), match="side by side"),
        Refusal(
            name="offsets-length", inputs=_bad(offsets=torch.zeros(2, dtype=torch.int32)),
            match=r"expected int32 \[3\]",
        ),
        Refusal(
            name="offsets-fall", inputs=_bad(offsets=torch.tensor([0, 5, 4], dtype=torch.int32)),
            match="rise from 0 to 4",
        ),
        Refusal(name="block", inputs=_bad(block_n=24), match="block_n is 24"),
    ),
    tolerances={
        torch.float32: Tolerance(absolute=1e-5, relative=1e-6),
        torch.float16: Tolerance(absolute=2**-10, relative=2**-10),
        torch.bfloat16: Tolerance(absolute=2**-7, relative=2**-7),
    },
    signatures=() if triton is None else tuple(
        Signature(
            function=_kernel,
            types={
                "x": f"*{t}", "w": f"*{t}", "out": f"*{t}", "table": "*i32", "n": "i32",
                "depth": "i32", "stride_x": "i64", "stride_out": "i64",
                **dict.fromkeys(("BM", "BN", "BK"), "constexpr"),
            },
            constants={"BM": 64, "BN": 64, "BK": 32},
        )
        for t in ("fp32", "bf16")
    ),
    benches=(
        Bench(
            size="T=512 E=4 K=N=512", prepare=_bench, flops=2 * 512**3,
            bytes=4 * (2 * 512 * 512 + 4 * 512 * 512),
        ),
    ),
)  # fmt: skip
