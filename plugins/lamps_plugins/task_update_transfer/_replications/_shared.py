"""What both replications use: problems of the zoo, and test accuracy after choosing on validation.

Every method gets the same validation texts and the same number of candidates; test texts are
looked at once for the chosen one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamps.replication import Profile, Say
from lamps.types import digest
from lamps_plugins._zoo import _students
from lamps_plugins.model_merging._networks import correct
from lamps_plugins.task_update_transfer._opening import zoo_transfer
from lamps_plugins.task_update_transfer._problem import TransferProblem
from lamps_plugins.task_update_transfer._transfer import Transfer
from lamps_plugins.text_classification._models import CATALOGUE

TASKS: dict[Profile, tuple[str, ...]] = {
    "quick": ("r8", "sent-tweet", "ng-sci"),
    "full": ("r8", "sent-tweet", "ng-sci", "election", "ng-rec", "sent-food"),
}
N_TEST: dict[Profile, int] = {"quick": 500, "full": 2_000}
"""Test texts of a task, at most."""

Params = Mapping[str, Any]


def fingerprint(profile: Profile, *settings: object) -> str:
    """Hash of the zoo's recipe, the teacher and the settings of a replication."""
    zoo = [_students.FORMAT, repr(_students.SIZES[profile]), _students.SHIFTS, _students.TUNED_LR]
    teacher = CATALOGUE.resolve(_students.TEACHER).sha256
    return digest([zoo, teacher, list(TASKS[profile]), N_TEST[profile], repr(settings)])


def opened(
    name: str, task: str, profile: Profile, seed: int, say: Say, *, mark: bool
) -> TransferProblem:
    """A built-in transfer; its models are made where they are missing.

    Args:
        name: Its name.
        task: The task.
        profile: How long models are trained.
        seed: Of all training.
        say: Told before something is trained.
        mark: Whether the fine-tuned target is needed.
    """
    return zoo_transfer(name, {"task": task, "profile": profile}, seed, say, mark=mark)


@dataclass(frozen=True, slots=True)
class Result:
    """A method after validation.

    Args:
        params: The chosen candidate.
        val: Its validation accuracy.
        test: Its test accuracy.
        method: The fitted method.
    """

    params: Params
    val: float
    test: float
    method: Transfer[Any]


def fitted(
    problem: TransferProblem, kind: type[Transfer[Any]], params: Params, seed: int
) -> Transfer[Any]:
    """A full run."""
    method = kind.from_params(params)
    return method.partial_fit(problem, 1.0, rng=np.random.default_rng(seed))


def accuracy(
    problem: TransferProblem, method: Transfer[Any], split: Any, most: int | None = None
) -> float:
    """Accuracy on the first ``most`` texts of a split."""
    net = method.network(problem)
    targets = problem.targets(split)[:most]
    return float(correct(problem.logits(net, split, most), targets).mean())


def chosen(
    problem: TransferProblem,
    kind: type[Transfer[Any]],
    grid: Sequence[Params],
    profile: Profile,
    seed: int,
) -> Result:
    """The best candidate of a grid by validation accuracy, the first of equals."""
    made = [fitted(problem, kind, params, seed) for params in grid]
    vals = [accuracy(problem, method, "val") for method in made]
    best = int(np.argmax(vals))
    n = min(N_TEST[profile], len(problem.texts.task.texts("test")))
    test = accuracy(problem, made[best], "test", n)
    return Result(grid[best], vals[best], test, made[best])


def retention(problem: TransferProblem, method: Transfer[Any]) -> float:
    """Generic loss on the target base's own texts, less that of the base."""
    readings = problem.readings
    own = readings.generic_loss(method.network(problem))
    return own - readings.generic_loss(problem.network({}))
