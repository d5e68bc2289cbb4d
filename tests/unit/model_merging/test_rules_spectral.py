"""Spectral rules and their linear algebra: polar factors, TSV-M, Iso, STAR, KnOTS, core space."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lamps_plugins.model_merging._rules.core_space import core_space, encode
from lamps_plugins.model_merging._rules.iso import (
    flatten,
    iso_c,
    iso_c_factored,
    iso_cts,
    iso_cts_factored,
    split_directions,
)
from lamps_plugins.model_merging._rules.knots import knots, knots_dense
from lamps_plugins.model_merging._rules.linalg import effective_rank, polar, svd
from lamps_plugins.model_merging._rules.linear import average
from lamps_plugins.model_merging._rules.lora import lora_cat, lora_linear, lora_svd
from lamps_plugins.model_merging._rules.lowrank import LowRank, qr_cores, truncate
from lamps_plugins.model_merging._rules.star import rescaled as star_sizes
from lamps_plugins.model_merging._rules.star import star
from lamps_plugins.model_merging._rules.ties import ties_layer
from lamps_plugins.model_merging._rules.tsv import tsv_merge, tsv_merge_factored
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))

from _updates import dense, low_rank, relative

from lamps.errors import ConfigError, ProblemError


@pytest.mark.parametrize("shape", [(12, 10), (10, 12), (9, 9)])
def test_polar_factors_are_orthogonal_and_both_ways_agree(shape: tuple[int, int]) -> None:
    x = dense(1, 4, *shape)[0]
    by_svd, by_products = polar(x), polar(x, how="newton-schulz")
    assert relative(by_products, by_svd) < 1e-5
    small = by_svd.mT @ by_svd if shape[0] >= shape[1] else by_svd @ by_svd.mT
    torch.testing.assert_close(small, torch.eye(min(shape), dtype=x.dtype).expand_as(small))
    # x = P H with H symmetric and positive.
    h = by_svd.mT @ x if shape[0] >= shape[1] else x @ by_svd.mT
    torch.testing.assert_close(h, h.mT)
    assert bool((torch.linalg.eigvalsh(h) > 0).all())


def test_newton_schulz_leaves_bad_matrices_to_the_decomposition() -> None:
    x = dense(1, 3, 8, 8)[0]
    x[1, :, 0] = x[1, :, 1]  # no full rank
    x[2] = 0
    assert relative(polar(x, how="newton-schulz"), polar(x)) < 1e-5
    assert float(polar(x)[2].abs().max()) == 0
    assert float(torch.linalg.matrix_norm(polar(x)[1]) ** 2) == pytest.approx(7)
    with pytest.raises(ConfigError, match="known: svd, newton-schulz"):
        polar(x, how="qr")


@given(st.integers(1, 9), st.integers(1, 9), st.floats(1e-3, 1e3))
def test_effective_rank_counts_equal_directions(n: int, extra: int, size: float) -> None:
    s = torch.cat([torch.full((n,), size), torch.zeros(extra)]).double()
    assert float(effective_rank(s)) == pytest.approx(n)
    assert float(effective_rank(torch.zeros(n))) == 0


def test_effective_rank_of_a_skewed_spectrum() -> None:
    p = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    wanted = float(torch.exp(-(p * p.log()).sum()))
    assert float(effective_rank(5 * p)) == pytest.approx(wanted)


def test_decompositions_of_small_sides_run_in_double() -> None:
    assert svd(torch.randn(2, 512, 600))[1].dtype == torch.float64
    assert svd(torch.randn(1, 513, 514))[1].dtype == torch.float32


@pytest.mark.parametrize(("m", "n"), [(30, 8), (8, 30), (5, 5), (3, 9)])
def test_cores_carry_updates_without_loss(m: int, n: int) -> None:
    low = low_rank((2, 4, 1), m=m, n=n)
    found = qr_cores(low)
    assert found.cores.shape == (3, 2, min(m, 7), min(n, 7))
    for k, core in enumerate(found.cores):
        assert relative(found.expand(core).merged(), low.dense()[k]) < 1e-12
    torch.testing.assert_close(
        found.left.mT @ found.left, torch.eye(min(m, 7)).double().expand(2, -1, -1)
    )


@pytest.mark.parametrize("rank", [1, 3, 6])
def test_truncation_is_the_best_of_its_rank(rank: int) -> None:
    low = low_rank((2, 3, 1))
    found = truncate(low, rank)
    u, s, vh = torch.linalg.svd(low.dense().sum(0), full_matrices=False)
    best = (u[..., :rank] * s[:, None, :rank]) @ vh[:, :rank]
    assert found.ranks == (rank,)
    assert relative(found.merged(), best) < 1e-10
    balanced = found.b[0].mT @ found.b[0], found.a[0] @ found.a[0].mT
    torch.testing.assert_close(*balanced)


def test_truncation_to_more_than_a_side_pads_and_beyond_the_rank_is_refused() -> None:
    low = low_rank((4, 4), m=5, n=20)
    found = truncate(low, 7)
    assert found.ranks == (7,)
    assert relative(found.merged(), low.merged()) < 1e-12
    for rank in (0, 9):
        with pytest.raises(ProblemError, match=f"rank {rank} asked of updates of rank 8"):
            truncate(low, rank)


def test_scales_are_folded_in() -> None:
    low = low_rank((2, 3))
    per_layer = torch.tensor([0.5, 4.0])
    found = LowRank.from_lora(low.b, low.a, [2.0, per_layer])
    assert relative(found.dense()[0], 2 * low.dense()[0]) < 1e-12
    assert relative(found.dense()[1], per_layer.view(2, 1, 1) * low.dense()[1]) < 1e-12
    half = LowRank.from_lora([b.bfloat16() for b in low.b], [a.half() for a in low.a], [1.0, 1.0])
    assert half.b[0].dtype == half.a[0].dtype == torch.float32


Z = torch.zeros


@pytest.mark.parametrize(
    ("b", "a", "message"),
    [
        ((), (), "at least one expert"),
        ((Z(1, 4, 2),), (), "one of each per expert"),
        ((Z(1, 4, 2),), (Z(1, 3, 5),), r"expert 0 has factors \[1, 4, 2\] and \[1, 3, 5\]"),
        ((Z(4, 2),), (Z(2, 5),), r"expected \[L, m, r\]"),
        ((Z(1, 4, 0),), (Z(1, 0, 5),), "r >= 1"),
        ((Z(1, 4, 2), Z(1, 5, 2)), (Z(1, 2, 5), Z(1, 2, 5)), "all need the same modules"),
        ((Z(1, 4, 2), Z(1, 4, 2)), (Z(1, 2, 5), Z(1, 2, 6)), "all need the same modules"),
        ((Z(2, 4, 2), Z(1, 4, 2)), (Z(2, 2, 5), Z(1, 2, 5)), "all need the same modules"),
        ((Z(1, 4, 2) + float("nan"),), (Z(1, 2, 5),), "factors B contain NaN"),
        ((Z(1, 4, 2),), (Z(1, 2, 5) + float("inf"),), "factors A contain NaN"),
        ((Z(1, 4, 2, dtype=torch.int8),), (Z(1, 2, 5),), "floating point"),
    ],
)
def test_factors_that_do_not_fit_are_refused(
    b: tuple[Tensor, ...], a: tuple[Tensor, ...], message: str
) -> None:
    with pytest.raises(ProblemError, match=message):
        LowRank(b, a)


def test_scales_that_do_not_fit_are_refused() -> None:
    low = low_rank((2, 3))
    with pytest.raises(ProblemError, match="1 scales"):
        LowRank.from_lora(low.b, low.a, [1.0])
    with pytest.raises(ProblemError, match="scales have shape"):
        LowRank.from_lora(low.b, low.a, [1.0, torch.ones(3)])


@pytest.mark.parametrize("how", ["svd", "newton-schulz"])
def test_tsv_bases_become_orthogonal(how: str) -> None:
    x = dense(3, 2)
    u, s, vh = svd(x)
    left = polar(torch.cat(u[..., :3].unbind(), -1))
    right = polar(torch.cat(vh[..., :3, :].mT.unbind(), -1))
    wanted = (left * torch.cat(s[..., :3].unbind(), -1).unsqueeze(-2)) @ right.mT
    assert relative(tsv_merge(x, how=how), wanted) < 1e-5


def test_tsv_of_unrelated_updates_is_their_sum() -> None:
    q = torch.linalg.qr(dense(1, 1, 12, 12)[0, 0])[0]
    p = torch.linalg.qr(dense(1, 1, 10, 10, seed=1)[0, 0])[0]
    sizes = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)
    parts = [(q[:, i : i + 3] * sizes) @ p[:, i : i + 3].T for i in (0, 3, 6)]
    x = torch.stack(parts).unsqueeze(1)
    assert relative(tsv_merge(x), x.sum(0)) < 1e-10


def test_tsv_of_equal_adapters_is_the_adapter_within_its_share() -> None:
    one = low_rank((3,))
    low = LowRank(one.b * 4, one.a * 4)
    assert relative(tsv_merge(low.dense()), one.merged()) < 1e-10  # 3 <= 20 // 4
    u, s, vh = svd(one.merged())
    low = LowRank(one.b * 10, one.a * 10)
    cut = (u[..., :2] * s[:, None, :2]) @ vh[:, :2]
    assert relative(tsv_merge_factored(low).merged(), cut) < 1e-10


def test_tsv_refuses_more_experts_than_directions() -> None:
    with pytest.raises(ProblemError, match="11 experts share 10 directions"):
        tsv_merge(dense(11))
    with pytest.raises(ProblemError, match="5 experts share 4 directions"):
        tsv_merge_factored(low_rank((1,) * 5, m=4))


def test_iso_c_flattens_what_is_there() -> None:
    x = dense()
    found = torch.linalg.svdvals(iso_c(x))
    mean = torch.linalg.svdvals(x.sum(0)).mean(-1, keepdim=True)
    torch.testing.assert_close(found, mean.expand_as(found))
    low = low_rank((2, 3))
    sizes = torch.linalg.svdvals(iso_c_factored(low).merged())
    mean = torch.linalg.svdvals(low.dense().sum(0))[:, :5].mean(-1, keepdim=True)
    torch.testing.assert_close(sizes[:, :5], mean.expand(-1, 5))
    assert float(sizes[:, 5:].max()) < 1e-10
    assert relative(flatten(flatten(x[0])), flatten(x[0])) < 1e-10


@given(st.integers(1, 40), st.integers(1, 9), st.floats(0, 1))
def test_iso_cts_uses_every_direction_once(side: int, k: int, common: float) -> None:
    n_common, own = split_directions(side, k, common)
    assert n_common + own * k == side
    assert n_common >= 0
    assert own >= 0


@pytest.mark.parametrize("common", [0.0, 0.3, 0.8, 1.0])
def test_iso_cts_is_isotropic_and_of_full_rank(common: float) -> None:
    s = torch.linalg.svdvals(iso_cts(dense(), common))
    torch.testing.assert_close(s, s[:, :1].expand_as(s))


def test_iso_cts_with_common_directions_alone_is_iso_c() -> None:
    assert relative(iso_cts(dense(), 1.0), iso_c(dense())) < 1e-10
    low = low_rank((2, 3))
    assert relative(iso_cts_factored(low, 1.0).merged(), iso_c_factored(low).merged()) < 1e-10
    with pytest.raises(ConfigError, match=r"common is 1\.5"):
        iso_cts(dense(), 1.5)


def test_iso_cts_does_not_blow_up_rounding_where_experts_are_equal() -> None:
    x = dense(1, m=8, n=8).expand(2, -1, -1, -1)
    # Four common directions, and the same two from either expert.
    assert int(torch.linalg.matrix_rank(iso_cts(x, 0.5), rtol=1e-6)[0]) == 6
    one = low_rank((4,))
    low = LowRank(one.b * 2, one.a * 2)
    found = iso_cts_factored(low, 0.5)
    assert int(torch.linalg.matrix_rank(found.merged(), rtol=1e-6)[0]) == 4


def test_star_sizes_by_hand() -> None:
    s = torch.tensor([[4.0, 3.0, 2.0, 1.0]], dtype=torch.float64)
    assert star_sizes(s, 0.4).tolist() == [[10, 0, 0, 0]]
    torch.testing.assert_close(
        star_sizes(s, 0.5)[0, :3], torch.tensor([40 / 7, 30 / 7, 0]).double()
    )
    assert star_sizes(s, 0.7)[0].count_nonzero() == 2
    assert star_sizes(s, 1.0).tolist() == s.tolist()
    assert star_sizes(0 * s, 0.4).tolist() == [[0, 0, 0, 0]]


def test_star_keeps_each_nuclear_norm() -> None:
    x = dense(1)
    kept = torch.linalg.svdvals(star(x, 0.4))
    torch.testing.assert_close(kept.sum(-1), torch.linalg.svdvals(x[0]).sum(-1))
    assert bool(((kept > 1e-9).sum(-1) < 10).all())
    for eta in (0.0, 1.1):
        with pytest.raises(ConfigError, match="eta is"):
            star(x, eta)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fast_knots_equals_the_published_form(dtype: torch.dtype) -> None:
    low = low_rank((3, 4, 2, 3), m=40, n=36, dtype=dtype)
    for rule in (average, ties_layer, lambda v: ties_layer(v, 0.5, combine="sum")):
        found = knots(low, rule).merged()
        assert relative(found, knots_dense(low.dense(), rule)) < (
            1e-4 if dtype == torch.float32 else 1e-9
        )
    assert relative(knots(low, average).merged(), low.dense().mean(0)) < 1e-5


def test_knots_blocks_span_real_directions_alone() -> None:
    seen: list[tuple[int, ...]] = []

    def watch(v: Tensor) -> Tensor:
        seen.append(tuple(v.shape))
        return v.mean(0)

    one = low_rank((3,))
    twice = LowRank(one.b * 2, one.a * 2)  # joint rank 3 of 6
    knots(twice, watch)
    other = low_rank((3, 3))
    mixed = LowRank(
        tuple(torch.cat([x, y]) for x, y in zip(twice.b, other.b, strict=True)),
        tuple(torch.cat([x, y]) for x, y in zip(twice.a, other.a, strict=True)),
    )
    found = knots(mixed, watch)
    assert seen == [(2, 2, 3, 20), (2, 2, 3, 20), (2, 2, 6, 20)]
    assert relative(found.merged(), mixed.dense().mean(0)) < 1e-10


@pytest.mark.parametrize("bases", ["svd", "qr"])
@pytest.mark.parametrize(("m", "n"), [(40, 30), (5, 30), (40, 5)])
def test_core_space_is_lossless(bases: str, m: int, n: int) -> None:
    low = low_rank((3, 4), m=m, n=n)
    found = encode(low, bases=bases)
    for k in range(2):
        assert relative(found.expand(found.cores[k]).merged(), low.dense()[k]) < 1e-12
    assert relative(core_space(low, average, bases=bases).merged(), low.dense().mean(0)) < 1e-12
    cut = core_space(low, average, bases=bases, rank=3)
    assert cut.ranks == (3,)
    assert relative(cut.merged(), lora_svd(low, 3, [0.5, 0.5]).merged()) < 1e-10
    with pytest.raises(ProblemError, match="rank 8 asked of updates of rank 7"):
        core_space(low, average, rank=8)
    with pytest.raises(ConfigError, match="known: svd, qr"):
        encode(low, bases="lu")


def test_a_rule_that_changes_shapes_is_refused() -> None:
    with pytest.raises(ProblemError, match="expected the shape of one expert"):
        core_space(low_rank(), lambda x: x)


def test_cat_and_svd_are_exact_and_linear_is_not() -> None:
    low = low_rank((3, 3), m=30, n=30)
    weights = [0.7, -0.4]
    wanted = 0.7 * low.dense()[0] - 0.4 * low.dense()[1]
    assert relative(lora_cat(low, weights).merged(), wanted) < 1e-12
    assert relative(lora_svd(low, None, weights).merged(), wanted) < 1e-12
    assert relative(lora_linear(low, weights).merged(), wanted) > 0.5
    with pytest.raises(ProblemError, match="adding their factors needs equal ones"):
        lora_linear(low_rank((2, 3)))
    with pytest.raises(ConfigError, match="expected 2 finite numbers"):
        lora_cat(low, [1.0])
