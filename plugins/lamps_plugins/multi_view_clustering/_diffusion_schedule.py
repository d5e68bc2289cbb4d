"""Noise schedules of a diffusion, what a network tells of it, and its deterministic sampler.

Source: Nichol and Dhariwal, arXiv 2102.09672, equation 17 (cosine schedule); Song et al.,
Denoising diffusion implicit models, ICLR 2021, equation 12 with eta = 0; Salimans and Ho,
Progressive distillation for fast sampling of diffusion models, ICLR 2022, section 4 (v).

    x_t = sqrt(abar_t) x_0 + sqrt(1 - abar_t) eps,     t = 1..T                                 (1)
    x_s = sqrt(abar_s) x0hat + sqrt(1 - abar_s) epshat,
          epshat = (x_t - sqrt(abar_t) x0hat) / sqrt(1 - abar_t)                                (2)
    v   = sqrt(abar_t) eps - sqrt(1 - abar_t) x_0                                               (3)

The sampler begins with pure noise, so ``abar_T`` must be near 0: `noise_levels` refuses a schedule
that ends above `LAST`. (A linear one of 100 steps up to beta 0.02 ends at 0.37.) A network that
tells the noise has its errors in x0hat multiplied by sqrt((1 - abar_t) / abar_t), 60 at the first
step of the sampler; one that tells v never by more than 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from lamps.errors import ConfigError

LAST = 0.01
OFFSET = 0.008
REACH = 0.99
BOUND = 8.0
"""Where x0hat is clipped: standardised features are, too."""

Predict = Literal["v", "x0", "noise"]
"""What a network tells of x_t."""

Clean = Callable[[Tensor, Tensor], Tensor]
"""From x_t [n, d] and t [n] to x0hat, [n, d]."""


def cosine_levels(steps: int) -> Tensor:
    """``abar_t`` for t = 0..T under the cosine schedule; decreasing from 1. Shape: [T + 1].

    It ends at `REACH` of its way, where abar is 0.0002: near enough to 0 that samples of narrow
    data are not pulled to the origin, and not so near that a network that tells the noise has its
    errors multiplied by hundreds.
    """
    place = REACH * torch.arange(steps + 1, dtype=torch.float64) / steps
    curve = torch.cos((place + OFFSET) / (1.0 + OFFSET) * torch.pi / 2.0) ** 2
    return noise_levels(1.0 - curve[1:] / curve[:-1])


def noise_levels(beta: Tensor) -> Tensor:
    """``abar_t`` for t = 0..T from the variances added by each step. Shape: [T] to [T + 1].

    Raises:
        ConfigError: The last level is not below `LAST`: pure noise would be off the schedule.
    """
    levels = torch.cat([torch.ones(1, dtype=beta.dtype), torch.cumprod(1.0 - beta, 0)])
    if float(levels[-1]) >= LAST:
        raise ConfigError(
            f"a schedule of {len(beta)} steps ends with abar {float(levels[-1]):.3g}, expected "
            f"below {LAST}; take more or larger steps"
        )
    return levels.float()


def noised(x: Tensor, t: Tensor, noise: Tensor, levels: Tensor) -> Tensor:
    """Equation (1). Shape: x, noise [n, d]; t [n] int64 of 1..T; levels [T + 1]."""
    kept = levels[t][:, None]
    return kept.sqrt() * x + (1.0 - kept).sqrt() * noise


def told_of(clean: Tensor, noise: Tensor, t: Tensor, levels: Tensor, predict: Predict) -> Tensor:
    """What the network is to tell: x_0, the noise, or (3). Shape: as `noised`."""
    if predict == "x0":
        return clean
    if predict == "noise":
        return noise
    kept = levels[t][:, None]
    return kept.sqrt() * noise - (1.0 - kept).sqrt() * clean


def clean_of(told: Tensor, x: Tensor, t: Tensor, levels: Tensor, predict: Predict) -> Tensor:
    """x0hat from x_t and what the network tells of it: `told_of` and (1) solved for x_0.

    Shape:
        told, x: [n, d]; t: [n] int64 of 1..T; levels: [T + 1]; returns [n, d].
    """
    if predict == "x0":
        return told
    kept = levels[t][:, None]
    if predict == "noise":
        return (x - (1.0 - kept).sqrt() * told) / kept.sqrt()
    return kept.sqrt() * x - (1.0 - kept).sqrt() * told


def noise_of(clean: Tensor, x: Tensor, t: Tensor, levels: Tensor) -> Tensor:
    """Epshat of (2): the noise that makes x_t of x_0. Shape: as `clean_of`."""
    kept = levels[t][:, None]
    return (x - kept.sqrt() * clean) / (1.0 - kept).sqrt()


def ddim(clean: Clean, start: Tensor, levels: Tensor, *, steps: int) -> Tensor:
    """Equation (2) from pure noise to data in some steps, evenly spaced; deterministic.

    Args:
        clean: Predicts x_0; clipped to `BOUND`, for a wild guess at high noise is far outside.
        start: x_T, standard normal.
        levels: ``abar``.
        steps: Calls of ``clean``, at most T.

    Shape:
        start: [n, d]; levels: [T + 1]; returns [n, d].
    """
    last = len(levels) - 1
    times = torch.linspace(last, 0, min(steps, last) + 1).round().long()
    x = start
    for now, then in itertools.pairwise(times):
        t = now.expand(len(x))
        guess = clean(x, t).clamp(-BOUND, BOUND)
        x = noised(guess, then.expand(len(x)), noise_of(guess, x, t, levels), levels)
    return x
