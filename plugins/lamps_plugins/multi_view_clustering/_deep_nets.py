"""Encoders and decoders of the deep methods: plain MLPs with Gaussian heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTHS: Mapping[str, tuple[int, ...]] = {
    "small": (128, 128, 256),
    "medium": (256, 256, 512),
    "paper": (500, 500, 2000),
}
"""Hidden layers of ACOVA's encoders; decoders have them in reverse."""

STD_FLOOR = 1e-3

NARROW = -2.0
"""Start of the heads of deviations: near 0.13, so that clusters found by the autoencoders are not
washed out by noise when joint training begins."""


def mlp(
    widths: Sequence[int], *, activate_last: bool = False, norm: bool = False
) -> nn.Sequential:
    """Linear layers with ReLU between them, and after the last where asked.

    With ``norm`` a batch norm stands before each ReLU.
    """
    layers: list[nn.Module] = []
    for i in range(len(widths) - 1):
        layers.append(nn.Linear(widths[i], widths[i + 1]))
        if activate_last or i + 2 < len(widths):
            layers += [nn.BatchNorm1d(widths[i + 1]), nn.ReLU()] if norm else [nn.ReLU()]
    return nn.Sequential(*layers)


class GaussianEncoder(nn.Module):
    """A view's features to means and standard deviations of one or more latents.

    Args:
        width: Number of features.
        hidden: Hidden layers.
        latents: Sizes of the latents, one pair of heads each.
        start: Added to the heads of deviations before their softplus; 0 begins near 0.7.
    """

    def __init__(
        self, width: int, hidden: Sequence[int], latents: Sequence[int], *, start: float = 0.0
    ) -> None:
        super().__init__()
        self.trunk = mlp((width, *hidden), activate_last=True)
        self.means = nn.ModuleList(nn.Linear(hidden[-1], q) for q in latents)
        self.spreads = nn.ModuleList(nn.Linear(hidden[-1], q) for q in latents)
        for head in self.spreads:
            with torch.no_grad():
                cast(nn.Linear, head).bias.add_(start)

    def forward(self, x: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Mean [n, q] and standard deviation [n, q], at least `STD_FLOOR`, of each latent."""
        h = self.trunk(x)
        pairs = zip(self.means, self.spreads, strict=True)
        return [(mean(h), F.softplus(spread(h)) + STD_FLOOR) for mean, spread in pairs]


def decoder(latent: int, hidden: Sequence[int], width: int) -> nn.Sequential:
    """From a latent back to a view's features, the encoder's layers in reverse."""
    return mlp((latent, *reversed(hidden), width))


def adam(parameters: Sequence[nn.Parameter], lr: float) -> torch.optim.Adam:
    """Adam with the fused CPU kernel: one pass over the weights a step."""
    return torch.optim.Adam(parameters, lr=lr, fused=True)


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """The same rate for all groups of an optimiser, until it is set again."""
    for group in optimizer.param_groups:
        group["lr"] = lr
