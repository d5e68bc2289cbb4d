"""The TIES pass: laws of the twin, and the Triton kernel against it in interpreter mode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lamps_kernels.ties import BLOCK, CHUNK, ties, ties_torch, ties_triton
from torch import Tensor

KERNEL = """
import itertools, json, torch
from lamps_kernels.ties import BLOCK, ties_torch, ties_triton
torch.manual_seed(0)
seen = []
dtypes = (torch.float32, torch.float64)
for k, n, dtype in itertools.product((1, 2, 5), (1, 2 * BLOCK + 7), dtypes):
    wide = torch.randn(k, n + 5, dtype=dtype)
    wide[:, : n // 2] = torch.randint(-1, 2, (k, n // 2)).to(dtype)
    x, bounds = wide[:, 2 : n + 2], torch.rand(k)
    for majority, combine in itertools.product((-1, 0, 1), ("mean", "sum")):
        a = ties_triton(x, bounds, majority=majority, combine=combine)
        b = ties_torch(x, bounds, majority=majority, combine=combine)
        assert torch.equal(a.values, b.values) and a[1:] == b[1:], (k, n, dtype, majority, combine)
        seen.append(a.undecided)
empty = ties_triton(torch.zeros(2, 0), torch.zeros(2))
print(json.dumps({"cases": len(seen), "undecided": sum(seen), "empty": empty.values.numel()}))
"""

COMPILE = """
import json
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from lamps_kernels.ties import _kernel
sizes = []
for dtype in ("fp32", "fp64"):
    types = {"x": f"*{dtype}", "bounds": "*fp64", "values": f"*{dtype}", "balance": "*i32",
             "undecided": "*i32", "n": "i32", "stride": "i64", "majority": "i32",
             "K": "constexpr", "MEAN": "constexpr", "BLOCK": "constexpr"}
    fixed = {"K": 8, "MEAN": True, "BLOCK": 1024}
    source = ASTSource(fn=_kernel, signature=types, constexprs=fixed)
    sizes.append(len(compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]))
print(json.dumps(sizes))
"""


def plain(x: Tensor, bounds: Tensor, majority: int, combine: str) -> Tensor:
    """The definition, entry by entry, in float64."""
    out = []
    for column in x.double().T:
        kept = [v for v, t in zip(column.tolist(), bounds.tolist(), strict=True) if abs(v) >= t]
        total = sum(kept)
        sign = (total > 0) - (total < 0) or majority
        agree = [v for v in kept if v * sign > 0]
        out.append(sum(agree) / (max(len(agree), 1) if combine == "mean" else 1))
    return torch.tensor(out, dtype=x.dtype)


def child(script: str, **environment: str) -> str:
    """Run in a process of its own: interpreter mode is settled when triton is imported."""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=240,
        env=os.environ | environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_kernel_equals_its_twin_bit_for_bit_in_interpreter_mode() -> None:
    pytest.importorskip("triton")
    seen = json.loads(child(KERNEL, TRITON_INTERPRET="1"))
    assert seen["cases"] == 72
    assert seen["undecided"] > 0  # so that the majority was put to work
    assert seen["empty"] == 0


def test_kernel_compiles_for_a_gpu() -> None:
    pytest.importorskip("triton")
    assert all(size > 0 for size in json.loads(child(COMPILE, TRITON_INTERPRET="0")))


@pytest.mark.gpu
def test_kernel_on_a_gpu_equals_its_twin() -> None:
    x = torch.randn(8, 1_000_003, device="cuda")
    bounds = torch.full((8,), 1.28)
    fast, slow = ties_triton(x, bounds), ties_torch(x, bounds)
    assert torch.equal(fast.values, slow.values)
    assert fast[1:] == slow[1:]


@st.composite
def inputs(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    k, n = draw(st.integers(1, 5)), draw(st.integers(1, 12))
    # Sixteenths: their sums are exact in any order, so that a tie is a tie for both.
    value = st.one_of(st.integers(-2, 2).map(float), st.integers(-64, 64).map(lambda i: i / 16))
    x = torch.tensor(
        draw(st.lists(st.lists(value, min_size=n, max_size=n), min_size=k, max_size=k))
    )
    return x, torch.tensor(
        draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=k, max_size=k))
    )


@given(inputs(), st.sampled_from([-1, 0, 1]), st.sampled_from(["mean", "sum"]))
def test_twin_equals_the_definition(
    case: tuple[Tensor, Tensor], majority: int, combine: str
) -> None:
    x, bounds = case
    found = ties_torch(x, bounds, majority=majority, combine=combine)
    torch.testing.assert_close(found.values, plain(x, bounds, majority, combine))


@given(inputs(), st.sampled_from(["mean", "sum"]), st.randoms(use_true_random=False))
def test_order_changes_nothing_and_sign_carries_through(
    case: tuple[Tensor, Tensor], combine: str, random: Random
) -> None:
    x, bounds = case
    order = torch.tensor(random.sample(range(len(x)), len(x)))
    found = ties_torch(x, bounds, combine=combine)
    other = ties_torch(x[order], bounds[order], combine=combine)
    torch.testing.assert_close(found.values, other.values)
    assert found[1:] == other[1:]
    turned = ties_torch(-x, bounds, combine=combine)
    torch.testing.assert_close(found.values, -turned.values)
    assert turned.balance == -found.balance


def test_chunks_join_without_a_seam() -> None:
    x = torch.randn(3, 2 * CHUNK + 17, generator=torch.Generator().manual_seed(0))
    whole = ties_torch(x, torch.ones(3))
    at = slice(CHUNK - 5, CHUNK + 5)
    assert torch.equal(whole.values[at], ties_torch(x[:, at], torch.ones(3)).values)


def test_cancelled_entries_follow_the_majority() -> None:
    x = torch.tensor([[1.0, 2.0], [-1.0, 2.0]])
    bounds = torch.zeros(2)
    assert ties(x, bounds).values.tolist() == [0, 2]
    assert ties(x, bounds)[1:] == (1, 1)
    assert ties(x, bounds, majority=1).values.tolist() == [1, 2]
    assert ties(x, bounds, majority=-1).values.tolist() == [-1, 2]


def test_input_is_left_alone_and_the_twin_serves_the_cpu() -> None:
    x = torch.randn(2, BLOCK)
    before = x.clone()
    assert torch.equal(ties(x, torch.ones(2)).values, ties_torch(x, torch.ones(2)).values)
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    ("x", "bounds", "settings", "message"),
    [
        (torch.zeros(3), torch.zeros(3), {}, "expected float32 or float64"),
        (torch.zeros(0, 3), torch.zeros(0), {}, "K >= 1"),
        (torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2), {}, "float32 or float64"),
        (torch.zeros(2, 3, dtype=torch.float16), torch.zeros(2), {}, "float32 or float64"),
        (torch.zeros(3, 2).T, torch.zeros(2), {}, "side by side"),
        (torch.zeros(2, 3), torch.zeros(3), {}, "expected 2"),
        (torch.zeros(2, 3), torch.tensor([1.0, -1.0]), {}, "none negative"),
        (torch.zeros(2, 3), torch.tensor([1.0, torch.nan]), {}, "none negative"),
        (torch.zeros(2, 3), torch.zeros(2), {"majority": 2}, "-1, 0 or 1"),
        (torch.zeros(2, 3), torch.zeros(2), {"combine": "max"}, "'mean' or 'sum'"),
    ],
)
def test_refusals(x: Tensor, bounds: Tensor, settings: dict[str, int | str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ties(x, bounds, **settings)  # type: ignore[arg-type]
