"""CircuMerge: the transform, exactness of linear rules, sampling, ranks, conditions, refusals."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lamps_plugins.model_merging._rules.circulant import (
    Circulant,
    gaussian_sketch,
    importance_sketch,
    uniform_sketch,
)
from lamps_plugins.model_merging._rules.circumerge import (
    choose_oversampling,
    circumerge,
    condition,
    rank_ratio,
    reconstruction_error,
    sketch,
    sketch_rank,
    solve,
)
from lamps_plugins.model_merging._rules.iso import iso_c
from lamps_plugins.model_merging._rules.linear import average, task_arithmetic
from lamps_plugins.model_merging._rules.lora import lora_svd
from lamps_plugins.model_merging._rules.lowrank import LowRank
from lamps_plugins.model_merging._rules.svc import svc
from lamps_plugins.model_merging._rules.ties import ties_layer
from lamps_plugins.model_merging._rules.tsv import tsv_merge
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))

from _updates import dense, layer, low_rank, relative

from lamps.errors import ConfigError, ProblemError

ONE = torch.zeros(1)
RULES = {
    "ta": lambda x: task_arithmetic(x, 1.0),
    "ties": lambda x: ties_layer(x, 1.0),
    "tsv": tsv_merge,
    "svc": lambda x: svc(x, x.sum(0), alpha=1.0).update,
}


@given(st.integers(1, 300), st.integers(0, 5))
@settings(max_examples=60)
def test_the_transform_is_orthogonal_at_any_length(n: int, seed: int) -> None:
    for like, bound in ((ONE, 1e-5), (ONE.double(), 1e-12)):
        phi = Circulant.draw(n, seed, like)
        matrix = phi.apply(torch.eye(n, dtype=like.dtype)).T
        assert float((matrix @ matrix.T - torch.eye(n)).abs().max()) < bound
        x = torch.arange(n, dtype=like.dtype) + 1
        torch.testing.assert_close(phi.inverse(phi.apply(x)), x, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(phi.apply(x), matrix @ x, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("n", [6, 7])
def test_the_transform_is_a_circulant_times_signs(n: int) -> None:
    phi = Circulant.draw(n, 0, ONE.double())
    matrix = phi.apply(torch.eye(n).double()).T / phi.signs
    for i in range(n):
        torch.testing.assert_close(matrix[i].roll(1), matrix[(i + 1) % n])


def test_transforms_belong_to_width_and_seed() -> None:
    a, b = Circulant.draw(64, 0, ONE), Circulant.draw(64, 0, ONE)
    assert torch.equal(a.spectrum, b.spectrum)
    assert not torch.equal(a.spectrum, Circulant.draw(64, 1, ONE).spectrum)
    with pytest.raises(ConfigError, match="expected seed >= 0"):
        Circulant.draw(64, -1, ONE)


def test_sketches_keep_lengths_on_average() -> None:
    x = dense(1, 1, 4, 256)[0]
    for make in (
        lambda s: uniform_sketch(256, 64, s, x),
        lambda s: importance_sketch(x, 64, s),
        lambda s: gaussian_sketch(256, 64, s, x),
    ):
        squares = torch.stack([make(s)(x).square().sum(-1) for s in range(60)]).mean(0)
        torch.testing.assert_close(squares, x.square().sum(-1), rtol=0.1, atol=0)


def test_whole_samples_are_the_transform() -> None:
    x = dense(1, 1, 4, 33)[0]
    found = uniform_sketch(33, 33, 0, x)
    torch.testing.assert_close(found(x), Circulant.draw(33, 0, x).apply(x))


def test_importance_prefers_entries_with_weight() -> None:
    # Inverse of the transform puts all weight on the first half of the transformed entries.
    n = 128
    y = torch.zeros(1, 3, n, dtype=torch.float64)
    y[..., : n // 2] = dense(1, 1, 3, n // 2)[0]
    x = Circulant.draw(n, 4, y).inverse(y)
    chosen = importance_sketch(x, 40, 4).rows
    assert float((chosen < n // 2).double().mean()) > 0.6


@pytest.mark.parametrize(
    "options",
    [
        {"oversampling": 1.25},
        {"oversampling": 2.0},
        {"oversampling": 4.0},
        {"sampling": "importance"},
        {"sides": "input"},
        {"sides": "input", "sampling": "importance"},
        {"orthonormal": True},
        {"orthonormal": True, "oversampling": 1.25},
        {"transform": "gaussian"},
    ],
)
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("ranks", "m", "n"), [((8,) * 8, 384, 385), ((16, 2, 5), 100, 333), ((3, 3), 5, 40)]
)
def test_linear_rules_are_exact(
    options: dict[str, float], seed: int, ranks: tuple[int, ...], m: int, n: int
) -> None:
    low = low_rank(ranks, 2, m, n, dtype=torch.float32)
    wanted = low.dense().double().sum(0)
    found = circumerge(low, lambda x: task_arithmetic(x, 1.0), seed=seed, **options)  # type: ignore[arg-type]
    assert relative(found.merged(), wanted) < 1e-5
    assert found.ranks == (sum(ranks),)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("orthonormal", [False, True])
def test_equal_adapters_of_unequal_scale_split(name: str, orthonormal: bool) -> None:
    """Sketches of equal updates are equal, so each rule sees what it would see of the weights."""
    one = low_rank((3,))
    low = LowRank((one.b[0], 2 * one.b[0], 4 * one.b[0]), (one.a[0], one.a[0] / 2, one.a[0] / 4))
    found = circumerge(low, RULES[name], orthonormal=orthonormal).merged()
    factor = 3 if name == "ta" else 1
    assert relative(found, factor * one.merged()) < 1e-8


def test_rank_of_the_result() -> None:
    low = low_rank((3, 2, 4))
    whole = circumerge(low, average)
    cut = circumerge(low, average, rank=3)
    assert (whole.ranks, cut.ranks) == ((9,), (3,))
    assert relative(cut.merged(), lora_svd(whole, 3).merged()) < 1e-9
    assert relative(cut.merged(), lora_svd(low, 3, [1 / 3] * 3).merged()) < 1e-8
    lossless = circumerge(low, average, rank=9)
    assert relative(lossless.merged(), whole.merged()) < 1e-9


def test_less_than_the_rank_loses_gracefully() -> None:
    low = low_rank((4, 4, 4), m=64, n=48)
    wanted = low.dense().mean(0)
    gaps = [
        relative(circumerge(low, average, oversampling=o).merged(), wanted)
        for o in (0.25, 0.5, 0.75, 1.25)
    ]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-9
    assert all(0.05 < g <= 1.5 for g in gaps[:-1])
    errors = reconstruction_error(sketch(low, oversampling=0.5))
    assert bool((errors > 0.05).all())


def test_sketches_show_how_updates_relate() -> None:
    low = low_rank((4, 4), m=512, n=512)
    low = LowRank((low.b[0], low.b[0] + 0.3 * low.b[1]), (low.a[0], low.a[0]))
    small, big = sketch(low, oversampling=16.0).updates, low.dense()
    inner = [(x[0] * x[1]).sum((-2, -1)) for x in (small, big)]
    torch.testing.assert_close(*inner, rtol=0.15, atol=0)


@pytest.mark.parametrize("orthonormal", [False, True])
def test_each_update_survives_the_way_there_and_back(orthonormal: bool) -> None:
    low = low_rank((8,) * 4, m=128, n=96, dtype=torch.float32)
    errors = reconstruction_error(sketch(low, orthonormal=orthonormal))
    assert errors.shape == (4, 2)
    assert float(errors.max()) < 1e-5
    zero = LowRank((0 * low.b[0], *low.b[1:]), low.a)
    assert reconstruction_error(sketch(zero))[0].tolist() == [0, 0]


def test_one_sketch_serves_every_rule() -> None:
    low = low_rank()
    found = sketch(low)
    for rule in RULES.values():
        again = circumerge(low, rule).merged()
        assert torch.equal(found.rebuild(rule(found.updates)).merged(), again)


@pytest.mark.parametrize("options", [{}, {"sampling": "importance"}, {"orthonormal": True}])
def test_layers_do_not_see_each_other(options: dict[str, str]) -> None:
    low = low_rank(layers=3)
    whole = circumerge(low, ties_layer, **options).merged()  # type: ignore[arg-type]
    for i in range(3):
        one = circumerge(layer(low, i), ties_layer, **options).merged()  # type: ignore[arg-type]
        assert relative(whole[i : i + 1], one) < 1e-9


@pytest.mark.parametrize(("oversampling", "wanted"), [(1.25, 18.0), (2.0, 5.8), (4.0, 3.0)])
def test_condition_of_a_sketch_follows_its_size(oversampling: float, wanted: float) -> None:
    low = low_rank((16,) * 6, 1, 1024, 1024)
    orthonormal = torch.linalg.qr(torch.cat(low.b, 2))[0]
    rows = orthonormal.mT.contiguous()
    found = condition(uniform_sketch(1024, math.ceil(oversampling * 96), 0, rows)(rows).mT)
    assert wanted / 2 < float(found) < wanted * 2


def test_square_samples_that_cannot_be_inverted_are_refused() -> None:
    low = low_rank((2, 2), 1, 32, 32)
    close = LowRank((low.b[0], low.b[0] + 1e-5 * low.b[1]), low.a)
    with pytest.raises(ConfigError, match=r"use 1\.25 or more"):
        circumerge(close, average, oversampling=1.0)
    fine = circumerge(low, average, oversampling=1.0).merged()
    assert relative(fine, low.dense().mean(0)) < 1e-8


def test_solutions_are_exact_shortest_and_survive_dependent_columns() -> None:
    x, z = dense(1, 2, 9, 4)[0], dense(1, 2, 4, 3, seed=1)[0]
    torch.testing.assert_close(solve(x, x @ z), z)
    twice = torch.cat([x, x], 2)
    torch.testing.assert_close(solve(twice, x @ z), torch.cat([z, z], 1) / 2)
    wide = dense(1, 2, 3, 6)[0]
    y = dense(1, 2, 3, 2)[0]
    torch.testing.assert_close(wide @ solve(wide, y), y)
    assert float(solve(0 * x, x @ z).abs().max()) == 0


def test_ranks_of_sketches() -> None:
    low = low_rank((3, 3), 2, 64, 64)
    found = sketch(low, oversampling=4.0)
    assert bool(((sketch_rank(found) > 3) & (sketch_rank(found) <= 6)).all())
    assert bool(((rank_ratio(found) > 0) & (rank_ratio(found) <= 1)).all())
    one = low_rank((1,))
    torch.testing.assert_close(sketch_rank(sketch(one)), torch.ones(2).double())


def test_oversampling_is_chosen_by_effective_rank() -> None:
    low = low_rank((8,) * 4, 2, 256, 256)
    chosen = choose_oversampling(low)
    assert chosen in (1.25, 2.0, 4.0)
    full = sketch_rank(sketch(low, oversampling=4.0))
    assert bool((sketch_rank(sketch(low, oversampling=chosen)) >= 0.95 * full).all())
    assert choose_oversampling(low, share=1e-3) == 1.25
    assert choose_oversampling(low, share=10.0) == 4.0


def test_a_flat_spectrum_rule_sees_real_directions_alone() -> None:
    low = low_rank((2, 3), 1, 40, 40)
    found = circumerge(low, iso_c, oversampling=4.0).merged()
    assert int(torch.linalg.matrix_rank(found, rtol=1e-6)) == 5


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"oversampling": 0.1}, ConfigError, "leaves no entry"),
        ({"oversampling": 0.0}, ConfigError, "oversampling is 0"),
        ({"oversampling": float("nan")}, ConfigError, "oversampling is nan"),
        ({"sampling": "all"}, ConfigError, "known: uniform, importance"),
        ({"sides": "output"}, ConfigError, "known: both, input"),
        ({"transform": "hadamard"}, ConfigError, "known: circulant, gaussian"),
        (
            {"transform": "gaussian", "sampling": "importance"},
            ConfigError,
            "needs the circulant transform",
        ),
        ({"seed": -1}, ConfigError, "seed -1"),
        ({"rank": 7}, ProblemError, "rank 7 asked of updates of rank 6"),
        ({"rank": 0}, ProblemError, "rank 0 asked"),
    ],
)
def test_refusals(options: dict[str, float], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        circumerge(low_rank(), average, **options)  # type: ignore[arg-type]


def test_a_rule_must_give_one_sketch_back() -> None:
    def wrong(x: Tensor) -> Tensor:
        return x

    with pytest.raises(ProblemError, match="expected the shape of one expert"):
        circumerge(low_rank(), wrong)


@pytest.mark.parametrize("oversampling", [0.5, 1.25, 2.0])
@pytest.mark.parametrize("orthonormal", [False, True])
@pytest.mark.parametrize(("ranks", "m", "n"), [((8,) * 8, 300, 200), ((3, 4), 5, 40)])
def test_cutting_the_rank_is_the_best_approximation(
    oversampling: float, orthonormal: bool, ranks: tuple[int, ...], m: int, n: int
) -> None:
    for dtype, bound in ((torch.float32, 1e-4), (torch.float64, 1e-9)):
        low = low_rank(ranks, 2, m, n, dtype=dtype)
        found = sketch(low, oversampling=oversampling, orthonormal=orthonormal)
        whole = found.rebuild(found.updates.mean(0))
        for rank in (2, sum(ranks)):
            cut = found.rebuild(found.updates.mean(0), rank)
            assert cut.ranks == (rank,)
            assert relative(cut.merged(), lora_svd(whole, rank).merged()) < bound
        torch.testing.assert_close(
            cut.b[0].mT @ cut.b[0], cut.a[0] @ cut.a[0].mT, rtol=1e-3, atol=1e-2
        )


def test_cutting_the_rank_of_dependent_adapters() -> None:
    one = low_rank((3,))
    low = LowRank(one.b * 3, one.a * 3)
    for options in ({}, {"orthonormal": True}):
        found = circumerge(low, average, rank=5, **options)
        assert found.ranks == (5,)
        assert relative(found.merged(), one.merged()) < 1e-8
