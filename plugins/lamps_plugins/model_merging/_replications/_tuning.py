"""Equal tuning for both sides of a comparison, and test texts that are opened once.

Each side gets exactly `Arena.budget` validation evaluations, which `Arena.tuned` counts and
enforces; a side with one setting of interest spends the rest on its scale. Scores are normalised
accuracies per task, over the first texts of a split, the same for all sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lamps.errors import ContractError
from lamps.replication import Ask, Profile
from lamps.types import Json, Split, canonical_json, digest
from lamps_plugins._zoo._build import ZooSpec
from lamps_plugins.model_merging import _networks
from lamps_plugins.model_merging._merger import Merger
from lamps_plugins.model_merging._problem import FAMILY, MergeProblem
from lamps_plugins.model_merging._sets import ExpertSet

if TYPE_CHECKING:
    from lamps_plugins.text_classification._problem import TextProblem

N_TASKS: Mapping[Profile, int] = {"quick": 4, "full": 8}
N_VAL: Mapping[Profile, int] = {"quick": 48, "full": 128}
N_TEST: Mapping[Profile, int] = {"quick": 192, "full": 1000}
BUDGET: Mapping[Profile, int] = {"quick": 4, "full": 10}
"""Validation evaluations of each side."""


def scales(profile: Profile, low: float, high: float) -> list[float]:
    """As many values as a side may try, evenly on a log scale."""
    return [float(f"{v:.4g}") for v in np.geomspace(low, high, BUDGET[profile])]


def fingerprint_of(profile: Profile, kind: str, *more: Json) -> str:
    """Hash of settings and of the texts of all tasks; builds no expert."""
    spec = ZooSpec(kind=kind, n_tasks=N_TASKS[profile], profile=profile)
    texts: list[Json] = [spec.task(name).fingerprint() for name in spec.tasks]
    sizes: list[Json] = [N_VAL[profile], N_TEST[profile], BUDGET[profile]]
    return digest([kind, spec.recipe().steps, *texts, *sizes, *more])


def opened(ask: Ask, kind: str) -> MergeProblem:
    """The built-in problem with experts of a kind; the seed of the zoo is that of the call."""
    options = {
        "experts": kind,
        "tasks": N_TASKS[ask.profile],
        "zoo_seed": ask.seed,
        "profile": ask.profile,
    }
    return FAMILY.open_problem("mm-text8", options)


def subset(problem: MergeProblem, tasks: Sequence[str]) -> MergeProblem:
    """The problem with some of its experts only."""
    chosen = [e for e in problem.experts.experts if e.name in tasks]
    return MergeProblem(
        name=f"{problem.name}:{'+'.join(tasks)}",
        experts=ExpertSet(problem.experts.base, chosen),
        tasks=[problem.task(e.name) for e in chosen],
        source={},
    )


@dataclass(frozen=True, slots=True)
class Tuned:
    """The best of a side's settings.

    Args:
        merger: Fitted with them.
        params: The settings.
        val: Mean normalised accuracy on validation texts.
        evaluations: How many settings were tried.
    """

    merger: Merger[Any]
    params: Mapping[str, Json]
    val: float
    evaluations: int


@dataclass(slots=True)
class Arena:
    """Where sides of a comparison meet.

    Args:
        problem: Experts and texts.
        profile: Decides on budget and numbers of texts.
        seed: Of all methods.
    """

    problem: MergeProblem
    profile: Profile
    seed: int
    tested_: set[str] = field(default_factory=set)
    known_: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)

    @property
    def budget(self) -> int:
        """Validation evaluations of each side."""
        return BUDGET[self.profile]

    def fitted(self, cls: type[Merger[Any]], **params: Json) -> Merger[Any]:
        """A method with these params on all layers."""
        made: Merger[Any] = cls.from_params(params)
        return made.partial_fit(self.problem, 1.0, rng=np.random.default_rng(self.seed))

    def tuned(self, cls: type[Merger[Any]], grid: Sequence[Mapping[str, Json]]) -> Tuned:
        """The setting that is best on validation texts.

        Raises:
            ContractError: The grid is not as long as the budget, or holds a setting twice.
        """
        if len({canonical_json(dict(params)) for params in grid}) != self.budget:
            raise ContractError(
                f"a grid of {len(grid)} settings for {cls.name()}; every side tries "
                f"{self.budget} different ones"
            )
        best: Tuned | None = None
        for params in grid:
            merger = self.fitted(cls, **params)
            val = float(np.mean(list(self.scores(merger, "val").values())))
            if best is None or val > best.val:
                best = Tuned(merger, dict(params), val, len(grid))
        assert best is not None
        return best

    def test(self, side: str, merger: Merger[Any]) -> dict[str, float]:
        """Normalised accuracy of each task on test texts, once for each side.

        Raises:
            ContractError: The side was tested already.
        """
        if side in self.tested_:
            raise ContractError(f"{side} was tested already; test texts open once for each side")
        self.tested_.add(side)
        return self.scores(merger, "test")

    def scores(self, merger: Merger[Any], split: Split) -> dict[str, float]:
        """Accuracy of each task over that of its expert, on the first texts of a split."""
        n = N_TEST[self.profile] if split == "test" else N_VAL[self.profile]
        return {task: self._score(merger, task, split, n) for task in self.problem.tasks}

    def _score(self, merger: Merger[Any], task: str, split: Split, n: int) -> float:
        data: TextProblem = self.problem.task(task)
        targets = data.targets(split)[:n]
        found = self.problem.logits(merger.network(self.problem, task), task, split, n)
        if (task, split) not in self.known_:
            net = self.problem.expert_network(task)
            expert = self.problem.logits(net, task, split, n)
            self.known_[task, split] = _networks.correct(expert, targets)
        right = _networks.correct(found, targets)
        return float(right.mean() / self.known_[task, split].mean())


def class_scales(arena: Arena, name: str, low: float, high: float, **fixed: Json) -> Tuned:
    """A method of the family tuned over as many scales as the budget has."""
    from lamps_plugins.model_merging._children import class_of

    grid = [{**fixed, "scale": s} for s in scales(arena.profile, low, high)]
    return arena.tuned(class_of(name), grid)


def mean(scores: Mapping[str, float]) -> float:
    """The mean over tasks."""
    return float(np.mean(list(scores.values())))
