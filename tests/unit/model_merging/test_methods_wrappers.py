"""Calibration and rotations around a child, and rotations of OFT experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from lamps_plugins.model_merging._children import CHILDREN, child_of
from lamps_plugins.model_merging._problem import MergeProblem
from lamps_plugins.model_merging._rules.svc import svc
from lamps_plugins.model_merging._views import with_updates

from lamps.errors import ConfigError, ProblemError

from ._methods import close, logits, merged, of_experts

Toy = Callable[[str], MergeProblem]


@pytest.mark.parametrize("child", CHILDREN)
def test_svc_calibrates_what_each_child_gives(toy: Toy, child: str) -> None:
    problem = toy("full")
    made = merged(problem, "svc", child=child, alpha=1.0)
    assert made.signals()["inflation"] > 0.0
    if child != "dare":  # whose masks come from the stream
        alone = merged(problem, child)
        group = problem.groups[-1]
        before = torch.stack([alone.updates_[n] for n in group.names])
        wanted = svc(problem.deltas(group), before, alpha=1.0).update
        found = torch.stack([made.updates_[n] for n in group.names])
        torch.testing.assert_close(found, wanted)


def test_svc_on_cores_equals_svc_on_dense_updates(toy: Toy) -> None:
    problem = toy("lora")
    dense = with_updates(problem, problem.experts.deltas, "the same")
    for params in ({}, {"child": "average", "side": "row"}, {"target": "game"}):
        close(merged(problem, "svc", **params), merged(dense, "svc", **params), atol=1e-4)


def test_svc_with_floor_one_only_shrinks(toy: Toy) -> None:
    problem = toy("full")
    made, child = merged(problem, "svc", alpha=1.0), merged(problem, "task-arithmetic")
    for group in problem.groups:
        for name in group.names:
            size = float(torch.linalg.matrix_norm(made.updates_[name]))
            assert size <= float(torch.linalg.matrix_norm(child.updates_[name])) * (1 + 1e-5)


def test_the_global_control_has_the_norm_and_not_the_spectrum(toy: Toy) -> None:
    problem = toy("full")
    made = merged(problem, "svc", alpha=1.0, child_params='{"scale": 1.0}')
    control = merged(problem, "svc", alpha=1.0, child_params='{"scale": 1.0}', factor="global")
    child = merged(problem, "task-arithmetic", scale=1.0)
    for name in problem.groups[-1].names:
        a, b, c = (m.updates_[name] for m in (made, control, child))
        norms = [float(torch.linalg.matrix_norm(x)) for x in (a, b)]
        assert norms[0] == pytest.approx(norms[1], rel=1e-4)
        ratio = b / c
        assert float(ratio.std()) < 1e-2 * float(ratio.mean().abs())


def test_svc_of_orthogonal_experts_changes_nothing_at_floor_one(toy: Toy) -> None:
    problem = toy("full")
    rng = np.random.default_rng(0)

    def apart(group: Any) -> torch.Tensor:
        m, n = group.shape
        u, v = (np.linalg.qr(rng.normal(size=(side, 6)))[0] for side in (m, n))
        parts = [
            (u[:, 2 * k : 2 * k + 2] * rng.uniform(1, 2, 2)) @ v[:, 2 * k : 2 * k + 2].T
            for k in range(3)
        ]
        one = torch.from_numpy(np.stack(parts)).float()
        return one[:, None].expand(3, len(group.names), m, n)

    made = {g.names: apart(g) for g in problem.groups}
    view = with_updates(problem, lambda g: made[g.names], "orthogonal")
    found = merged(view, "svc", alpha=1.0, child_params='{"scale": 1.0}')
    for group in problem.groups:
        update = torch.stack([found.updates_[n] for n in group.names])
        torch.testing.assert_close(update, made[group.names].sum(0), atol=1e-5, rtol=1e-4)


def test_alpha_auto_follows_the_authors(toy: Toy) -> None:
    problem = toy("full")
    close(merged(problem, "svc", child="tsv-m"), merged(problem, "svc", child="tsv-m", alpha=1.0))
    third = merged(problem, "svc", alpha=1 / 3)
    close(merged(problem, "svc"), third)


@pytest.mark.parametrize(
    ("child", "params", "message"),
    [
        ("tise", "{}", "no child 'tise'.*ties"),
        ("ties", "{", "is not JSON"),
        ("ties", "[1]", "expected a JSON object"),
        ("ties", '{"kept": 1}', "no parameter 'kept'"),
        ("ties", '{"keep": 3}', r"keep=3, expected a value in \[0.05, 1.0\]"),
    ],
)
def test_children_that_cannot_be_are_refused(child: str, params: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        child_of(child, params)
    assert "\n" not in str(error.value)


def test_params_of_a_child_come_as_text_or_as_an_object() -> None:
    # The command line reads JSON where it can.
    assert child_of("ties", '{"keep": 0.1}').params == child_of("ties", {"keep": 0.1}).params


def test_a_target_that_is_no_task_is_refused(toy: Toy) -> None:
    with pytest.raises(ConfigError, match=r"target='gam' is no task.*'game'"):
        merged(toy("full"), "svc", target="gam")


@pytest.mark.parametrize("child", ["task-arithmetic", "ties", "tsv-m", "svc"])
@pytest.mark.parametrize("variant", ["C", "G"])
def test_orthomerge_without_rotation_is_its_child(toy: Toy, child: str, variant: str) -> None:
    problem = toy("full")
    params = '{"scale": 0.3}' if child == "task-arithmetic" else "{}"
    made = merged(
        problem, "orthomerge-ord", eta=0.0, child=child, variant=variant, child_params=params
    )
    alone = merged(problem, child)
    assert all(torch.equal(u, alone.updates_[name]) for name, u in made.updates_.items())


@pytest.mark.parametrize("child", ["average", "iso-c"])
def test_rotations_and_residuals_make_up_the_experts(toy: Toy, child: str) -> None:
    problem = of_experts(toy("full"), [("one", 1), ("two", 1)])
    made = merged(problem, "orthomerge-ord", child=child, variant="G")
    # Identical experts: the merged rotation is theirs, and the mean residual is what it leaves.
    if child == "average":
        expert = problem.logits(problem.expert_network("one"), "one", "val", 24)
        np.testing.assert_allclose(logits(problem, made), expert, atol=5e-4)
    assert made.signals()["explained"] > 0.02
    assert made.signals()["refused"] == 0.0


def test_wide_matrices_can_be_left_to_the_child(toy: Toy) -> None:
    problem = toy("full")
    made = merged(problem, "orthomerge-ord", variant="G", widest=32, child="average")
    whole = merged(problem, "orthomerge-ord", variant="G", child="average")
    alone = merged(problem, "average")
    for group in problem.groups:
        for name in group.names:
            wide = group.shape[1] > 32
            assert torch.equal(made.updates_[name], alone.updates_[name]) == wide
            assert torch.equal(made.updates_[name], whole.updates_[name]) != wide


def test_orthomerge_oft_keeps_singular_values_and_angles(toy: Toy) -> None:
    problem = toy("oft")
    made, ta = merged(problem, "orthomerge-oft"), merged(problem, "task-arithmetic")

    def moved(update: torch.Tensor, base: torch.Tensor) -> float:
        grams = [w.double() @ w.double().mT for w in (base, base + update)]
        return float((grams[0] - grams[1]).abs().max() / grams[0].abs().max())

    for group in problem.groups:
        base = problem.base_weights(group)
        stack = [torch.stack([m.updates_[n] for n in group.names]) for m in (made, ta)]
        assert moved(stack[0], base) < 1e-4
        assert moved(stack[1], base) > 1e-3
    assert made.signals()["magnitude_correction"] >= 1.0


def test_orthomerge_oft_without_strength_is_the_base(toy: Toy) -> None:
    problem = toy("oft")
    made = merged(problem, "orthomerge-oft", eta=0.0)
    for group in problem.groups:
        assert all(not bool(made.updates_[n].any()) for n in group.names)


def test_identical_oft_experts_give_the_expert(toy: Toy) -> None:
    problem = of_experts(toy("oft"), [("one", 1), ("two", 1)])
    expert = problem.logits(problem.expert_network("one"), "one", "val", 24)
    np.testing.assert_allclose(
        logits(problem, merged(problem, "orthomerge-oft")), expert, atol=1e-3
    )


def test_a_view_has_no_factors(toy: Toy) -> None:
    problem = toy("lora")
    view = with_updates(problem, problem.experts.deltas, "dense")
    assert view.experts.key != problem.experts.key
    with pytest.raises(ProblemError, match="no low-rank factors"):
        view.low_rank(view.groups[0])
