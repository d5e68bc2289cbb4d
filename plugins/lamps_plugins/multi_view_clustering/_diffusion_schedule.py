"""Noise schedules of a diffusion and its deterministic sampler.

Source: Nichol and Dhariwal, arXiv 2102.09672, equation 17 (cosine schedule); Song et al.,
Denoising diffusion implicit models, ICLR 2021, equation 12 with eta = 0.

    x_t = sqrt(abar_t) x_0 + sqrt(1 - abar_t) eps,     t = 1..T                                 (1)
    x_s = sqrt(abar_s) x0hat + sqrt(1 - abar_s) epshat,
          x0hat = (x_t - sqrt(1 - abar_t) epshat) / sqrt(abar_t)                                (2)

The sampler begins with pure noise, so ``abar_T`` must be near 0: `noise_levels` refuses a schedule
that ends above `LAST`. (A linear one of 100 steps up to beta 0.02 ends at 0.37.)
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lamps.errors import ConfigError

LAST = 0.01
OFFSET = 0.008
REACH = 0.96

Denoise = Callable[[Tensor, Tensor], Tensor]
"""From x_t [n, d] and t [n] to the noise in it, [n, d]."""


def cosine_levels(steps: int) -> Tensor:
    """``abar_t`` for t = 0..T under the cosine schedule; decreasing from 1. Shape: [T + 1].

    It ends at `REACH` of its way, where abar is 0.004: nearer to 0, the division in (2) would
    multiply what the network gets wrong by hundreds.
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


def ddim(denoise: Denoise, start: Tensor, levels: Tensor, *, steps: int) -> Tensor:
    """Equation (2) from pure noise to data in some steps, evenly spaced; deterministic.

    Args:
        denoise: Predicts the noise.
        start: x_T, standard normal.
        levels: ``abar``.
        steps: Calls of ``denoise``, at most T.

    Shape:
        start: [n, d]; levels: [T + 1]; returns [n, d].
    """
    last = len(levels) - 1
    times = torch.linspace(last, 0, min(steps, last) + 1).round().long()
    x = start
    for i in range(len(times) - 1):
        now, then = levels[times[i]], levels[times[i + 1]]
        noise = denoise(x, times[i].expand(len(x)))
        clean = (x - (1.0 - now).sqrt() * noise) / now.sqrt()
        # Standardised features are clipped at 8; a wild guess at high noise would be far outside.
        clean = clean.clamp(-8.0, 8.0)
        noise = (x - now.sqrt() * clean) / (1.0 - now).sqrt()
        x = then.sqrt() * clean + (1.0 - then).sqrt() * noise
    return x
