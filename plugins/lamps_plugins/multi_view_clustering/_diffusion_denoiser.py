"""A small network that tells a noisy view from its noise, given time and condition.

Source: the diffusion stage of IDCD-style models is not published; this is a plain MLP with SiLU
whose layers are scaled and shifted by time and condition (FiLM, Perez et al., AAAI 2018).
Conditions are dropped at random in training, so one network serves classifier-free guidance (Ho
and Salimans, arXiv 2207.12598):

    told = told_free + guidance (told_given - told_free)                                        (1)
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

TIME_WIDTH = 64
DROP = 0.1


class Denoiser(nn.Module):
    """What `told_of` says of x_t, given t and a condition.

    Args:
        width: Features d of the view.
        condition: Size c of the condition.
        hidden: Units of the three layers.
    """

    def __init__(self, width: int, condition: int, hidden: int) -> None:
        super().__init__()
        self.time = nn.Linear(TIME_WIDTH, hidden)
        self.given = nn.Linear(condition, hidden)
        self.free = nn.Parameter(torch.zeros(hidden))
        widths = (width, hidden, hidden, hidden)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.films = nn.ModuleList(nn.Linear(hidden, 2 * hidden) for _ in self.layers)
        self.out = nn.Linear(hidden, width)

    def forward(self, x: Tensor, t: Tensor, condition: Tensor, used: Tensor) -> Tensor:
        """What is told.

        Shape:
            x: [n, d]; t: [n] int64; condition: [n, c]; used: [n] bool, whether the condition is
            looked at; returns [n, d].
        """
        given = torch.where(used[:, None], self.given(condition), self.free)
        told = F.silu(self.time(time_features(t)) + given)
        h = x
        for layer, film in zip(self.layers, self.films, strict=True):
            scale, shift = film(told).chunk(2, 1)
            h = F.silu(layer(h) * (1.0 + scale) + shift)
        out: Tensor = self.out(h)
        return out

    def guided(self, x: Tensor, t: Tensor, condition: Tensor, guidance: float) -> Tensor:
        """Equation (1); one pass for both, or one alone where guidance is 1."""
        yes = torch.ones(len(x), dtype=torch.bool)
        if guidance == 1.0:
            return self.forward(x, t, condition, yes)
        both = self.forward(
            x.repeat(2, 1), t.repeat(2), condition.repeat(2, 1), torch.cat([yes, ~yes])
        )
        told, free = both.chunk(2)
        guided: Tensor = free + guidance * (told - free)
        return guided


class Regressor(nn.Module):
    """The deterministic twin: a view's features straight from the condition, the same size."""

    def __init__(self, width: int, condition: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(condition, hidden), nn.SiLU(),
            nn.Linear(hidden, hidden), nn.SiLU(),
            nn.Linear(hidden, hidden), nn.SiLU(),
            nn.Linear(hidden, width),
        )  # fmt: skip

    def forward(self, condition: Tensor) -> Tensor:
        """Features [n, d] from conditions [n, c]."""
        out: Tensor = self.layers(condition)
        return out


def time_features(t: Tensor) -> Tensor:
    """Sines and cosines of t at geometric rates. Shape: [n] to [n, 64]."""
    half = TIME_WIDTH // 2
    rates = torch.exp(-math.log(10_000.0) * torch.arange(half) / half)
    angles = t[:, None].float() * rates
    return torch.cat([angles.sin(), angles.cos()], 1)
