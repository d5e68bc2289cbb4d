"""TIES merging in one pass over K tensors: trim, elect a sign, average what agrees with it.

    kept_k = x_k where |x_k| >= threshold_k, else 0
    sign   = sgn(sum_k kept_k), or ``majority`` where that sum is exactly 0
    merged = mean, or sum, of the kept_k whose sign is the elected one; 0 where there is none

Memory-bound: K reads and one write an element, against about ten passes when written with tensor
operations. Sums run in float64, so that the elected sign does not depend on the order of the
tensors. `ties` takes the Triton kernel on CUDA tensors and its torch twin `ties_torch` elsewhere;
both give the same numbers.

Source: Yadav et al., TIES-Merging, NeurIPS 2023, arXiv 2306.01708, section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from lamps_kernels._kernel import Bench, Case, Inputs, Kernel, Refusal, Signature, Tolerance

try:
    import triton  # type: ignore[import-untyped]
    import triton.language as tl  # type: ignore[import-untyped]
except ModuleNotFoundError:  # torch without triton: the twin does all the work
    triton = None

BLOCK = 1024
"""Elements per program of the kernel."""

CHUNK = 1 << 14
"""Elements that the twin works on at a time, so that its temporaries stay in the cache."""


class Merged(NamedTuple):
    """What one pass gives.

    Args:
        values: Shape: [N], dtype of the input.
        balance: Elements with a positive elected sign minus those with a negative one, counted
            before ``majority`` is applied.
        undecided: Elements whose kept values are not all 0 and cancel exactly.
    """

    values: Tensor
    balance: int
    undecided: int


def ties(x: Tensor, thresholds: Tensor, *, majority: int = 0, combine: str = "mean") -> Merged:
    """Trim, elect and merge; see the module.

    Args:
        x: Updates of K experts; rows may lie apart, their elements may not. Shape: [K, N]
            float32 or float64.
        thresholds: Smallest magnitude that is kept, not negative. Shape: [K].
        majority: Sign where the kept values cancel: -1, 1, or 0 for none, which gives 0.
        combine: ``"mean"`` or ``"sum"``.

    Raises:
        ValueError: Shapes, dtype or settings other than these.

    Example:
        >>> import torch
        >>> x = torch.tensor([[3.0, 1.0, -2.0], [1.0, 0.5, 4.0]])
        >>> ties(x, torch.tensor([1.0, 1.0])).values
        tensor([2., 1., 4.])
    """
    _check(x, thresholds, majority, combine)
    if x.is_cuda and triton is not None:
        return ties_triton(x, thresholds, majority=majority, combine=combine)
    return ties_torch(x, thresholds, majority=majority, combine=combine)


def _check(x: Tensor, thresholds: Tensor, majority: int, combine: str) -> None:
    if x.ndim != 2 or not len(x) or x.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"x is {x.dtype} {list(x.shape)}; expected float32 or float64 [K, N], K >= 1"
        )
    if x.shape[1] > 1 and x.stride(1) != 1:
        raise ValueError(
            f"x has strides {x.stride()}; expected the elements of a row side by side"
        )
    if thresholds.shape != (len(x),) or not bool((thresholds >= 0).all()):
        raise ValueError(f"thresholds are {thresholds.tolist()}; expected {len(x)}, none negative")
    if majority not in (-1, 0, 1):
        raise ValueError(f"majority is {majority}; expected -1, 0 or 1")
    if combine not in ("mean", "sum"):
        raise ValueError(f"combine is {combine!r}; expected 'mean' or 'sum'")


def ties_torch(
    x: Tensor, thresholds: Tensor, *, majority: int = 0, combine: str = "mean"
) -> Merged:
    """`ties` in torch operations, chunk by chunk, on any device."""
    _check(x, thresholds, majority, combine)
    values = torch.empty_like(x[0])
    bounds = thresholds.to(x.device).double()
    balance = undecided = 0
    for start in range(0, x.shape[1], CHUNK):
        part = x[:, start : start + CHUNK]
        up, down = (part.new_zeros(part.shape[1], dtype=torch.float64) for _ in range(2))
        n_up, n_down = torch.zeros_like(up), torch.zeros_like(up)
        for row, bound in zip(part, bounds, strict=True):
            v = row.double()
            v = v * (v.abs() >= bound)
            up += v.clamp_min(0)
            down += v.clamp_max(0)
            n_up += v > 0
            n_down += v < 0
        sign = torch.sign(up + down)
        balance += int(sign.sum())
        undecided += int(((sign == 0) & (n_up > 0)).sum())
        if majority:
            sign = torch.where(sign == 0, float(majority), sign)
        total = torch.where(sign > 0, up, torch.where(sign < 0, down, 0))
        if combine == "mean":
            total /= torch.where(sign > 0, n_up, n_down).clamp_min(1)
        values[start : start + CHUNK] = total.to(values.dtype)
    return Merged(values, balance, undecided)


def ties_triton(
    x: Tensor, thresholds: Tensor, *, majority: int = 0, combine: str = "mean"
) -> Merged:
    """`ties` as one Triton kernel; on CPU tensors under ``TRITON_INTERPRET=1``."""
    _check(x, thresholds, majority, combine)
    if triton is None:
        raise ValueError("the kernel needs triton, which is not installed; ties_torch does not")
    n = x.shape[1]
    values = torch.empty_like(x[0])
    programs = triton.cdiv(n, BLOCK)
    counts = torch.zeros((2, max(programs, 1)), dtype=torch.int32, device=x.device)
    if n:
        bounds = thresholds.to(x.device).double().contiguous()
        _kernel[(programs,)](
            x, bounds, values, counts[0], counts[1], n, x.stride(0), majority,
            K=len(x), MEAN=combine == "mean", BLOCK=BLOCK,
        )  # fmt: skip
    # Summed over programs here and not by atomics, so that a run equals its repetition.
    balance, undecided = counts.sum(1).tolist()
    return Merged(values, balance, undecided)


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _kernel(  # type: ignore[no-untyped-def]
        x, bounds, values, balance, undecided, n, stride, majority,
        K: tl.constexpr, MEAN: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        program = tl.program_id(0)
        at = program.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = at < n
        up = tl.zeros((BLOCK,), tl.float64)
        down = tl.zeros((BLOCK,), tl.float64)
        n_up = tl.zeros((BLOCK,), tl.int32)
        n_down = tl.zeros((BLOCK,), tl.int32)
        row = x + at
        for k in range(K):
            v = tl.load(row, mask=inside, other=0.0).to(tl.float64)
            row += stride
            v = tl.where(tl.abs(v) >= tl.load(bounds + k), v, 0.0)
            up += tl.maximum(v, 0.0)
            down += tl.minimum(v, 0.0)
            n_up += (v > 0).to(tl.int32)
            n_down += (v < 0).to(tl.int32)
        total = up + down
        sign = (total > 0).to(tl.int32) - (total < 0).to(tl.int32)
        tl.store(balance + program, tl.sum(sign, 0))
        tl.store(undecided + program, tl.sum(((sign == 0) & (n_up > 0)).to(tl.int32), 0))
        sign = tl.where(sign == 0, majority, sign)
        total = tl.where(sign > 0, up, tl.where(sign < 0, down, 0.0))
        if MEAN:
            count = tl.where(sign > 0, n_up, n_down)
            total = total / tl.maximum(count, 1).to(tl.float64)
        tl.store(values + at, total.to(values.dtype.element_ty), mask=inside)


def _reference(
    x: Tensor, thresholds: Tensor, *, majority: int = 0, combine: str = "mean"
) -> Merged:
    """The definition, column by column."""
    values, balance, undecided = [], 0, 0
    bounds = thresholds.double().tolist()
    for column in x.double().T.tolist():
        kept = [v for v, t in zip(column, bounds, strict=True) if abs(v) >= t]
        total = sum(kept)
        sign = (total > 0) - (total < 0)
        balance += sign
        undecided += sign == 0 and any(kept)
        agree = [v for v in kept if v * (sign or majority) > 0]
        values.append(sum(agree) / (max(len(agree), 1) if combine == "mean" else 1))
    return Merged(torch.tensor(values, dtype=torch.float64), balance, undecided)


def _drawn(k: int, n: int, majority: int, combine: str) -> Case:
    def inputs(device: torch.device, dtype: torch.dtype, generator: torch.Generator) -> Inputs:
        wide = torch.randn(k, n + 5, dtype=dtype, generator=generator)
        # Small integers in half of the columns: their sums often cancel exactly.
        wide[:, : n // 2] = torch.randint(-1, 2, (k, n // 2), generator=generator).to(dtype)
        return {
            "x": wide.to(device)[:, 2 : n + 2],  # rows that lie apart
            "thresholds": torch.rand(k, generator=generator),
            "majority": majority,
            "combine": combine,
        }

    name = f"{k}x{n} majority {majority} {combine}"
    return Case(name=name, inputs=inputs, dtypes=(torch.float32, torch.float64))


def _compared(result: Merged) -> tuple[Tensor, ...]:
    counts = torch.tensor([result.balance, result.undecided], dtype=torch.float64)
    return result.values, counts


def _bench(k: int, n: int, *, gpu_only: bool = False) -> Bench:
    def prepare(device: torch.device, dtype: torch.dtype) -> dict[str, Callable[[], object]]:
        x = torch.randn(k, n, device=device, dtype=dtype)
        bounds = torch.full((k,), 1.28)  # a fifth is kept
        return {
            "torch": lambda: ties_torch(x, bounds),
            "triton": lambda: ties_triton(x, bounds),
            "torch.mean": lambda: x.mean(0),  # the same reads and writes, nothing else
        }

    return Bench(
        size=f"K={k} N={n}", prepare=prepare, gpu_only=gpu_only, bytes=4.0 * (k + 1) * n,
        dtype=torch.float32,
    )  # fmt: skip


def _bad(**changes: object) -> Callable[[], Inputs]:
    return lambda: {"x": torch.zeros(2, 3), "thresholds": torch.zeros(2)} | changes


KERNEL = Kernel(
    name="ties",
    torch=ties_torch,
    triton=ties_triton,
    reference=_reference,
    cases=(
        *(
            _drawn(k, n, majority, combine)
            for k, n in ((1, 1), (2, 2 * BLOCK + 7), (5, BLOCK))
            for majority in (-1, 0, 1)
            for combine in ("mean", "sum")
        ),
        _drawn(2, 0, 0, "mean"),
    ),
    refusals=(
        Refusal(name="one row", inputs=_bad(x=torch.zeros(3)), match="float32 or float64"),
        Refusal(name="no row", inputs=_bad(x=torch.zeros(0, 3)), match="K >= 1"),
        Refusal(name="integers", inputs=_bad(x=torch.zeros(2, 3).long()), match="float32"),
        Refusal(name="halves", inputs=_bad(x=torch.zeros(2, 3).half()), match="float32"),
        Refusal(name="columns", inputs=_bad(x=torch.zeros(3, 2).T), match="side by side"),
        Refusal(name="three", inputs=_bad(thresholds=torch.zeros(3)), match="expected 2"),
        Refusal(
            name="negative", inputs=_bad(thresholds=torch.tensor([1.0, -1])), match="none negative"
        ),
        Refusal(
            name="nan", inputs=_bad(thresholds=torch.tensor([1, torch.nan])), match="none negative"
        ),
        Refusal(name="majority", inputs=_bad(majority=2), match="-1, 0 or 1"),
        Refusal(name="combine", inputs=_bad(combine="max"), match="'mean' or 'sum'"),
    ),
    tolerances={
        torch.float32: Tolerance(absolute=1e-6, relative=1e-6),
        torch.float64: Tolerance(absolute=1e-14, relative=1e-14),
    },
    exact=True,
    compare=_compared,
    signatures=tuple(
        Signature(
            function=_kernel,
            types={
                "x": f"*{dtype}", "bounds": "*fp64", "values": f"*{dtype}", "balance": "*i32",
                "undecided": "*i32", "n": "i32", "stride": "i64", "majority": "i32",
                "K": "constexpr", "MEAN": "constexpr", "BLOCK": "constexpr",
            },
            constants={"K": 8, "MEAN": True, "BLOCK": BLOCK},
        )
        for dtype in ("fp32", "fp64")
        if triton is not None
    ),
    benches=(_bench(8, 1 << 20), _bench(8, 1 << 27, gpu_only=True)),
)  # fmt: skip
