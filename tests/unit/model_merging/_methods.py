"""Small problems for tests of methods: experts of the toy, repeated, reordered, relabelled."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from lamps_plugins._zoo import _toy
from lamps_plugins._zoo._tasks import task_problem
from lamps_plugins.model_merging._children import class_of
from lamps_plugins.model_merging._merger import Merger
from lamps_plugins.model_merging._problem import CALIBRATION, MergeProblem
from lamps_plugins.model_merging._sets import ExpertSet


def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def of_experts(problem: MergeProblem, chosen: Sequence[tuple[str, int]]) -> MergeProblem:
    """The experts at these places under these names, each with the texts of its task."""
    experts, tasks = [], []
    for name, at in chosen:
        expert = copy.copy(problem.experts.experts[at])
        tasks.append(problem.task(expert.name))
        expert.name = name
        experts.append(expert)
    made = ExpertSet(problem.experts.base, experts)
    return MergeProblem(name="some", experts=made, tasks=tasks, source={})


def relabelled(problem: MergeProblem) -> MergeProblem:
    """The same texts with their labels permuted, in all splits but test."""
    seen = copy.copy(problem)
    seen.data = {}
    for name in problem.tasks:
        parts = _toy.toy_parts(name, 0)
        targets = {k: v if k == "test" else np.roll(v, 1) for k, v in parts.targets.items()}
        assert any((targets[k] != v).any() for k, v in parts.targets.items())
        parts = dataclasses.replace(parts, targets=targets)
        seen.data[name] = task_problem(name, parts, _toy.MAX_LENGTH, 0, most_train=CALIBRATION)
    return seen


def merged(problem: MergeProblem, name: str, **params: Any) -> Merger[Any]:
    """A method of the family fitted to the end; params may leave their ranges."""
    cls = class_of(name)
    return cls(cls.Params(**params)).partial_fit(problem, 1.0, rng=rng())


def logits(problem: MergeProblem, merger: Merger[Any], at: int = 0) -> np.ndarray:
    task = problem.tasks[at]
    return problem.logits(merger.network(problem, task), task, "val", 24)


def close(a: Merger[Any], b: Merger[Any], *, atol: float = 1e-5) -> None:
    assert set(a.updates_) == set(b.updates_)
    for name, update in a.updates_.items():
        torch.testing.assert_close(update, b.updates_[name], atol=atol, rtol=1e-4, msg=name)
