"""What experts say of themselves on unlabelled texts: diagonal Fishers and input Grams, on disk.

Each belongs to one expert and the first calibration texts of its task; every method, candidate and
set of experts that asks for the same reads the same arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lamps.errors import ProblemError
from lamps.method import cache_dir
from lamps.types import Json, digest
from lamps_plugins.model_merging._problem import CALIBRATION
from lamps_plugins.text_classification import _nets
from lamps_plugins.text_classification._features import cached

if TYPE_CHECKING:
    import torch
    from torch import nn

    from lamps_plugins.model_merging._problem import MergeProblem

FORMAT = 1
"""Raised when Fishers or Grams of the same key would get other numbers."""

Arrays = dict[str, np.ndarray]


def rows_of(problem: MergeProblem, task: str, n: int = CALIBRATION) -> list[np.ndarray]:
    """Token ids of the first ``n`` calibration texts of a task, no labels with them.

    Raises:
        ProblemError: The task has none.
    """
    rows = problem.tokens(task, "train")[: min(n, CALIBRATION)]
    if not rows:
        raise ProblemError(f"task {task!r} has no training texts to calibrate with")
    return rows


def diagonal_fishers(problem: MergeProblem, task: str, n: int, seed: int) -> Arrays:
    """Mean squared gradients of an expert's log likelihood, by canonical name of the weight.

    Labels are sampled from the expert's own predictions, so none is read.

    Args:
        problem: Whose expert and texts.
        task: Which.
        n: Calibration texts, at most.
        seed: Of the sampled labels.

    Source: Matena and Raffel, arXiv 2111.09832, section 2.
    """
    return _kept(problem, "fisher", task, [n, seed], lambda: _fishers(problem, task, n, seed))


def _fishers(problem: MergeProblem, task: str, n: int, seed: int) -> Arrays:
    import torch

    net = problem.expert_network(task)
    base = problem.experts.base
    names = [name for g in (*problem.groups, *problem.vectors) for name in g.names]
    weights = [net.get_parameter(base.full_name(name)).requires_grad_() for name in names]
    totals = [torch.zeros_like(w) for w in weights]
    rng = np.random.default_rng(seed)
    rows = rows_of(problem, task, n)
    for row in rows:
        ids, mask = _nets.pad_batch([row], problem.pad_id)
        with torch.enable_grad():  # rules run without
            logs = net(input_ids=ids, attention_mask=mask).logits.float()[0].log_softmax(-1)
            chances = np.cumsum(logs.detach().double().exp().cpu().numpy())
            label = min(int(np.searchsorted(chances, rng.random())), len(chances) - 1)
            grads = torch.autograd.grad(logs[label], weights, allow_unused=True)
        for total, grad in zip(totals, grads, strict=True):
            if grad is not None:
                total += grad.square()
    return {
        name: (total / len(rows)).cpu().numpy() for name, total in zip(names, totals, strict=True)
    }


def input_grams(problem: MergeProblem, task: str, n: int) -> Arrays:
    """Mean of ``x x^T`` over real tokens, of what enters each merged matrix of an expert.

    Args:
        problem: Whose expert and texts.
        task: Which.
        n: Calibration texts, at most.

    Raises:
        ProblemError: A merged matrix is not that of a linear layer.

    Source: Jin et al., arXiv 2212.09849, section 3.
    """
    return _kept(problem, "gram", task, [n], lambda: _grams(problem, task, n))


def _grams(problem: MergeProblem, task: str, n: int) -> Arrays:
    import torch

    net = problem.expert_network(task)
    grams: dict[str, torch.Tensor] = {}
    real: list[torch.Tensor] = []

    def listen(name: str, layer: nn.Module) -> Any:
        def add(_: nn.Module, inputs: tuple[torch.Tensor, ...], __: object) -> None:
            x = inputs[0].flatten(0, -2).float()
            if len(x) == real[0].numel():
                x = x[real[0].flatten()]
            gram = x.mT @ x
            grams[name] = grams[name] + gram if name in grams else gram

        return layer.register_forward_hook(add)

    handles = [
        listen(name, linear_of(net, problem.experts.base.full_name(name)))
        for group in problem.groups
        for name in group.names
    ]
    rows = rows_of(problem, task, n)
    tokens = sum(len(row) for row in rows)
    try:
        with torch.no_grad():
            for chosen in _nets.by_length(rows, 32):
                ids, mask = _nets.pad_batch([rows[i] for i in chosen], problem.pad_id)
                real[:] = [mask.bool()]
                net(input_ids=ids, attention_mask=mask)
    finally:
        for handle in handles:
            handle.remove()
    return {name: (gram / tokens).cpu().numpy() for name, gram in grams.items()}


def linear_of(net: nn.Module, weight: str) -> nn.Module:
    """The linear layer that a weight belongs to.

    Raises:
        ProblemError: It belongs to something else.
    """
    from torch import nn

    layer = net.get_submodule(weight.removesuffix(".weight"))
    if not isinstance(layer, nn.Linear):
        raise ProblemError(
            f"{weight!r} belongs to a {type(layer).__name__}; inputs are known of linear layers "
            "only"
        )
    return layer


def _kept(
    problem: MergeProblem, what: str, task: str, settings: list[Json], make: Callable[[], Arrays]
) -> Arrays:
    expert = next(e for e in problem.experts.experts if e.name == task)
    data = problem.task(task)
    content: list[Json] = [FORMAT, problem.experts.base.sha256, expert.sha256]
    content += [data.data_hash("train"), data.max_length, problem.tokenizer_info.path]
    names: list[Json] = [
        name for g in (*problem.groups, *problem.vectors) for name in g.names
    ]  # which weights are merged depends on the other experts too
    key = digest([*content, *settings, names])
    return cached(cache_dir() / "merging" / f"{what}-{key}", make)
