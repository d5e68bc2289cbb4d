"""Methods that merge updates alone, end to end: what they return in cases that are known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lamps_plugins.model_merging._children import class_of
from lamps_plugins.model_merging._problem import FAMILY, MergeProblem
from lamps_plugins.model_merging._rules.ties import ties_layer, ties_model
from lamps_plugins.model_merging._views import with_updates

from lamps.errors import ProblemError

from ._methods import close, logits, merged, of_experts, rng

Toy = Callable[[str], MergeProblem]

SCALED = (
    "task-arithmetic", "ties", "dare", "tsv-m", "iso-c", "iso-cts", "star", "knots", "svc",
    "core-space", "circumerge", "lora-cat", "lora-svd",
)  # fmt: skip

LOSSLESS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("average", {}),
    ("task-arithmetic", {"scale": 1.0}),
    ("ties", {"keep": 1.0}),
    ("ties", {"keep": 1.0, "trim": "layer"}),
    ("dare", {"scale": 1.0, "drop": 0.0}),
    ("tsv-m", {}),
    ("star", {"eta": 1.0}),
    ("knots", {"rule": "average"}),
    ("fisher-merge", {"texts": 16}),
    ("regmean", {}),
    ("core-space", {"rule": "average", "bases": "svd"}),
    ("core-space", {"rule": "ties", "keep": 1.0}),
    ("circumerge", {"rule": "average"}),
    ("circumerge", {"rule": "ties", "keep": 1.0, "sides": "input"}),
    ("circumerge", {"rule": "average", "transform": "gaussian"}),
    ("lora-cat", {"scale": 1.0}),
    ("lora-svd", {"scale": 1.0, "rank": "joint"}),
)


def kind_for(name: str) -> str:
    return class_of(name).needs or "full"


@pytest.mark.parametrize("name", SCALED)
def test_scale_zero_is_the_base(toy: Toy, name: str) -> None:
    problem = toy(kind_for(name))
    found = logits(problem, merged(problem, name, scale=0.0))
    base = problem.logits(problem.network(problem.tasks[0], {}), problem.tasks[0], "val", 24)
    np.testing.assert_array_equal(found, base)


@pytest.mark.parametrize(("name", "params"), LOSSLESS)
def test_one_expert_comes_back(toy: Toy, name: str, params: dict[str, Any]) -> None:
    whole = toy(kind_for(name))
    problem = of_experts(whole, [("dish", 0)])
    expert = problem.logits(problem.expert_network("dish"), "dish", "val", 24)
    found = logits(problem, merged(problem, name, **params))
    np.testing.assert_allclose(found, expert, atol=2e-4)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("average", {}),
        ("ties", {"keep": 1.0}),
        ("knots", {"rule": "average"}),
        ("fisher-merge", {"texts": 16}),
        ("core-space", {"rule": "average"}),
        ("circumerge", {"rule": "average"}),
        ("svc", {"child_params": '{"scale": 1.0}', "alpha": 1.0}),
    ],
)
def test_identical_experts_give_the_expert(toy: Toy, name: str, params: dict[str, Any]) -> None:
    problem = of_experts(toy(kind_for(name)), [("one", 1), ("two", 1)])
    expert = problem.logits(problem.expert_network("one"), "one", "val", 24)
    made = merged(problem, name, **params)
    if name == "svc":  # vectors pass through the child, which sums them
        for group in problem.groups:
            update = torch.stack([made.updates_[n] for n in group.names])
            torch.testing.assert_close(update, problem.deltas(group)[0], atol=1e-5, rtol=1e-4)
    else:
        np.testing.assert_allclose(logits(problem, made), expert, atol=2e-4)


@pytest.mark.parametrize("name", [*SCALED, "average"])
def test_the_order_of_experts_changes_nothing(toy: Toy, name: str) -> None:
    params = {"bases": "svd"} if name == "core-space" else {}  # of QR the basis has an order
    whole = toy(kind_for(name))
    order = [("dish", 0), ("game", 1), ("trip", 2)]
    a, b = of_experts(whole, order), of_experts(whole, order[::-1])
    close(merged(a, name, **params), merged(b, name, **params), atol=1e-4)


@pytest.mark.parametrize(
    "name", ["ties", "tsv-m", "iso-c", "iso-cts", "star", "knots", "svc", "dare", "orthomerge-ord"]
)
def test_zero_updates_give_zero(toy: Toy, name: str) -> None:
    problem = toy("full")
    still = with_updates(problem, lambda g: torch.zeros(3, len(g.names), *g.shape), "zero")
    made = merged(still, name)
    for group in problem.groups:
        assert all(not bool(made.updates_[n].abs().amax() > 1e-6) for n in group.names)


def test_ties_trims_over_all_matrices(toy: Toy) -> None:
    problem = toy("full")
    wanted = ties_model([problem.deltas(g) for g in problem.groups], 0.2)
    found = merged(problem, "ties")
    for group, update in zip(problem.groups, wanted, strict=True):
        assert torch.equal(torch.stack([found.updates_[n] for n in group.names]), update)
    layer = merged(problem, "ties", trim="layer")
    group = problem.groups[-1]
    update = torch.stack([layer.updates_[n] for n in group.names])
    assert torch.equal(update, ties_layer(problem.deltas(group), 0.2))
    assert not torch.equal(update, wanted[-1])


def test_the_first_landmark_has_the_thresholds_of_the_whole_model(toy: Toy) -> None:
    problem = toy("full")
    cls = class_of("ties")
    early = cls(cls.Params()).partial_fit(problem, 0.25, rng=rng())
    late = merged(problem, "ties")
    assert 0 < len(early.updates_) < len(late.updates_)
    assert all(torch.equal(u, late.updates_[name]) for name, u in early.updates_.items())


def test_dare_drops_and_rescales(toy: Toy) -> None:
    problem = toy("full")
    made = merged(problem, "dare", drop=0.5, scale=1.0)
    group = problem.groups[-1]
    update = torch.stack([made.updates_[n] for n in group.names])
    total = problem.deltas(group)
    # Each entry is a sum of some of the experts' entries, doubled.
    masks = torch.cartesian_prod(*[torch.tensor([0.0, 2.0])] * 3)
    sums = torch.einsum("sk,klmn->slmn", masks, total)
    assert bool(((sums - update).abs().amin(0) < 1e-6).all())
    assert not torch.allclose(update, total.sum(0))


def test_iso_is_flat_and_iso_cts_of_all_common_is_iso_c(toy: Toy) -> None:
    problem = toy("full")
    flat = merged(problem, "iso-c")
    group = problem.groups[-1]
    s = torch.linalg.svdvals(torch.stack([flat.updates_[n] for n in group.names]))
    real = s > 1e-5 * s[:, :1]
    assert all(float(x[r].std()) < 1e-4 * float(x[0]) for x, r in zip(s, real, strict=True))
    close(merged(problem, "iso-cts", common=1.0), flat, atol=1e-4)


def test_linear_methods_on_factors_are_task_arithmetic(toy: Toy) -> None:
    problem = toy("lora")
    ta, mean = merged(problem, "task-arithmetic"), merged(problem, "average")
    close(merged(problem, "lora-cat"), ta)
    close(merged(problem, "lora-svd", rank="joint"), ta)
    close(merged(problem, "core-space", rule="average"), mean)
    close(merged(problem, "circumerge", rule="average", oversampling=1.25), mean, atol=1e-4)
    close(merged(problem, "circumerge", rule="average", orthonormal=True), mean, atol=1e-4)
    close(merged(problem, "knots", rule="average"), mean)


def test_a_truncated_sum_has_the_rank_asked_for(toy: Toy) -> None:
    problem = toy("lora")
    for name, params in (("lora-svd", {}), ("circumerge", {"rank": "expert"})):
        made = merged(problem, name, **params)
        rank = max(problem.low_rank(problem.groups[-1]).ranks)
        for n in problem.groups[-1].names:
            assert int(torch.linalg.matrix_rank(made.updates_[n], rtol=1e-4)) <= rank


@pytest.mark.parametrize("name", ["tsv-m", "iso-c", "star", "knots"])
def test_factors_and_dense_updates_agree(toy: Toy, name: str) -> None:
    problem = toy("lora")
    params = {"rule": "average"} if name == "knots" else {}
    dense = with_updates(problem, problem.experts.deltas, "the same")
    close(merged(problem, name, **params), merged(dense, name, **params), atol=1e-4)


def test_a_sweep_over_the_scale_computes_once(toy: Toy, merging_cache: Path) -> None:
    problem = toy("full")

    def entries() -> set[str]:
        return {p.name for p in (merging_cache / "merging").glob("tsv-m-*") if p.is_dir()}

    one = merged(problem, "tsv-m", scale=1.0)
    before = entries()
    two = merged(problem, "tsv-m", scale=0.5)
    assert before
    assert entries() == before
    assert all(torch.equal(0.5 * u, two.updates_[n]) for n, u in one.updates_.items())


def test_circumerge_chooses_its_oversampling(toy: Toy) -> None:
    made = merged(toy("lora"), "circumerge", oversampling="auto")
    assert made.signals()["condition"] >= 1.0
    assert 0.0 < made.signals()["rank_ratio"] <= 1.0


@pytest.mark.parametrize("name", ["core-space", "circumerge", "lora-cat", "lora-svd"])
@pytest.mark.parametrize("kind", ["full", "oft"])
def test_methods_on_factors_refuse_other_experts(toy: Toy, name: str, kind: str) -> None:
    with pytest.raises(ProblemError, match=rf"expert 'dish' is {kind}, {name} needs lora") as e:
        merged(toy(kind), name)
    assert "\n" not in str(e.value)


def test_orthomerge_oft_refuses_other_experts(toy: Toy) -> None:
    with pytest.raises(ProblemError, match="'dish' is lora, orthomerge-oft needs oft experts"):
        merged(toy("lora"), "orthomerge-oft")


def test_pools_leave_out_what_does_not_fit(toy: Toy) -> None:
    methods = {name: class_of(name) for name in ("ties", "lora-cat", "orthomerge-oft")}
    asked: dict[str, Any] = {"given": {}, "per_method": 1, "seed": 0}
    for kind, fit in (("full", {"ties"}), ("lora", {"ties", "lora-cat"})):
        pool = FAMILY.candidates(toy(kind), methods, (), **asked)
        assert {c.method for c in pool} == fit
    with pytest.raises(ProblemError, match="lora-cat needs lora experts, those of toy are full"):
        FAMILY.candidates(toy("full"), {"lora-cat": class_of("lora-cat")}, (), **asked)
