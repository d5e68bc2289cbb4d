"""What each rule keeps: oracles at the ends of its ranges, and what it is for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lamps_kernels._blocks import mask_of_blocks, visible_and_forced
from lamps_plugins.sparse_attention._attend import attention, dense
from lamps_plugins.sparse_attention._lines import last_lines, lines_mask, most
from lamps_plugins.sparse_attention._rule import Rule
from lamps_plugins.sparse_attention._topics import Topics, topic_heads
from lamps_plugins.sparse_attention.flexprefill import distance
from torch import Tensor

from lamps.plugins import registry

from ._heads import heads

NAMES = sorted(name for family, name in registry("").methods if family == "sparse-attention")
SPARSE = [name for name in NAMES if name != "dense"]
EVERYTHING: dict[str, dict[str, Any]] = {
    "window-sink": {"local": 64},
    "strided": {"stride": 1},
    "random-blocks": {"density": 1.0},
    "vertical-slash": {"vertical": 1.0},
}


def rule(name: str, **params: Any) -> Rule[Any]:
    made: Rule[Any] = registry("").load_method("sparse-attention", name).from_params(params)  # type: ignore[assignment]
    return made


def mask(made: Rule[Any], q: Tensor, k: Tensor) -> Tensor:
    blocks = made.select(q, k, scale=q.shape[3] ** -0.5, layer=0)
    assert blocks is not None
    return mask_of_blocks(blocks)


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize(("n_q", "n_k"), [(400, 400), (150, 333), (1, 70), (64, 64)])
def test_kept_blocks_are_visible_and_hold_the_diagonal(name: str, n_q: int, n_k: int) -> None:
    q, k, _ = heads(n_q=n_q, n_k=n_k, b=2)
    made = rule(name, block=64)
    visible, forced = visible_and_forced(n_q, n_k, 64, sink=1, local=0)
    kept = mask(made, q, k)
    assert kept.shape[0] == 2
    assert kept.shape[1] in (2, 4)
    assert bool((kept <= visible).all())
    assert bool((forced <= kept).all())


@pytest.mark.parametrize("name", NAMES)
def test_attention_is_that_of_the_kept_blocks(name: str) -> None:
    q, k, v = heads(n_q=300)
    made = rule(name) if name == "dense" else rule(name, block=64)
    found = attention(made, q, k, v)
    wanted = dense(q, k, v)
    if name != "dense":
        kept = mask(made, q, k).repeat_interleave(64, 2).repeat_interleave(64, 3)[..., :300, :300]
        kept = kept.repeat_interleave(4 // kept.shape[1], 1).tril()
        wanted = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=kept, enable_gqa=True
        )
    assert (found.out - wanted).abs().max() < 1e-5
    assert 0 < found.density <= 1


@pytest.mark.parametrize("name", sorted(EVERYTHING))
def test_a_pattern_at_its_widest_is_dense(name: str) -> None:
    q, k, v = heads(n_q=300)
    found = attention(rule(name, block=64, **EVERYTHING[name]), q, k, v)
    assert found.density == 1.0
    assert (found.out - dense(q, k, v)).abs().max() < 1e-5


@pytest.mark.parametrize("name", ["unisparse", "oracle-mass", "mean-block", "xattention"])
def test_more_tau_keeps_more(name: str) -> None:
    q, k, _ = heads(n_q=640)
    few, many = (mask(rule(name, block=64, tau=tau), q, k) for tau in (0.7, 0.95))
    assert bool((few <= many).all())
    assert few.sum() < many.sum()


def test_bounds_on_the_number_of_blocks_hold() -> None:
    q, k, _ = heads(n_q=640)
    least = mask(rule("unisparse", block=64, tau=0.7, min_blocks=6), q, k).sum(-1)
    assert bool((least == torch.arange(1, 11).clamp_max(6)).logical_or(least > 6).all())
    most_ = mask(rule("unisparse", block=64, tau=0.995, max_blocks=4), q, k).sum(-1)
    assert int(most_.max()) == 4


def test_heads_share_a_list_or_have_their_own() -> None:
    q, k, _ = heads(n_q=320)
    assert mask(rule("unisparse", block=64), q, k).shape[1] == 2
    assert mask(rule("unisparse", block=64, heads="each"), q, k).shape[1] == 4


def test_groups_of_a_block_are_mean_blocks() -> None:
    q, k, _ = heads(h=2, g=2, n_q=320)
    # One head a group, so that it makes no difference whether queries or masses are averaged.
    from lamps_kernels.composite_mass import composite_mass
    from lamps_kernels.pool_groups import pool_groups
    from lamps_plugins.sparse_attention._masses import mean_masses

    wanted = composite_mass(
        pool_groups(q, size=64), pool_groups(k, size=64), queries=320, keys=320, group_q=64,
        group_k=64, block=64, scale=0.25,
    )  # fmt: skip
    assert torch.equal(mean_masses(q, k, block=64, scale=0.25), wanted)


def test_trusting_always_is_mean_block() -> None:
    q, k, _ = heads(n_q=500)
    flex = mask(rule("flexprefill", block=64, divergence=1.0, tau=0.9), q, k)
    assert torch.equal(flex, mask(rule("mean-block", block=64, heads="each", tau=0.9), q, k))


def test_never_trusting_keeps_lines() -> None:
    q, k, _ = heads(n_q=500)
    kept = mask(rule("flexprefill", block=64, divergence=0.0, tau=0.9, sink=0, local=0), q, k)
    lines = last_lines(q, k, block=64, scale=0.25)
    crossed = lines_mask(
        most(lines.vertical, 0.9), most(lines.slash, 0.9), queries=500, keys=500, block=64
    )
    visible, forced = visible_and_forced(500, 500, 64)
    assert torch.equal(kept, crossed & visible | forced)


def test_distance_of_distributions() -> None:
    a, b = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    assert float(distance(a, a)) == 0.0
    assert float(distance(a, b)) == pytest.approx(float(torch.tensor(2.0).log().sqrt()), abs=1e-5)


def test_lines_are_shares_and_cross_what_they_stand_for() -> None:
    q, k, _ = heads(n_q=130, n_k=300)
    lines = last_lines(q, k, block=64, scale=0.25)
    for part in lines:
        assert part.shape == (1, 4, 5)
        assert torch.allclose(part.sum(-1), torch.ones(1, 4), atol=1e-5)
    # All of the last queries' attention lies in the blocks that all diagonals cross.
    none = torch.zeros(1, 4, 5, dtype=torch.bool)
    visible, _ = visible_and_forced(130, 300, 64)
    assert bool((lines_mask(none, ~none, queries=130, keys=300, block=64) >= visible).all())


def test_a_single_diagonal_is_found() -> None:
    n, at = 512, torch.arange(512)
    angle = at[:, None] * (0.37 ** torch.arange(16))
    x = torch.cat([angle.cos(), angle.sin()], 1)[None, None]
    shifted = torch.cat([torch.zeros_like(x[:, :, :200]), x[:, :, :-200]], 2)
    made = rule("vertical-slash", block=64, vertical=0.01, slash=0.13, sink=0, local=0)
    kept = mask(made, 30 * shifted, x)
    # Key 200 tokens before: 3 to 4 blocks before.
    rows = torch.arange(5, n // 64)
    assert bool(kept[0, 0, rows, rows - 3].all())
    assert bool(kept[0, 0, rows, rows - 4].all())


@pytest.mark.parametrize("density", [0.2, 0.5])
def test_random_blocks_have_the_density_and_differ_by_layer(density: float) -> None:
    q, k, v = heads(n_q=64 * 24)
    made = rule("random-blocks", block=64, density=density, sink=0, local=0)
    assert attention(made, q, k, v).density == pytest.approx(density, abs=0.05)
    lists = [made.select(q, k, scale=0.25, layer=n) for n in (0, 0, 1)]
    assert torch.equal(lists[0].lists, lists[1].lists)  # type: ignore[union-attr]
    assert not torch.equal(lists[0].lists, lists[2].lists)  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def topical() -> tuple[Tensor, Tensor, Tensor]:
    return topic_heads(Topics(segment=96, topics=24), [0], 2048)[1:]


def loss(made: Rule[Any], q: Tensor, k: Tensor, v: Tensor) -> tuple[float, float]:
    found, wanted = attention(made, q, k, v), dense(q, k, v)
    return float((found.out - wanted).norm() / wanted.norm()), found.density


def test_scores_beat_patterns_and_the_truth_beats_scores(
    topical: tuple[Tensor, Tensor, Tensor],
) -> None:
    error, density = loss(rule("unisparse", block=64, tau=0.9), *topical)
    assert density < 0.6
    assert error < 0.8 * loss(rule("random-blocks", block=64, density=density), *topical)[0]
    wide = next(
        window
        for window in (rule("window-sink", block=64, local=n) for n in range(1, 32))
        if int(mask(window, *topical[:2]).sum()) >= density * 2 * 32 * 33 / 2
    )
    assert error < 0.8 * loss(wide, *topical)[0]
    true = [loss(rule("oracle-mass", block=64, tau=t), *topical) for t in (0.9, 0.95)]
    assert min(e for e, d in true if d <= density * 1.1) <= error * 1.05


def test_antidiagonals_of_equal_tokens_are_their_products() -> None:
    from lamps_plugins.sparse_attention.xattention import grouped

    q, k, _ = heads(h=1, g=1, n_q=32)
    a, b = grouped(q, 4).flip(3).flatten(3), grouped(k, 4).flatten(3)
    wanted = sum(float(q[0, 0, 8 + 3 - i] @ k[0, 0, 4 + i]) for i in range(4))
    assert float(a[0, 0, 2] @ b[0, 0, 1]) == pytest.approx(wanted, rel=1e-5)
