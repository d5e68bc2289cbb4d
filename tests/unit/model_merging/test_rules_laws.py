"""Laws that every merging rule keeps: one expert, equal experts, order, zero, batches, scaling."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from lamps_plugins.model_merging._rules.circumerge import circumerge
from lamps_plugins.model_merging._rules.core_space import core_space
from lamps_plugins.model_merging._rules.dare import dare, mask_seeds
from lamps_plugins.model_merging._rules.iso import iso_c, iso_c_factored, iso_cts, iso_cts_factored
from lamps_plugins.model_merging._rules.knots import knots, knots_dense
from lamps_plugins.model_merging._rules.linear import average, task_arithmetic
from lamps_plugins.model_merging._rules.lora import lora_cat, lora_linear, lora_svd
from lamps_plugins.model_merging._rules.lowrank import LowRank
from lamps_plugins.model_merging._rules.orthomerge import decouple, recouple
from lamps_plugins.model_merging._rules.star import star, star_factored
from lamps_plugins.model_merging._rules.svc import svc, svc_linear
from lamps_plugins.model_merging._rules.ties import ties_layer, ties_model
from lamps_plugins.model_merging._rules.tsv import tsv_merge, tsv_merge_factored
from lamps_plugins.model_merging._rules.weighted import fisher_merge, regmean
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))

from _updates import dense, layer, low_rank, relative, reordered, rescaled

from lamps.errors import ProblemError

Dense = Callable[[Tensor], Tensor]
Factored = Callable[[LowRank], Tensor]


def with_fisher(x: Tensor) -> Tensor:
    return fisher_merge(x, 1 + x.float().square())  # weights go with the expert, not its place


def with_grams(x: Tensor) -> Tensor:
    y = x.double()
    return regmean(x, y.mT @ y + torch.eye(x.shape[-1]))


def with_masks(x: Tensor) -> Tensor:
    # Seeds go with what is in the update, as they go with names in a real merge.
    seeds = np.array([[int(e.double().square().sum() * 1e3) for e in expert] for expert in x])
    return task_arithmetic(dare(x, 0.5, seeds), 1.0)


def calibrated(x: Tensor) -> Tensor:
    return svc(x, average(x), alpha=0.5).update


def rotated(x: Tensor) -> Tensor:
    # The same base for each layer, however layers are batched.
    base = dense(1, 1, *x.shape[2:], seed=99)[0].expand(x.shape[1], -1, -1)
    base = base if x.dtype == torch.float64 else base.float()
    return recouple(decouple(base, x, variant="G"), average)


DENSE: dict[str, Dense] = {
    "average": average,
    "task_arithmetic": task_arithmetic,
    "ties_layer": ties_layer,
    "ties_layer_sum": lambda x: ties_layer(x, 0.5, combine="sum", scale=0.3),
    "dare": with_masks,
    "tsv": tsv_merge,
    "iso_c": iso_c,
    "iso_cts": iso_cts,
    "knots_dense": lambda x: knots_dense(x, average),
    "star": star,
    "fisher": with_fisher,
    "regmean": with_grams,
    "svc": calibrated,
    "orthomerge": rotated,
}

FACTORED: dict[str, Factored] = {
    "tsv": lambda x: tsv_merge_factored(x).merged(),
    "iso_c": lambda x: iso_c_factored(x).merged(),
    "iso_cts": lambda x: iso_cts_factored(x).merged(),
    "star": lambda x: star_factored(x).merged(),
    "svc": lambda x: svc_linear(x, alpha=0.5).update,
    "knots_average": lambda x: knots(x, average).merged(),
    "knots_ties": lambda x: knots(x, ties_layer).merged(),
    "core_svd_average": lambda x: core_space(x, average).merged(),
    "core_svd_ties": lambda x: core_space(x, ties_layer).merged(),
    "core_qr_average": lambda x: core_space(x, average, bases="qr").merged(),
    "core_qr_ties": lambda x: core_space(x, ties_layer, bases="qr").merged(),
    "cat": lambda x: lora_cat(x).merged(),
    "svd": lambda x: lora_svd(x).merged(),
    "svd_2": lambda x: lora_svd(x, 2).merged(),
    "circu_average": lambda x: circumerge(x, average).merged(),
    "circu_ties": lambda x: circumerge(x, ties_layer).merged(),
    "circu_tsv": lambda x: circumerge(x, tsv_merge).merged(),
    "circu_orthonormal_tsv": lambda x: circumerge(x, tsv_merge, orthonormal=True).merged(),
    "circu_importance": lambda x: circumerge(x, ties_layer, sampling="importance").merged(),
    "circu_lossy": lambda x: circumerge(x, ties_layer, oversampling=0.5).merged(),
    "circu_gaussian": lambda x: circumerge(x, ties_layer, transform="gaussian").merged(),
    "circu_input": lambda x: circumerge(x, ties_layer, sides="input").merged(),
}

# Elementwise rules see the basis, and these bases depend on more than the updates themselves.
BASIS_KNOWS_ORDER = {"core_qr_ties"}
BASIS_KNOWS_SCALE = {"core_svd_ties"}


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("seed", [0, 1])
def test_order_of_experts_changes_nothing(name: str, seed: int) -> None:
    x = dense(seed=seed)
    assert relative(DENSE[name](x[[2, 0, 1]]), DENSE[name](x)) < 1e-9


@pytest.mark.parametrize("name", DENSE)
def test_a_batch_equals_its_layers(name: str) -> None:
    x = dense(layers=3)
    one_by_one = torch.cat([DENSE[name](x[:, i : i + 1]) for i in range(3)])
    assert relative(DENSE[name](x), one_by_one) < 1e-9


@pytest.mark.parametrize("name", DENSE)
def test_zero_updates_give_zero(name: str) -> None:
    assert float(DENSE[name](torch.zeros(3, 2, 12, 10)).abs().amax()) < 1e-6


@pytest.mark.parametrize("name", DENSE)
def test_single_precision_is_close_to_double(name: str) -> None:
    x = dense(4, 2, 12, 10, seed=3)
    found = DENSE[name](x.float())
    assert found.dtype == torch.float32
    # Masks are seeded by the numbers here, so they differ between precisions.
    if name != "dare":
        assert relative(found, DENSE[name](x)) < 2e-4


@pytest.mark.parametrize("name", DENSE)
def test_half_precision_is_computed_in_single(name: str) -> None:
    x = dense(seed=4).half()
    torch.testing.assert_close(DENSE[name](x), DENSE[name](x.float()))


@pytest.mark.parametrize("name", DENSE)
def test_inputs_are_left_alone_and_runs_repeat(name: str) -> None:
    x = dense()
    before = x.clone()
    first = DENSE[name](x)
    assert torch.equal(x, before)
    assert torch.equal(DENSE[name](x), first)


@pytest.mark.parametrize("name", sorted(set(DENSE) - {"dare"}))  # its seeds come of the numbers
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused(name: str, bad: float) -> None:
    x = dense()
    x[1, 0, 0, 0] = bad
    with pytest.raises(ProblemError, match="NaN or infinity"):
        DENSE[name](x)


@pytest.mark.parametrize(
    "rule",
    [
        average,
        lambda x: task_arithmetic(x, 1.0),
        lambda x: ties_layer(x, 1.0),
        lambda x: ties_model([x], 1.0)[0],
        lambda x: dare(x, 0.0, np.zeros((1, 2), dtype=np.int64))[0],
        tsv_merge,
        lambda x: knots_dense(x, average),
        lambda x: star(x, 1.0),
        with_fisher,
        with_grams,
    ],
)
def test_one_expert_comes_back(rule: Dense) -> None:
    x = dense(1)
    assert relative(rule(x), x[0]) < 1e-9


@pytest.mark.parametrize(
    "rule",
    [
        average,
        lambda x: ties_layer(x, 1.0),
        lambda x: ties_model([x], 1.0)[0],
        lambda x: knots_dense(x, average),
        with_fisher,
        with_grams,
        lambda x: svc(x, x.sum(0), alpha=1.0).update,
    ],
)
def test_equal_experts_come_back(rule: Dense) -> None:
    x = dense(1).expand(4, -1, -1, -1).contiguous()
    assert relative(rule(x), x[0]) < 1e-9


@pytest.mark.parametrize("name", sorted(FACTORED))
@pytest.mark.parametrize("seed", [0, 1])
def test_order_of_adapters_changes_nothing(name: str, seed: int) -> None:
    low = low_rank(seed=seed)
    gap = relative(FACTORED[name](reordered(low, (2, 0, 1))), FACTORED[name](low))
    assert (gap > 1e-3) if name in BASIS_KNOWS_ORDER else (gap < 1e-8)


@pytest.mark.parametrize("name", sorted(FACTORED))
def test_splitting_an_adapter_otherwise_changes_nothing(name: str) -> None:
    low = low_rank()
    gap = relative(FACTORED[name](rescaled(low, (3.0, 0.25, -2.0))), FACTORED[name](low))
    assert (gap > 1e-3) if name in BASIS_KNOWS_SCALE else (gap < 1e-8)


@pytest.mark.parametrize("name", sorted(FACTORED))
def test_a_batch_of_adapters_equals_its_layers(name: str) -> None:
    low = low_rank(layers=3)
    one_by_one = torch.cat([FACTORED[name](layer(low, i)) for i in range(3)])
    assert relative(FACTORED[name](low), one_by_one) < 1e-8


@pytest.mark.parametrize("name", sorted(FACTORED))
def test_zero_adapters_give_zero(name: str) -> None:
    low = low_rank()
    low = LowRank(tuple(torch.zeros_like(b) for b in low.b), low.a)
    assert float(FACTORED[name](low).abs().amax()) < 1e-9


@pytest.mark.parametrize("name", sorted(FACTORED))
def test_adapters_in_single_precision_are_close_to_double(name: str) -> None:
    # Equal ranks keep the spectra apart; what is compared is a matrix, never its factors.
    low = low_rank((3, 3), seed=5)
    single = LowRank(tuple(b.float() for b in low.b), tuple(a.float() for a in low.a))
    found = FACTORED[name](single)
    assert found.dtype == torch.float32
    assert relative(found, FACTORED[name](low)) < 1e-3


@pytest.mark.parametrize(
    ("factored", "plain"),
    [
        (lambda x: tsv_merge_factored(x).merged(), tsv_merge),
        (lambda x: iso_c_factored(x).merged(), iso_c),
        (lambda x: star_factored(x).merged(), star),
        (lambda x: svc_linear(x, alpha=0.5).update, lambda x: svc(x, x.sum(0), alpha=0.5).update),
        (lambda x: knots(x, average).merged(), average),
        (lambda x: knots(x, ties_layer).merged(), lambda x: knots_dense(x, ties_layer)),
        (lambda x: knots(x, tsv_merge).merged(), lambda x: knots_dense(x, tsv_merge)),
        (lambda x: core_space(x, average).merged(), average),
        (lambda x: core_space(x, tsv_merge).merged(), tsv_merge),
        (lambda x: core_space(x, iso_c, bases="qr").merged(), iso_c),
        (lambda x: lora_cat(x).merged(), lambda x: x.sum(0)),
        (lambda x: lora_svd(x).merged(), lambda x: x.sum(0)),
    ],
)
def test_factors_give_what_dense_updates_give(factored: Factored, plain: Dense) -> None:
    # Equal ranks: of R = 6 core directions TSV-Merge then keeps as many as an adapter has.
    low = low_rank((2, 2, 2))
    assert relative(factored(low), plain(low.dense())) < 1e-9


@pytest.mark.parametrize(
    "rule",
    [
        lambda x: lora_cat(x, [0.25] * 4).merged(),
        lambda x: lora_svd(x, 3, [0.25] * 4).merged(),
        lambda x: knots(x, average).merged(),
        lambda x: core_space(x, average).merged(),
        lambda x: core_space(x, average, bases="qr").merged(),
        lambda x: tsv_merge_factored(x).merged(),
        lambda x: star_factored(x, 1.0).merged(),
        lambda x: svc_linear(x, alpha=1.0).update,
        *(
            lambda x, s=settings: circumerge(x, average, **s).merged()
            for settings in (
                {"oversampling": 1.25},
                {"oversampling": 4.0},
                {"sampling": "importance"},
                {"sides": "input"},
                {"orthonormal": True},
                {"transform": "gaussian"},
                {"rank": 3},
            )
        ),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_adapters_come_back(rule: Factored, dtype: torch.dtype) -> None:
    one = low_rank((3,), dtype=dtype)
    low = LowRank(one.b * 4, one.a * 4)
    assert relative(rule(low), one.merged()) < (1e-9 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize(
    "rule",
    [
        lambda x: lora_cat(x).merged(),
        lambda x: lora_svd(x).merged(),
        lambda x: lora_linear(x).merged(),
        lambda x: knots(x, average).merged(),
        lambda x: core_space(x, average).merged(),
        lambda x: tsv_merge_factored(x).merged(),
        lambda x: star_factored(x, 1.0).merged(),
        lambda x: circumerge(x, average).merged(),
        lambda x: circumerge(x, lambda y: ties_layer(y, 1.0)).merged(),
        lambda x: circumerge(x, tsv_merge, orthonormal=True).merged(),
    ],
)
def test_one_adapter_comes_back(rule: Factored) -> None:
    low = low_rank((3,))
    assert relative(rule(low), low.merged()) < 1e-9


def test_mask_seeds_belong_to_names() -> None:
    first = mask_seeds(0, ["a", "b"], ["x", "y", "z"])
    assert np.array_equal(mask_seeds(0, ["b", "a"], ["x", "y", "z"]), first[::-1])
    assert np.array_equal(mask_seeds(0, ["a", "b"], ["z"]), first[:, 2:])
    assert len(np.unique(np.append(first, mask_seeds(1, ["a", "b"], ["x", "y", "z"])))) == 12
