"""Networks whose weights are the base plus a weighted sum of updates, and gradients by weight.

    theta(lambda) = theta_0 + sum_k lambda_k tau_k,   dL/dlambda_k = <grad_theta L, tau_k>      (1)

One backward pass to ``theta`` serves the coefficients of all experts and tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from numpy.random import Generator

from lamps_plugins.model_merging._layers import Group

if TYPE_CHECKING:
    import torch
    from torch import nn

    from lamps_plugins.model_merging._problem import MergeProblem

Weights = dict[str, "torch.Tensor"]


class Combination:
    """Base and updates of all merged tensors in memory.

    Args:
        problem: Whose.

    Attributes:
        names: Canonical names of the N merged tensors, vectors included.
        updates: Of each tensor, [K, ...] float32.
    """

    def __init__(self, problem: MergeProblem) -> None:
        groups = (*problem.groups, *problem.vectors)
        self.names = tuple(name for group in groups for name in group.names)
        self.updates: Weights = {}
        self._base: Weights = {}
        self._full = {name: problem.experts.base.full_name(name) for name in self.names}
        for group in groups:
            deltas, base = problem.deltas(group), problem.base_weights(group)
            for i, name in enumerate(group.names):
                self.updates[name], self._base[name] = deltas[:, i], base[i]

    def update(self, name: str, coefficients: torch.Tensor) -> torch.Tensor:
        """``sum_k lambda_k tau_k`` of one tensor. ``coefficients``: [K] or [K, N]."""
        import torch

        own = coefficients
        if own.ndim == 2:
            own = own[:, self.names.index(name)]
        found: torch.Tensor = torch.tensordot(own, self.updates[name], dims=1)
        return found

    def merged(self, group: Group, coefficients: torch.Tensor) -> torch.Tensor:
        """The update of a group. Shape: [L, ...]."""
        import torch

        return torch.stack([self.update(name, coefficients) for name in group.names])

    def weights(self, coefficients: torch.Tensor) -> Weights:
        """Merged weights by the names of the classifier, leaves that want gradients."""
        return {
            self._full[name]: (self._base[name] + self.update(name, coefficients)).requires_grad_()
            for name in self.names
        }

    def gradient(self, grads: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Equation (1) from gradients by the names of the classifier. Shape: [K, N]."""
        import torch

        return torch.stack(
            [
                self.updates[name].flatten(1) @ grads[self._full[name]].flatten()
                for name in self.names
            ],
            dim=1,
        )


def like(gradient: torch.Tensor, coefficients: torch.Tensor) -> torch.Tensor:
    """A gradient [K, N] in the shape of the coefficients, [K] or [K, N]."""
    return gradient if coefficients.ndim == 2 else gradient.sum(1)


T = TypeVar("T")


def draw(rows: Sequence[T], n: int, rng: Generator) -> list[T]:
    """Up to ``n`` of some texts, each at most once."""
    chosen = rng.choice(len(rows), min(n, len(rows)), replace=False)
    return [rows[i] for i in chosen]


class Adam:
    """Adam on one tensor, with a state that goes into a checkpoint.

    Args:
        value: Where to start.
        lr: Rate.

    Source: Kingma and Ba, ICLR 2015, arXiv 1412.6980, algorithm 1.
    """

    BETAS, EPS = (0.9, 0.999), 1e-8

    def __init__(self, value: torch.Tensor, lr: float) -> None:
        import torch

        self.value, self.lr, self.step = value, lr, 0
        self.first, self.second = torch.zeros_like(value), torch.zeros_like(value)

    def update(self, gradient: torch.Tensor) -> None:
        """One step against a gradient."""
        self.step += 1
        b1, b2 = self.BETAS
        self.first = b1 * self.first + (1 - b1) * gradient
        self.second = b2 * self.second + (1 - b2) * gradient.square()
        mean, square = self.first / (1 - b1**self.step), self.second / (1 - b2**self.step)
        self.value = self.value - self.lr * mean / (square.sqrt() + self.EPS)

    def state(self) -> dict[str, torch.Tensor | int]:
        """What `load` takes."""
        return {
            "value": self.value, "first": self.first, "second": self.second, "step": self.step
        }  # fmt: skip

    def load(self, state: Mapping[str, torch.Tensor | int]) -> None:
        """The inverse of `state`."""
        import torch

        self.value, self.first, self.second = (
            torch.as_tensor(state[name]) for name in ("value", "first", "second")
        )
        self.step = int(state["step"])


def classifiers(problem: MergeProblem) -> dict[str, nn.Module]:
    """The classifier of each task on the base's weights, which all share."""
    return {task: problem.network(task, {}) for task in problem.tasks}
