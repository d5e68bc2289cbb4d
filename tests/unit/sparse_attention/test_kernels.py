"""Laws of the four kernels' twins; cases against float64 and Triton run in tests/kernels."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lamps_kernels._blocks import blocks_of_mask, mask_of_blocks, visible_and_forced
from lamps_kernels._rows import _attend, _plain
from lamps_kernels.attend_blocks import attend_blocks
from lamps_kernels.composite_mass import composite_mass
from lamps_kernels.pool_groups import pool_groups
from lamps_kernels.select_blocks import select_blocks, select_blocks_float64
from torch import Tensor

from ._heads import heads


def masses(seed: int, rows: int, columns: int) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    drawn = torch.randint(0, 6, (1, 2, rows, columns), generator=stream).float().exp()
    return drawn / drawn.sum(-1, keepdim=True)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 1000),
    queries=st.integers(1, 40),
    more=st.integers(0, 24),
    tau=st.floats(0.01, 1.0),
    sink=st.integers(0, 2),
    local=st.integers(0, 2),
    least=st.integers(0, 4),
    most=st.none() | st.integers(4, 6),
    causal=st.booleans(),
)
def test_selection_is_the_definition(
    seed: int, queries: int, more: int, tau: float, sink: int, local: int, least: int,
    most: int | None, causal: bool,
) -> None:  # fmt: skip
    keys = queries + more
    mass = masses(seed, -(-queries // 8), -(-keys // 8))
    given_: dict[str, Any] = {
        "queries": queries, "keys": keys, "block": 8, "tau": tau, "sink": sink, "local": local,
        "min_blocks": least, "max_blocks": most, "causal": causal,
    }  # fmt: skip
    found, wanted = select_blocks(mass, **given_), select_blocks_float64(mass, **given_)
    assert torch.equal(found.counts, wanted.counts)
    assert torch.equal(found.lists, wanted.lists)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000), low=st.floats(0.05, 0.9), more=st.floats(0.0, 0.1))
def test_more_tau_keeps_more_and_covers_what_it_says(seed: int, low: float, more: float) -> None:
    visible, forced = visible_and_forced(40, 64, 8, sink=1, local=1)
    mass = masses(seed, 5, 8) * visible
    mass = mass / mass.sum(-1, keepdim=True)
    few, many = (
        mask_of_blocks(select_blocks(mass, queries=40, keys=64, block=8, tau=tau))
        for tau in (low, low + more)
    )
    assert bool((few <= many).all())
    assert bool((few <= visible).all())
    assert bool((forced <= few).all())
    assert bool(((mass * few).sum(-1) >= low - 1e-6).all())


def test_lists_and_masks_are_each_others_inverse() -> None:
    mask = torch.rand(2, 3, 4, 9, generator=torch.Generator().manual_seed(0)) < 0.4
    blocks = blocks_of_mask(mask)
    assert torch.equal(mask_of_blocks(blocks), mask)
    assert torch.equal(blocks.counts, mask.sum(-1))


def test_pooling_of_equal_tokens_gives_them_back() -> None:
    x = torch.randn(2, 1, 1, 5).expand(2, 4, 13, 5)
    assert torch.allclose(pool_groups(x, size=4, heads=2), x[:, :2, :4])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("n_q", "n_k"), [(200, 200), (70, 150), (1, 33)])
def test_masses_are_shares_and_no_constant_moves_them(n_q: int, n_k: int, causal: bool) -> None:
    q, k, _ = heads(n_q=n_q, n_k=n_k)
    settings_: dict[str, Any] = {
        "queries": n_q, "keys": n_k, "group_q": 4, "group_k": 8, "block": 32, "scale": 0.25,
        "causal": causal,
    }  # fmt: skip
    a, b = pool_groups(q, size=4), pool_groups(k, size=8)
    mass = composite_mass(a, b, **settings_)
    assert (mass.sum(-1) - 1).abs().max() < 1e-5
    if causal:
        visible, _ = visible_and_forced(n_q, n_k, 32)
        assert not mass[:, :, ~visible].any()
    # What is added to every key adds one constant to all scores of a query.
    moved = composite_mass(a, b + torch.randn(16), **settings_)
    assert (moved - mass).abs().max() < 1e-5


def test_groups_of_one_token_give_the_true_masses() -> None:
    q, k, _ = heads(h=2, g=2, n_q=96)
    found = composite_mass(q, k, queries=96, keys=96, group_q=1, group_k=1, block=32, scale=0.25)
    s = (q @ k.mT / 4).masked_fill(~torch.ones(96, 96, dtype=torch.bool).tril(), -math.inf)
    wanted = s.softmax(-1).view(1, 2, 3, 32, 3, 32).sum(-1).mean(3)
    assert (found - wanted).abs().max() < 1e-6


@pytest.mark.parametrize("shared", [1, 2, 4])
@pytest.mark.parametrize(("n_q", "n_k"), [(200, 200), (70, 150), (5, 64)])
def test_all_blocks_equal_the_librarys_attention(n_q: int, n_k: int, shared: int) -> None:
    q, k, v = heads(h=4, g=4 // shared, n_q=n_q, n_k=n_k, b=2)
    visible, _ = visible_and_forced(n_q, n_k, 32)
    every = blocks_of_mask(visible.expand(2, k.shape[1], *visible.shape))
    found = attend_blocks(q, k, v, *every, block=32)
    mask = torch.arange(n_k) <= n_k - n_q + torch.arange(n_q)[:, None]
    wanted = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, enable_gqa=True
    )
    assert (found.out - wanted).abs().max() <= 1e-5 * v.abs().max()


def test_what_runs_elsewhere_is_what_runs_on_a_cpu() -> None:
    q, k, v = heads(h=2, g=2, n_q=40, n_k=90)
    hidden = torch.arange(90) > 50 + torch.arange(40)[:, None]
    fused, plain = (attend(q, k, v, hidden, 0.3) for attend in (_attend, _plain))
    assert all((a - b).abs().max() < 1e-5 for a, b in zip(fused, plain, strict=True))


def test_log_sums_tell_the_share_of_attention_that_was_kept() -> None:
    q, k, v = heads(h=2, g=2, n_q=96)
    visible, forced = visible_and_forced(96, 96, 32, sink=0, local=0)
    some, every = (
        attend_blocks(q, k, v, *blocks_of_mask(m.expand(1, 2, 3, 3)), block=32)
        for m in (forced, visible)
    )
    s = (q @ k.mT / 4).masked_fill(~torch.ones(96, 96, dtype=torch.bool).tril(), -math.inf)
    block = torch.arange(96) // 32
    kept = (s.softmax(-1) * (block[:, None] == block)).sum(-1)
    assert torch.allclose((some.lse - every.lse).exp(), kept, atol=1e-5)


def test_inputs_are_left_alone() -> None:
    q, k, v = heads()
    before = [x.clone() for x in (q, k, v)]
    visible, _ = visible_and_forced(200, 200, 32)
    attend_blocks(q, k, v, *blocks_of_mask(visible.expand(1, 2, 7, 7)), block=32)
    assert all(torch.equal(a, b) for a, b in zip((q, k, v), before, strict=True))
