"""A matrix product whose tiles are computed in an order that is data.

    out[m, n] = f(sum_k a[m, k] b[k, n] + add[m, n] + bias[n]),      f the identity or silu

The order is a table of tiles, so every swizzle is a table and not another kernel: a rank that
waits for pieces of ``a`` computes the tiles whose rows are there, and calls again. Sums over k run
in float32 in blocks of fixed size, so a tile has the same bits in whatever order and in however
many calls the tiles come. Compute-bound: 2 M N K operations, and at least (M K + K N + M N)
elements moved; each row of tiles reads all of ``b`` again unless the cache keeps it.

Source: the tile programs of Zheng et al., DITRON, arXiv 2605.02953; the table is our reading.
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
EPILOGUES = ("none", "silu")
ALIGNED = 64
"""Bytes to which tiles are aligned before they are multiplied; see `tile_product`."""

SHARED_BYTES = 227 * 1024
"""Shared memory of one program on an H200."""


def row_major(m: int, n: int, *, block_m: int = 64, block_n: int = 64, group_m: int = 1) -> Tensor:
    """All tiles of an m x n matrix, row by row, in groups of ``group_m`` rows.

    Returns:
        Row and column of each tile. Shape: [n_tiles, 2] int32.

    Example:
        >>> row_major(128, 65).tolist()
        [[0, 0], [0, 1], [1, 0], [1, 1]]
        >>> row_major(128, 65, group_m=2).tolist()
        [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    rows, columns = -(-m // block_m), -(-n // block_n)
    at = torch.arange(rows * columns)
    group = at // (group_m * columns)
    height = (rows - group * group_m).clamp_max(group_m)
    inside = at - group * group_m * columns
    row = group * group_m + inside % height.clamp_min(1)
    return torch.stack([row, inside // height.clamp_min(1)], 1).int()


def gemm(
    a: Tensor,
    b: Tensor,
    tile_order: Tensor | None = None,
    *,
    add: Tensor | None = None,
    bias: Tensor | None = None,
    epilogue: str = "none",
    out: Tensor | None = None,
    block_m: int = 64,
    block_n: int = 64,
    block_k: int = 64,
) -> Tensor:
    """The tiles of ``a @ b`` that are listed; see the module.

    Args:
        a: Shape: [M, K] float32, float16 or bfloat16, elements of a row side by side.
        b: As ``a``. Shape: [K, N].
        tile_order: Row and column of each tile, none twice; all of `row_major` if None.
            Shape: [n_tiles, 2] int32.
        add: Added before the epilogue; may be ``out``. Shape: [M, N].
        bias: Added to every row. Shape: [N].
        epilogue: ``"none"`` or ``"silu"``.
        out: Written to; a new matrix of zeros if None. Shape: [M, N], dtype of ``a``.
        block_m: Rows of a tile, a power of two.
        block_n: Columns of a tile, a power of two.
        block_k: Elements of a sum taken at a time by the kernel, a power of two.

    Returns:
        ``out``. Elements of tiles that are not listed are left alone.

    Raises:
        ValueError: Shapes, dtypes, strides or settings other than these.

    Example:
        >>> import torch
        >>> gemm(torch.eye(2), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([[1., 2.],
                [3., 4.]])
    """
    call = gemm_triton if a.is_cuda and triton is not None else gemm_torch
    return call(
        a, b, tile_order, add=add, bias=bias, epilogue=epilogue, out=out,
        block_m=block_m, block_n=block_n, block_k=block_k,
    )  # fmt: skip


def _check(
    a: Tensor,
    b: Tensor,
    order: Tensor,
    add: Tensor | None,
    bias: Tensor | None,
    epilogue: str,
    out: Tensor,
    block_m: int,
    block_n: int,
    block_k: int,
) -> None:
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"a is {list(a.shape)}, b is {list(b.shape)}; expected [M, K] and [K, N]")
    if a.dtype not in DTYPES or b.dtype != a.dtype or out.dtype != a.dtype:
        raise ValueError(
            f"a is {a.dtype}, b {b.dtype}, out {out.dtype}; expected one of float32, float16 and "
            "bfloat16 for all"
        )
    m, n = a.shape[0], b.shape[1]
    for name, x in (("a", a), ("b", b), ("out", out), ("add", add)):
        if x is not None and x.shape[1] > 1 and x.stride(1) != 1:
            raise ValueError(
                f"{name} has strides {x.stride()}; expected the elements of a row side by side"
            )
    for name, x, shape in (("out", out, (m, n)), ("add", add, (m, n)), ("bias", bias, (n,))):
        if x is not None and (x.shape != shape or x.dtype != a.dtype):
            raise ValueError(
                f"{name} is {x.dtype} {list(x.shape)}; expected {a.dtype} {list(shape)}"
            )
    for name, size in (("block_m", block_m), ("block_n", block_n), ("block_k", block_k)):
        if size < 16 or size & (size - 1):
            raise ValueError(f"{name} is {size}; expected a power of two from 16 up")
    if epilogue not in EPILOGUES:
        raise ValueError(f"epilogue is {epilogue!r}; expected one of {', '.join(EPILOGUES)}")
    if order.ndim != 2 or order.shape[1] != 2 or order.dtype != torch.int32:
        raise ValueError(
            f"tile_order is {order.dtype} {list(order.shape)}; expected int32 [n_tiles, 2]"
        )
    if len(order) and not order.is_cuda:
        last = order.max(0).values.tolist()
        most = [-(-m // block_m), -(-n // block_n)]
        if int(order.min()) < 0 or last[0] >= most[0] or last[1] >= most[1]:
            raise ValueError(f"tile_order reaches tile {last}; there are {most[0]} x {most[1]}")


def gemm_torch(
    a: Tensor,
    b: Tensor,
    tile_order: Tensor | None = None,
    *,
    add: Tensor | None = None,
    bias: Tensor | None = None,
    epilogue: str = "none",
    out: Tensor | None = None,
    block_m: int = 64,
    block_n: int = 64,
    block_k: int = 64,
) -> Tensor:
    """`gemm` in torch operations, one product a tile, on any device."""
    order, out = _defaults(a, b, tile_order, out, block_m, block_n)
    _check(a, b, order, add, bias, epilogue, out, block_m, block_n, block_k)
    plain = a.dtype == torch.float32 and add is None and bias is None and epilogue == "none"
    for row, column in order.tolist():
        rows = slice(row * block_m, (row + 1) * block_m)
        columns = slice(column * block_n, (column + 1) * block_n)
        if plain:
            tile_product(a[rows], b[:, columns], out[rows, columns])
            continue
        tile = a[rows].float() @ b[:, columns].float()
        if add is not None:
            tile += add[rows, columns]
        if bias is not None:
            tile += bias[columns]
        out[rows, columns] = nnf.silu(tile) if epilogue == "silu" else tile
    return out


def tile_product(a: Tensor, b: Tensor, out: Tensor) -> None:
    """``out = a @ b`` for one tile in float32, with bits that do not depend on where it lies.

    Libraries choose another order of sums for operands that begin off a cache line and for results
    in longer rows; so such operands are copied first, and results are copied last.
    """
    a = a.clone() if a.data_ptr() % ALIGNED else a
    b = b.clone(memory_format=torch.contiguous_format) if b.data_ptr() % ALIGNED else b
    out.copy_(torch.mm(a, b))


def _defaults(
    a: Tensor, b: Tensor, order: Tensor | None, out: Tensor | None, block_m: int, block_n: int
) -> tuple[Tensor, Tensor]:
    m, n = a.shape[0], b.shape[-1]
    if order is None:
        order = row_major(m, n, block_m=max(block_m, 1), block_n=max(block_n, 1))
    return order, a.new_zeros((m, n)) if out is None else out


def gemm_float64(
    a: Tensor,
    b: Tensor,
    tile_order: Tensor | None = None,
    *,
    add: Tensor | None = None,
    bias: Tensor | None = None,
    epilogue: str = "none",
    block_m: int = 64,
    block_n: int = 64,
    block_k: int = 64,
) -> Tensor:
    """The definition in float64; zero where no tile is listed."""
    full = a.double() @ b.double()
    full = full if add is None else full + add.double()
    full = full if bias is None else full + bias.double()
    full = full * torch.sigmoid(full) if epilogue == "silu" else full
    if tile_order is None:
        return full
    out = torch.zeros_like(full)
    for row, column in tile_order.tolist():
        at = (
            slice(row * block_m, (row + 1) * block_m),
            slice(column * block_n, (column + 1) * block_n),
        )
        out[at] = full[at]
    return out


def gemm_triton(
    a: Tensor,
    b: Tensor,
    tile_order: Tensor | None = None,
    *,
    add: Tensor | None = None,
    bias: Tensor | None = None,
    epilogue: str = "none",
    out: Tensor | None = None,
    block_m: int = 64,
    block_n: int = 64,
    block_k: int = 64,
    num_warps: int = 4,
    num_stages: int = 3,
) -> Tensor:
    """`gemm` as one Triton launch, a program a tile; on CPU under ``TRITON_INTERPRET=1``."""
    order, out = _defaults(a, b, tile_order, out, block_m, block_n)
    _check(a, b, order, add, bias, epilogue, out, block_m, block_n, block_k)
    if triton is None:
        raise ValueError("the kernel needs triton, which is not installed; gemm_torch does not")
    held = (block_m + block_n) * block_k * a.element_size() * num_stages
    if held > SHARED_BYTES:
        raise ValueError(
            f"blocks {block_m} x {block_n} x {block_k} in {num_stages} stages hold {held} bytes; "
            f"a program has {SHARED_BYTES}"
        )
    if len(order):
        _kernel[(len(order),)](
            a, b, out, out if add is None else add, out if bias is None else bias,
            order.to(a.device).contiguous(), a.shape[0], b.shape[1], a.shape[1],
            a.stride(0), b.stride(0), out.stride(0), 0 if add is None else add.stride(0),
            ADD=add is not None, BIAS=bias is not None, SILU=epilogue == "silu",
            BM=block_m, BN=block_n, BK=block_k, num_warps=num_warps, num_stages=num_stages,
        )  # fmt: skip
    return out


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _kernel(  # type: ignore[no-untyped-def]
        a, b, out, add, bias, order, m, n, depth, stride_a, stride_b, stride_out, stride_add,
        ADD: tl.constexpr, BIAS: tl.constexpr, SILU: tl.constexpr,
        BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    ):  # fmt: skip
        tile = tl.program_id(0)
        row = tl.load(order + 2 * tile) * BM + tl.arange(0, BM)
        column = tl.load(order + 2 * tile + 1) * BN + tl.arange(0, BN)
        inner = tl.arange(0, BK)
        total = tl.zeros((BM, BN), tl.float32)
        wide_row, wide_column = row.to(tl.int64), column.to(tl.int64)
        for k in range(0, depth, BK):
            at = k + inner
            left = tl.load(
                a + wide_row[:, None] * stride_a + at[None, :],
                mask=(row[:, None] < m) & (at[None, :] < depth), other=0.0,
            )  # fmt: skip
            right = tl.load(
                b + at[:, None].to(tl.int64) * stride_b + wide_column[None, :],
                mask=(at[:, None] < depth) & (column[None, :] < n), other=0.0,
            )  # fmt: skip
            total = tl.dot(left, right, total, input_precision="ieee")
        inside = (row[:, None] < m) & (column[None, :] < n)
        if ADD:
            there = add + wide_row[:, None] * stride_add + wide_column[None, :]
            total += tl.load(there, mask=inside, other=0.0).to(tl.float32)
        if BIAS:
            total += tl.load(bias + column, mask=column < n, other=0.0).to(tl.float32)[None, :]
        if SILU:
            total = total / (1.0 + tl.exp(-total))
        place = out + wide_row[:, None] * stride_out + wide_column[None, :]
        tl.store(place, total.to(out.dtype.element_ty), mask=inside)


def _drawn(
    m: int, n: int, k: int, device: torch.device, dtype: torch.dtype, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    a, b = (torch.randn(s, generator=generator) for s in ((m, k), (k, n)))
    return a.to(device, dtype), b.to(device, dtype)


def _plain(device: torch.device, dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    a, b = _drawn(64, 64, 64, device, dtype, generator)
    return {"a": a, "b": b, "block_m": 32, "block_n": 32, "block_k": 32}


def _ragged(
    device: torch.device, dtype: torch.dtype, generator: torch.Generator
) -> dict[str, Any]:
    a, b = _drawn(45, 83, 70, device, dtype, generator)
    order = row_major(45, 83, block_m=32, block_n=32, group_m=2)
    turned = order[torch.randperm(len(order), generator=generator)]
    extra = {"add": _drawn(45, 83, 1, device, dtype, generator)[0].expand(45, 83).contiguous()}
    bias = torch.randn(83, generator=generator).to(device, dtype)
    return {
        "a": a, "b": b, "tile_order": turned, "bias": bias, "epilogue": "silu", **extra,
        "block_m": 32, "block_n": 32, "block_k": 16,
    }  # fmt: skip


def _part(device: torch.device, dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    a, b = _drawn(40, 40, 96, device, dtype, generator)
    order = torch.tensor([[2, 1], [0, 2]], dtype=torch.int32)
    return {"a": a, "b": b, "tile_order": order, "block_m": 16, "block_n": 16, "block_k": 32}


def _views(device: torch.device, dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    a, b = _drawn(20, 40, 50, device, dtype, generator)
    return {"a": a[3:, 5:40], "b": b[:35, 4:], "block_m": 16, "block_n": 16, "block_k": 16}


def _bad(**changes: Any) -> Callable[[], dict[str, Any]]:
    def inputs() -> dict[str, Any]:
        return {"a": torch.zeros(32, 16), "b": torch.zeros(16, 32)} | changes

    return inputs


def _bench(
    size: int,
) -> Callable[[torch.device, torch.dtype], Mapping[str, Callable[[], Any]]]:
    def prepare(device: torch.device, dtype: torch.dtype) -> Mapping[str, Callable[[], Any]]:
        a, b = _drawn(size, size, size, device, dtype, torch.Generator().manual_seed(0))
        out = torch.empty_like(a)
        block: dict[str, Any] = {"block_m": 128, "block_n": 256 if device.type == "cuda" else 512}
        order = row_major(size, size, **block, group_m=8).to(device)
        return {
            "torch.mm": lambda: torch.mm(a, b, out=out),
            "torch": lambda: gemm_torch(a, b, order, out=out, **block),
            "triton": lambda: gemm_triton(a, b, order, out=out, **block, num_warps=8),
        }

    return prepare


KERNEL = Kernel(
    name="gemm",
    torch=gemm_torch,
    triton=gemm_triton,
    reference=gemm_float64,
    cases=(
        Case(name="plain", inputs=_plain, dtypes=TRIED),
        Case(name="ragged", inputs=_ragged, dtypes=(torch.float32, torch.float16)),
        Case(name="part", inputs=_part),
        Case(name="views", inputs=_views),
    ),
    refusals=(
        Refusal(name="depth", inputs=_bad(b=torch.zeros(17, 32)), match="expected .M, K. and"),
        Refusal(name="dtypes", inputs=_bad(b=torch.zeros(16, 32).half()), match="for all"),
        Refusal(
            name="float64",
            inputs=_bad(a=torch.zeros(32, 16).double(), b=torch.zeros(16, 32).double()),
            match="expected one of float32",
        ),
        Refusal(name="strides", inputs=_bad(b=torch.zeros(32, 16).T), match="side by side"),
        Refusal(name="block", inputs=_bad(block_m=48), match="block_m is 48; expected a power"),
        Refusal(name="small-block", inputs=_bad(block_k=8), match="from 16 up"),
        Refusal(name="epilogue", inputs=_bad(epilogue="relu"), match="expected one of none, silu"),
        Refusal(name="bias", inputs=_bad(bias=torch.zeros(31)), match="bias is"),
        Refusal(
            name="tile",
            inputs=_bad(tile_order=torch.tensor([[1, 0]], dtype=torch.int32)),
            match="reaches tile .1, 0.; there are 1 x 1",
        ),
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
                "a": f"*{t}", "b": f"*{t}", "out": f"*{t}", "add": f"*{t}", "bias": f"*{t}",
                "order": "*i32", "m": "i32", "n": "i32", "depth": "i32", "stride_a": "i64",
                "stride_b": "i64", "stride_out": "i64", "stride_add": "i64",
                **dict.fromkeys(("ADD", "BIAS", "SILU", "BM", "BN", "BK"), "constexpr"),
            },
            constants={"ADD": True, "BIAS": True, "SILU": True, "BM": 128, "BN": n, "BK": 64},
            warps=8,
        )
        for t, n in (("fp32", 64), ("bf16", 128))
    ),
    benches=(
        Bench(size="M=N=K=512", prepare=_bench(512), flops=2 * 512**3, bytes=3 * 4 * 512**2),
        Bench(
            size="M=N=K=4096", prepare=_bench(4096), gpu_only=True,
            flops=2 * 4096**3, bytes=3 * 2 * 4096**2,
        ),
        Bench(
            size="M=N=K=8192", prepare=_bench(8192), gpu_only=True,
            flops=2 * 8192**3, bytes=3 * 2 * 8192**2,
        ),
    ),
)  # fmt: skip
