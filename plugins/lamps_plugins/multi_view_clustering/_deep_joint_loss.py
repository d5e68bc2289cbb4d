"""What IDCD-style models minimise in their joint stage, part by part; see `idcd` (2) to (6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lamps_plugins.multi_view_clustering._deep_disentangled import DisentangledNets, Posteriors
from lamps_plugins.multi_view_clustering._deep_information import (
    Critics,
    coherence,
    contrast_of_views,
    dependence,
    over_observed,
    sampled,
)
from lamps_plugins.multi_view_clustering._deep_prior import MixturePrior, gaussian_kl


@dataclass(frozen=True, slots=True, kw_only=True)
class JointLoss:
    """The parts of the loss, each without its weight.

    Args:
        nets: Encoders, decoders and pooling.
        prior: Of z; None takes the standard normal.
        critics: For the bound on the dependence of s and z.
        hsic: Whether HSIC takes the critics' place; with neither there is no such part.
        contrast: Whether there is a part for the consistency of views.
        coherence: Factor c of its KL part.
        temperature: Of its InfoNCE part.
    """

    nets: DisentangledNets
    prior: MixturePrior | None
    critics: Critics | None
    hsic: bool
    contrast: bool
    coherence: float
    temperature: float

    def parts(
        self, said: Posteriors, views: tuple[Tensor, ...], mask: Tensor
    ) -> dict[str, Tensor]:
        """``rec``, ``gmm``, ``own``, ``dep``, ``con``, and the share of usable critics.

        Shape:
            views: V times [n, d_v]; mask: [n, V]; returns scalars.
        """
        mean, std = self.nets.pool(said, self.nets.drawn(mask))
        z, s = sampled(mean, std), sampled(said.s, said.s_std)
        told = self.nets.decode(z, s)
        errors = [((out - x) ** 2).mean(1) for out, x in zip(told, views, strict=True)]
        width = float(np.mean([x.shape[1] for x in views]))
        own_kl = gaussian_kl(said.s, said.s_std**2, torch.zeros(()), torch.ones(()))
        dep, usable = self._dependence(sampled(said.z, said.z_std), s, mask)
        return {
            "rec": width * over_observed(torch.stack(errors, 1), mask),
            "gmm": self._prior_penalty(z, mean, std),
            "own": over_observed(own_kl, mask),
            "dep": dep,
            "con": self._consistency(said, mean, std, mask),
            "critics_usable": torch.tensor(usable),
        }

    def _prior_penalty(self, z: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        if self.prior is None:
            return gaussian_kl(mean, std**2, torch.zeros(()), torch.ones(())).mean()
        return self.prior.penalty(mean, std**2, self.prior.log_responsibilities(z)).mean()

    def _dependence(self, z: Tensor, s: Tensor, mask: Tensor) -> tuple[Tensor, float]:
        if self.critics is not None:
            return self.critics.bound(z, s, mask)
        return (dependence(z, s, mask) if self.hsic else torch.zeros(())), 1.0

    def _consistency(self, said: Posteriors, mean: Tensor, std: Tensor, mask: Tensor) -> Tensor:
        if not self.contrast:
            return torch.zeros(())
        pairs = contrast_of_views(said.z, mask, temperature=self.temperature)
        return pairs + self.coherence * coherence(mean, std**2, said.z, said.z_std, mask)
