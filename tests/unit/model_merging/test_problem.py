"""The problem: texts, landmarks, measuring, and what a user may open."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lamps_plugins.model_merging import _measure
from lamps_plugins.model_merging._networks import correct
from lamps_plugins.model_merging._prefix import top_block
from lamps_plugins.model_merging._problem import CALIBRATION, FAMILY, FIDELITIES, MergeProblem
from lamps_plugins.model_merging._refused import options_of
from lamps_plugins.model_merging.average import Average
from lamps_plugins.model_merging.average import Params as AverageParams
from lamps_plugins.text_classification._splits import normalised

from lamps.errors import ConfigError, ProblemError

Toy = Callable[[str], MergeProblem]


def averaged(problem: MergeProblem, fidelity: float = 1.0) -> Average:
    return Average(AverageParams()).partial_fit(problem, fidelity, rng=np.random.default_rng(0))


def test_landmarks_are_nested(toy: Toy) -> None:
    problem = toy("full")
    names: set[str] = set()
    n_texts = 0
    for fidelity in FIDELITIES[1:]:
        groups = [g for part in problem.merged_at(fidelity) for g in part]
        merged = {name for group in groups for name in group.names}
        assert names <= merged
        assert problem.n_val("dish", fidelity) > n_texts
        names, n_texts = merged, problem.n_val("dish", fidelity)
    assert problem.merged_at(0.0) == ((), ())
    assert n_texts == len(problem.task("dish").texts("val"))
    assert problem.amount(0.0) == 0.0
    assert problem.amount(1.0) == sum(len(t.texts("val")) for t in problem.data.values())
    with pytest.raises(ProblemError, match="no landmark"):
        problem.check_fidelity(0.3)


def test_expert_network_answers_as_plain_transformers_does(toy: Toy) -> None:
    from transformers import AutoModelForSequenceClassification

    problem = toy("full")
    for expert in problem.experts.experts:
        plain = AutoModelForSequenceClassification.from_pretrained(expert.folder).eval()
        ours = problem.logits(problem.expert_network(expert.name), expert.name, "val")
        theirs = problem.logits(plain, expert.name, "val")
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_own_update_turns_the_base_into_the_expert(toy: Toy) -> None:
    for kind in ("full", "lora", "oft"):
        problem = toy(kind)
        groups = (*problem.groups, *problem.vectors)
        for k, task in enumerate(problem.tasks):
            updates = {
                name: update
                for group in groups
                for name, update in zip(group.names, problem.deltas(group)[k], strict=True)
            }
            merged = problem.logits(problem.network(task, updates), task, "val")
            expert = problem.logits(problem.expert_network(task), task, "val")
            np.testing.assert_allclose(merged, expert, atol=1e-5)


def test_fidelity_0_is_the_base_under_the_heads(toy: Toy) -> None:
    problem = toy("full")
    found = averaged(problem, 0.0).evaluate(problem)
    shares = []
    for task in problem.tasks:
        targets = problem.task(task).targets("val")
        base = correct(problem.logits(problem.network(task, {}), task, "val"), targets)
        expert = correct(problem.logits(problem.expert_network(task), task, "val"), targets)
        shares.append(_measure.normalized(base, expert))
        assert found.signals[f"accuracy.{task}"] == base.mean()
    assert found.objectives["val_error"] == pytest.approx(1 - np.mean(shares))
    assert found.objectives["val_worst_error"] == pytest.approx(1 - min(shares))
    assert {"norm_ratio", "cosine_mean", "inflation", "effective_rank"} < set(found.signals)


def test_first_landmark_answers_from_the_top_block_as_from_the_whole(toy: Toy) -> None:
    problem = toy("full")
    updates = averaged(problem, FIDELITIES[1]).updates_
    assert top_block(list(updates)) == ("encoder.layer", 1)
    for task in problem.tasks:
        net = problem.network(task, updates)
        n = problem.n_val(task, FIDELITIES[1])
        whole = problem.logits(net, task, "val", n)
        np.testing.assert_array_equal(problem.top_logits(net, task, "val", n), whole)
        # Afterwards the blocks work again.
        np.testing.assert_array_equal(problem.logits(net, task, "val", n), whole)


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["encoder.layer.0.output.dense.weight"],
        ["encoder.layer.1.a.weight", "decoder.layer.1.a.weight"],
        ["projection.weight"],
    ],
)
def test_no_blocks_below_means_no_shortcut(names: list[str]) -> None:
    assert top_block(names) is None


def test_signals_of_known_updates(toy: Toy) -> None:
    found = toy("full").experts.signals
    assert 3**-0.5 * 0.9 < found["norm_ratio"] < 1.0
    assert -1.0 <= found["cosine_min"] <= found["cosine_mean"] <= found["cosine_max"] <= 1.0
    assert 0.0 < found["effective_rank"] <= 1.0
    assert found["inflation"] > 0.0
    low = toy("lora").experts.signals
    assert low["effective_rank"] < found["effective_rank"]


def test_test_split_stays_closed_until_it_is_asked_for(toy: Toy) -> None:
    problem = toy("full")
    made = averaged(problem)
    made.evaluate(problem)
    problem.card()
    assert problem.test_opened == 0
    found = made.evaluate(problem, "test")
    assert problem.test_opened > 0
    for name in ("error", "worst_error"):
        low, high = (found.signals[f"test_{name}_{end}"] for end in ("low", "high"))
        assert low <= found.objectives[f"test_{name}"] <= high


def test_floor_is_the_commonest_class(toy: Toy) -> None:
    problem = toy("full")
    floor = problem.floor()
    assert set(floor) == {"val_error", "val_worst_error"}
    assert floor["val_error"] > averaged(problem).evaluate(problem).objectives["val_error"]


def test_pools_of_texts_do_not_overlap(toy: Toy) -> None:
    problem = toy("full")
    held = {normalised(t) for task in problem.tasks for t in problem.task(task).texts("test")}
    for task in problem.tasks:
        calibration = problem.calibration(task)
        validation, targets = problem.validation(task, 7)
        assert 0 < len(calibration) <= CALIBRATION
        assert len(validation) == len(targets) == 7
        assert not held & {normalised(t) for t in (*calibration, *validation)}
        assert not {*calibration} & {*validation}


def test_pickling_leaves_weights_behind(toy: Toy) -> None:
    problem = toy("full")
    problem.network("dish", {})
    assert problem._base is not None
    data = pickle.dumps(problem)
    copy = pickle.loads(data)
    assert copy._base is None
    assert copy.fingerprint() == problem.fingerprint()
    assert copy.deltas(copy.groups[0]).equal(problem.deltas(problem.groups[0]))


def test_users_own_experts_equal_the_built_in_ones(
    own: Callable[[str], dict[str, Path]], toy: Toy
) -> None:
    at = own("lora")
    problem = FAMILY.open_problem(None, options_of(at))
    assert problem.tasks == ("dish", "game", "trip")
    built = toy("lora")
    for group in problem.groups:
        assert torch.equal(problem.deltas(group), built.deltas(group))
    assert problem.task("dish").labels == ("salty", "sour", "sweet")
    again = FAMILY.reopen(json.loads(json.dumps(problem.reference())))
    assert again.fingerprint() == problem.fingerprint()
    lines = at["dish.data"].read_text().splitlines(keepends=True)
    at["dish.data"].write_text("".join(lines[:-9]))
    with pytest.raises(ProblemError, match="changed"):
        FAMILY.reopen(problem.reference())


def test_classes_are_in_the_order_of_the_head(own: Callable[[str], dict[str, Path]]) -> None:
    at = own("full")
    config = at["dish"] / "config.json"
    turned = {"0": "sweet", "1": "sour", "2": "salty"}
    found = json.loads(config.read_text())
    config.write_text(json.dumps(found | {"id2label": turned}))
    problem = FAMILY.open_problem(None, options_of(at))
    data = problem.task("dish")
    words = {"cake", "sugar", "honey", "syrup", "cookie", "jam"}
    sweet = [t for t, y in zip(data.texts("val"), data.targets("val"), strict=True) if y == 0]
    assert all(words & set(text.split()) for text in sweet)
    assert data.labels == ("sweet", "sour", "salty")


def test_experts_may_be_named(own: Callable[[str], dict[str, Path]]) -> None:
    at = own("full")
    options: dict[str, Any] = options_of(at)
    options["expert"] = [f"{t}-task={at[t]}" for t in ("dish", "game")]
    options["task_data"] = [f"{t}-task={at[f'{t}.data']}" for t in ("dish", "game")]
    assert FAMILY.open_problem(None, options).tasks == ("dish-task", "game-task")
    for broken, culprit in (
        ({"expert": [*options["expert"], options["expert"][0]]}, "two values"),
        ({"task_data": options["task_data"][:1]}, "game-task"),
        (
            {"task_data": [*options["task_data"], f"x={at['trip.data']}"]},
            "no expert for texts 'x'",
        ),
        ({"task_data": [str(at["dish.data"])]}, "TASK=FILE"),
        ({"expert": [f"a/b={at['dish']}"]}, "cannot name a folder"),
        ({"tasks": 2}, "has no meaning"),
        ({"bsae": "x"}, "Did you mean 'base'"),
    ):
        with pytest.raises((ProblemError, ConfigError), match=culprit):
            FAMILY.open_problem(None, options | broken)


def test_moved_embeddings_are_told(own: Callable[[str], dict[str, Path]]) -> None:
    from lamps_plugins.model_merging._refused import edit_weights

    at = own("full")
    name = "bert.embeddings.word_embeddings.weight"
    edit_weights(at["game"] / "model.safetensors", lambda t: t.update({name: t[name] + 0.01}))
    problem = FAMILY.open_problem(None, options_of(at))
    assert [n for n in problem.notes if "embeddings" in n] == [
        "experts game moved the embeddings, which are not merged; expect them to lose by it"
    ]


# --- measuring -----------------------------------------------------------------------------------

right = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=30)


@given(right)
def test_expert_measured_against_itself_has_no_error(values: list[float]) -> None:
    one = np.array(values)
    found = _measure.summary(["a"], [one], [one], "test")
    if one.any():
        assert found.objectives == {"test_error": 0.0, "test_worst_error": 0.0}
        assert found.signals["test_error_low"] <= 0.0 <= found.signals["test_error_high"]
    else:  # an expert that is never right counts as right once
        assert found.objectives["test_error"] == 1.0


@given(st.lists(st.tuples(right, right), min_size=1, max_size=5))
def test_worst_task_is_no_better_than_the_mean(
    pairs: list[tuple[list[float], list[float]]],
) -> None:
    merged = [np.array(m * len(e)) for m, e in pairs]
    expert = [np.array(e * len(m)) for m, e in pairs]
    names = [str(i) for i in range(len(pairs))]
    found = _measure.summary(names, merged, expert, "val").objectives
    assert found["val_worst_error"] >= found["val_error"] - 1e-12
    turned = _measure.summary(names[::-1], merged[::-1], expert[::-1], "val").objectives
    assert turned == pytest.approx(found)


def test_logits_that_are_not_finite_give_no_score() -> None:
    logits = np.array([[1.0, 0.0], [np.nan, 0.0]])
    assert np.isnan(correct(logits, np.array([0, 0])).mean())
