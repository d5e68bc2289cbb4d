"""The TIES pass: laws of the twin. What all kernels are asked is in test_kernels.py."""

from __future__ import annotations

from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lamps_kernels.ties import BLOCK, CHUNK, ties, ties_torch, ties_triton
from torch import Tensor


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
