"""What a merge does to tasks that were not merged: a probe on the base's states, frozen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lamps_plugins._zoo._tasks import task_names, zoo_task
from lamps_plugins.model_merging._problem import MergeProblem
from lamps_plugins.model_merging._replications._tuning import Arena, Tuned, subset
from lamps_plugins.text_classification import _features, _nets

if TYPE_CHECKING:
    from lamps_plugins.text_classification._problem import TextProblem

RIDGE, N_TRAIN, PROBED = 1.0, 256, 2


def apart(problem: MergeProblem, n: int) -> tuple[MergeProblem, list[TextProblem]]:
    """A problem, and ``n`` tasks of the protocol that none of its experts was trained on.

    Where all tasks are merged, the last ``n`` are taken out of the problem.
    """
    others = [name for name in task_names(8) if name not in problem.tasks][:n]
    if len(others) < n:
        others = list(problem.tasks[-n:])
        problem = subset(problem, problem.tasks[:-n])
    return problem, [zoo_task(name, most_train=N_TRAIN) for name in others]


def states(problem: MergeProblem, net: Any, rows: Sequence[np.ndarray]) -> np.ndarray:
    """Mean state of the real tokens. Shape: [n, width] float64."""
    result: dict[int, np.ndarray] = {}
    with torch.inference_mode():
        for chosen in _nets.by_length(rows, 32):
            ids, mask = _nets.pad_batch([rows[i] for i in chosen], problem.pad_id)
            hidden = net.base_model(input_ids=ids, attention_mask=mask).last_hidden_state
            real = mask.unsqueeze(-1)
            means = ((hidden * real).sum(1) / real.sum(1)).double().cpu().numpy()
            result |= dict(zip(chosen.tolist(), means, strict=True))
    return np.stack([result[i] for i in range(len(rows))])


class Probes:
    """One ridge classifier a task, fitted on the base's states, and test texts to ask it.

    Args:
        problem: Base and experts.
        tasks: Tasks that were not merged.
        n_test: Test texts of each.
    """

    def __init__(self, problem: MergeProblem, tasks: Sequence[TextProblem], n_test: int) -> None:
        self.problem = problem
        self._asked: list[tuple[np.ndarray, np.ndarray, list[np.ndarray], np.ndarray]] = []
        base = problem.network(problem.tasks[0], {})
        for task in tasks:
            train = _features.tokens(task, problem.tokenizer_info, "train")
            x = states(problem, base, train)
            center = x.mean(0)
            y = np.eye(len(task.labels))[task.targets("train")]
            gram = (x - center).T @ (x - center) + RIDGE * np.eye(x.shape[1])
            weights = np.linalg.solve(gram, (x - center).T @ (y - y.mean(0)))
            rows = _features.tokens(task, problem.tokenizer_info, "test")[:n_test]
            bias = y.mean(0) - center @ weights
            self._asked.append((weights, bias, rows, task.targets("test")[:n_test]))

    def accuracy(self, merger: Any) -> list[float]:
        """Accuracy of each frozen probe on a merger's states."""
        net = merger.network(self.problem, self.problem.tasks[0])
        return [
            float(((states(self.problem, net, rows) @ weights + bias).argmax(1) == right).mean())
            for weights, bias, rows, right in self._asked
        ]


def retention(
    arena: Arena, sides: Sequence[Tuned], n_test: int
) -> Iterator[tuple[str, list[float]]]:
    """Task, and accuracy of its frozen probe on each side, merged again with tuned settings."""
    problem, tasks = apart(arena.problem, PROBED)
    inner = Arena(problem, arena.profile, arena.seed)
    probes = Probes(problem, tasks, n_test)
    found = [probes.accuracy(inner.fitted(type(side.merger), **side.params)) for side in sides]
    for i, task in enumerate(tasks):
        yield task.name, [accuracies[i] for accuracies in found]
