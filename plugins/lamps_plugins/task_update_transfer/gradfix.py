"""GradFix: of the old update, only what goes downhill on the new base.

Paper: Rinaldi et al., Gradient-Sign Masking for Task Vector Transport Across Pre-Trained Models,
2025, arXiv 2510.09658. With the gradient of the task loss of the target base on a few labelled
texts,

    theta* = theta_n + alpha m (theta_f - theta_o),
    m = 1 where sign(theta_f - theta_o) = -sign(grad L(theta_n)), else 0                        (1)

The few texts are those that fit a ridge head; the loss is taken under the common head. The sign
is that of the mean gradient, or the one that most texts vote for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.task_update_transfer import _fisher, _networks
from lamps_plugins.task_update_transfer._networks import Rows
from lamps_plugins.task_update_transfer._transfer import FAMILY, Transfer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from lamps_plugins.task_update_transfer._problem import TransferProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of GradFix."""

    alpha: float = hp.real(1.0, low=0.0, high=3.0, doc="Factor on the update; eq. (1).")
    signs: str = hp.choice(
        "mean", ("mean", "vote"), doc="Sign of the mean gradient, or the majority over texts."
    )


class GradFix(Transfer[Params]):
    """The update under a mask of gradient signs."""

    needs_same_width = True
    spec = MethodSpec(
        family=FAMILY,
        summary="keeps what agrees in sign with the new base's descent on a few labelled texts",
        paper=Paper(
            title="Gradient-Sign Masking for Task Vector Transport Across Pre-Trained Models",
            arxiv="2510.09658",
        ),
        tags=Tags(baseline=True),
    )

    def update(
        self, problem: TransferProblem, fidelity: float, rng: Generator
    ) -> Mapping[str, Tensor]:
        """Equation (1)."""
        rows, targets = problem.few()
        self.texts_ = len(rows)
        self.labels_ = 0 if problem.head == "ridge" else len(rows)  # the head was shown them
        net = problem.network({})
        parameters = _networks.encoder_parameters(net)
        names = problem.names(fidelity)
        wanted = {n: parameters[n] for n in names}
        vote = self.params.signs == "vote"
        gradients = gradient(net, wanted, rows, targets, problem.pad_id, vote=vote)
        kept = {n: masked(problem.lineage.task_update(n), gradients[n]) for n in names}
        total = sum(v.numel() for v in kept.values())
        self.found_ = {"kept_share": sum(int((v != 0).sum()) for v in kept.values()) / total}
        return {n: self.params.alpha * v for n, v in kept.items()}


def masked(update: Tensor, gradient: Tensor) -> Tensor:
    """The update where its sign is opposite to the gradient's, else zero."""
    return update.where(update.sign() == -gradient.sign(), update.new_zeros(()))


def gradient(
    net: nn.Module,
    parameters: Mapping[str, nn.Parameter],
    rows: Rows,
    targets: np.ndarray,
    pad_id: int,
    *,
    vote: bool,
) -> dict[str, Tensor]:
    """Gradient of the summed cross entropy over all texts, by name.

    With ``vote`` the sum of the signs of each text's gradient instead.
    """
    import torch

    wanted = list(parameters.values())
    for parameter in wanted:
        parameter.requires_grad_(True)
    sums = [torch.zeros_like(p) for p in wanted]
    batch = 1 if vote else 32
    for loss, _ in _fisher.task_losses(net, rows, targets, pad_id, batch, sampled=False):
        for total, grad in zip(sums, torch.autograd.grad(loss, wanted), strict=True):
            total.add_(grad.sign() if vote else grad)
    return dict(zip(parameters, sums, strict=True))
