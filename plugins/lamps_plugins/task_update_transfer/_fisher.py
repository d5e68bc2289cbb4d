"""Diagonals of Fisher matrices, as running sums over batches.

With the summed loss ``L_b`` of a batch of ``v_b`` targets,

    F = sum_b (grad L_b)^2 / sum_b v_b                                                          (1)

A batch of one gives the empirical Fisher of single examples; larger batches square sums, in which
gradients of a converged model nearly cancel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lamps.errors import ProblemError
from lamps_plugins.task_update_transfer import _networks
from lamps_plugins.task_update_transfer._generic import Losses
from lamps_plugins.task_update_transfer._networks import Rows

if TYPE_CHECKING:
    from torch import Tensor, nn

COUNT = "targets"
"""Key of ``sum_b v_b`` beside the sums of squares."""


def squared_gradients(
    parameters: Mapping[str, nn.Parameter], losses: Iterable[tuple[Tensor, int]]
) -> dict[str, np.ndarray]:
    """Numerator and denominator of equation (1).

    Args:
        parameters: What is differentiated by, by name.
        losses: Of each batch, with its number of targets.

    Returns:
        Sums of squares by name, float32, and the number of targets as `COUNT`.

    Raises:
        ProblemError: A parameter has no gradient, a gradient is not finite, or nothing was given.
    """
    import torch

    wanted = list(parameters.values())
    for parameter in wanted:
        parameter.requires_grad_(True)
    sums = [torch.zeros_like(p) for p in wanted]
    count = 0
    for loss, n in losses:
        grads: tuple[Tensor | None, ...] = (None,) * len(wanted)
        if loss.requires_grad:
            grads = torch.autograd.grad(loss, wanted, allow_unused=True)
        for name, total, grad in zip(parameters, sums, grads, strict=True):
            if grad is None:
                raise ProblemError(f"no gradient reaches {name!r}, so it has no Fisher")
            total.addcmul_(grad, grad)
        count += n
    if not count:
        raise ProblemError("no valid target for a Fisher; give texts, and labels for a task")
    found = dict(zip(parameters, sums, strict=True))
    for name, total in found.items():
        if not bool(torch.isfinite(total).all()):
            raise ProblemError(f"the Fisher of {name!r} is not finite; check the weights")
    return {k: v.cpu().numpy() for k, v in found.items()} | {COUNT: np.array([count])}


def task_losses(
    net: nn.Module, rows: Rows, targets: np.ndarray, pad_id: int, batch: int, *, sampled: bool
) -> Losses:
    """Cross entropy of a classifier on labelled texts, batch by batch.

    Args:
        net: The classifier.
        rows: Tokens of the texts.
        targets: [n] int64 classes.
        pad_id: The padding token.
        batch: Texts a batch.
        sampled: Draw labels from the model (the true Fisher) instead of taking the observed ones;
            each text has its own stream, made of its token ids.
    """
    import torch
    from torch.nn import functional

    for at, ids, mask in _networks.batches(rows, batch, pad_id):
        logits = net(input_ids=ids, attention_mask=mask).logits.float()
        wanted = torch.from_numpy(np.asarray(targets[at], dtype=np.int64)).to(logits.device)
        if sampled:
            share = logits.detach().softmax(1).double().cumsum(1).cpu().numpy()
            draws = [np.random.default_rng([7, *map(int, row)]).random() for row in rows[at]]
            drawn = (share < np.array(draws)[:, None] * share[:, -1:]).sum(1)
            wanted = torch.from_numpy(drawn.astype(np.int64)).to(logits.device)
        yield functional.cross_entropy(logits, wanted, reduction="sum"), len(wanted)


def added(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Tensor]:
    """Equation (1) over several blocks of texts."""
    import torch

    count = float(sum(int(part[COUNT][0]) for part in parts))
    names = [name for name in parts[0] if name != COUNT]
    return {
        name: sum(torch.from_numpy(np.array(part[name])) for part in parts) / count  # type: ignore[misc]
        for name in names
    }
