"""A Gaussian mixture as prior of a latent, trained with the networks.

Source: Jiang et al., Variational deep embedding, IJCAI 2017 (the closed forms and the use of the
responsibilities at one sample); DVIMC, AAAI 2024, for many views.

    gamma_k(z) = pi_k N(z; m_k, s_k^2) / sum_j pi_j N(z; m_j, s_j^2)                            (1)
    penalty = sum_k gamma_k [KL(N(mean, var) || N(m_k, s_k^2)) + log(gamma_k / pi_k)]           (2)
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lamps_plugins.multi_view_clustering._deep_nets import STD_FLOOR


class MixturePrior(nn.Module):
    """``K`` diagonal Gaussians with shares; shares are a softmax, so they stay a distribution.

    Args:
        n_clusters: K.
        latent: q.
    """

    def __init__(self, n_clusters: int, latent: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(n_clusters))
        self.means = nn.Parameter(torch.zeros(n_clusters, latent))
        self.log_std = nn.Parameter(torch.zeros(n_clusters, latent))

    @property
    def std(self) -> Tensor:
        """Standard deviations [K, q], at least `STD_FLOOR`."""
        return self.log_std.exp() + STD_FLOOR

    def start(self, means: Tensor, std: Tensor | float = 1.0) -> None:
        """Begin at these means [K, q] and standard deviations [q], with equal shares."""
        with torch.no_grad():
            self.means.copy_(means)
            self.logits.zero_()
            self.log_std.copy_(torch.as_tensor(std).log().expand_as(self.log_std))

    def log_responsibilities(self, z: Tensor) -> Tensor:
        """Equation (1) in logarithms, by log-softmax. Shape: z [n, q]; returns [n, K]."""
        std = self.std
        gap = (z[:, None] - self.means) / std
        log_density = -0.5 * (gap**2).sum(2) - std.log().sum(1)
        return (log_density + self.logits).log_softmax(1)

    def penalty(self, mean: Tensor, var: Tensor, log_gamma: Tensor) -> Tensor:
        """Equation (2) for each row. Shape: mean, var [n, q]; log_gamma [n, K]; returns [n]."""
        kl = gaussian_kl(mean[:, None], var[:, None], self.means, self.std**2)
        gamma = log_gamma.exp()
        log_share = self.logits.log_softmax(0)
        return (gamma * (kl + log_gamma - log_share)).sum(1)

    def numbers(
        self,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Shares [K], means [K, q] and standard deviations [K, q]."""
        with torch.no_grad():
            parts = (self.logits.softmax(0), self.means, self.std)
            shares, means, stds = (part.double().numpy() for part in parts)
        return shares, means, stds

    def smallest_share(self) -> float:
        """Least entry of the shares: near 0, a component has died."""
        return float(self.logits.detach().softmax(0).min())


def gaussian_kl(mean: Tensor, var: Tensor, other_mean: Tensor, other_var: Tensor) -> Tensor:
    """``KL(N(mean, var) || N(other_mean, other_var))`` summed over the last axis, diagonal."""
    ratio = var / other_var
    gap = (mean - other_mean) ** 2 / other_var
    return 0.5 * (ratio + gap - 1.0 - ratio.log()).sum(-1)


def gaussian_log_density(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Log density of diagonal Gaussians, summed over the last axis."""
    gap = (x - mean) / std
    return -0.5 * (gap**2 + math.log(2.0 * math.pi)).sum(-1) - std.log().sum(-1)
