"""The third stage of IDCD-style models: a network a view, trained with the encoders frozen.

What samples is an average of the weights over the last steps (Ho et al., Denoising diffusion
probabilistic models, NeurIPS 2020, appendix B): a landmark in the midst of a stage is as usable as
its end, which a rate that falls to 0 would not give.

    averaged <- d averaged + (1 - d) weights,    d = min(`DECAY`, (1 + k) / (10 + k))           (1)

where k counts a view's steps from 0.

Conditions are made once an epoch for all rows; only the draw of s differs from step to step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lamps_plugins.multi_view_clustering._deep_disentangled import DisentangledNets
from lamps_plugins.multi_view_clustering._deep_information import sampled
from lamps_plugins.multi_view_clustering._deep_views import Tensors, batches, n_batches
from lamps_plugins.multi_view_clustering._diffusion_denoiser import DROP, Denoiser
from lamps_plugins.multi_view_clustering._diffusion_imputer import (
    LEAST_ROWS,
    Codes,
    Imputer,
    without,
)
from lamps_plugins.multi_view_clustering._diffusion_schedule import noised, told_of

if TYPE_CHECKING:
    from numpy.random import Generator
    from torch.optim import Optimizer

DECAY = 0.995
BATCH = 64
"""Rows of a batch: these networks want many steps rather than large ones."""

CLIP_NORM = 10.0


@dataclass(frozen=True, slots=True)
class Examples:
    """What one view's network learns from.

    Args:
        code: The view's features as the network sees them. Shape: [n, codes].
        z: Pooled from the other views. Shape: [n, q].
        s: Means of the view's own latent. Shape: [n, r].
        s_std: Its deviations.
    """

    code: Tensor
    z: Tensor
    s: Tensor
    s_std: Tensor


def examples(imputer: Imputer, nets: DisentangledNets, tensors: Tensors) -> dict[int, Examples]:
    """By view: the rows that show it and another one. Views that few rows show are left out."""
    found = {}
    with torch.no_grad():
        said = nets.encode(tensors.views)
        several = tensors.mask.sum(1) > 1
        for v, x in enumerate(tensors.views):
            shown = tensors.mask[:, v]
            rows = shown & several
            if int(shown.sum()) < LEAST_ROWS or not bool(rows.any()):
                continue
            found[v] = Examples(
                code=cast(Codes, imputer.codes[v]).code(x[rows]),
                z=without(nets, said.take(rows), tensors.mask[rows], v),
                s=said.s[rows, v],
                s_std=said.s_std[rows, v],
            )
    return found


def view_loss(imputer: Imputer, view: int, code: Tensor, condition: Tensor) -> Tensor:
    """Squared error of what the view's network is to tell, or of the features for the twin.

    Shape:
        code: [n, codes]; condition: [n, q + r]; returns a scalar, mean over rows and codes.
    """
    net, settings = imputer.nets[view], imputer.settings
    if not isinstance(net, Denoiser):
        return F.mse_loss(net(condition), code)
    n = len(code)
    t = torch.randint(1, settings.steps + 1, (n,))
    noise, used = torch.randn_like(code), torch.rand(n) >= DROP
    told = net(noised(code, t, noise, imputer.levels), t, condition, used)
    return F.mse_loss(told, told_of(code, noise, t, imputer.levels, settings.predict))


def train_epoch(
    imputer: Imputer,
    nets: DisentangledNets,
    tensors: Tensors,
    optimizer: Optimizer,
    *,
    epoch: int,
    rng: Generator,
) -> float:
    """One pass of each view's network over its rows; its loss, mean over views.

    Args:
        imputer: The networks that learn.
        nets: The encoders, frozen.
        tensors: All rows.
        optimizer: Of the imputer's `Imputer.nets`.
        epoch: Counted from 0.
        rng: Order of the rows; torch's global generator is drawn from, too.
    """
    losses = []
    for v, known in examples(imputer, nets, tensors).items():
        n, total = len(known.code), 0.0
        weights = list(imputer.nets[v].parameters())
        averaged = list(imputer.averaged[v].parameters())
        done = epoch * n_batches(n, BATCH)
        for k, rows in enumerate(batches(n, BATCH, rng), done):
            s = sampled(known.s[rows], known.s_std[rows])
            condition = torch.cat([known.z[rows], s], 1)
            loss = view_loss(imputer, v, known.code[rows], condition)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(weights, CLIP_NORM)
            optimizer.step()
            follow(averaged, weights, k)
            total += float(loss.detach()) * len(rows)
        losses.append(total / n)
    return sum(losses) / max(len(losses), 1)


def follow(averaged: list[nn.Parameter], weights: list[nn.Parameter], step: int) -> None:
    """Equation (1), in place."""
    decay = min(DECAY, (1.0 + step) / (10.0 + step))
    with torch.no_grad():
        for old, new in zip(averaged, weights, strict=True):
            old.lerp_(new, 1.0 - decay)
