"""Information between the parts of disentangled latents: dependence to avoid, agreement to seek.

Critics predict a view's own latent ``s_v`` from its shared one ``z_v``: as long as they can, the
two parts depend on each other.
"""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lamps_plugins.multi_view_clustering._deep_losses import hsic, info_nce
from lamps_plugins.multi_view_clustering._deep_nets import STD_FLOOR, mlp
from lamps_plugins.multi_view_clustering._deep_prior import gaussian_kl, gaussian_log_density


class Critics(nn.Module):
    """Gaussian predictions of each view's s from its z, for the bound `Critics.bound`.

    Source: Cheng et al., CLUB: a contrastive log-ratio upper bound of mutual information, ICML
    2020, equation 14 (one permutation).

    Args:
        n_views: V.
        shared: q.
        own: r.
    """

    def __init__(self, n_views: int, shared: int, own: int) -> None:
        super().__init__()
        self.nets = nn.ModuleList(mlp((shared, 64, 2 * own)) for _ in range(n_views))

    def log_density(self, view: int, z: Tensor, s: Tensor) -> Tensor:
        """``log r_v(s | z)`` of each row. Shape: z [n, q]; s [n, r]; returns [n]."""
        mean, spread = self.nets[view](z).chunk(2, 1)
        return gaussian_log_density(s, mean, F.softplus(spread) + STD_FLOOR)

    def nll(self, z: Tensor, s: Tensor, mask: Tensor) -> Tensor:
        """Negative log-likelihood, mean over a view's rows and over views; what critics learn.

        Shape:
            z: [n, V, q]; s: [n, V, r]; mask: [n, V]; returns a scalar.
        """
        each = [
            -self.log_density(v, z[rows, v], s[rows, v]).mean()
            for v, rows in enumerate(mask.T)
            if int(rows.sum())
        ]
        return torch.stack(each).mean()

    def bound(self, z: Tensor, s: Tensor, mask: Tensor) -> tuple[Tensor, float]:
        """Sum over views of the bound on the dependence of s and z, and the share that counts.

        ``mean_i log r(s_i | z_i) - mean_i log r(s_perm(i) | z_i)``, not below 0. A view whose
        critic predicts worse than a Gaussian that knows no z gives no gradient: its bound would be
        none, and driving it down would teach the encoder noise.

        Shape:
            z: [n, V, q]; s: [n, V, r]; mask: [n, V].
        """
        total, counted, usable = z.sum() * 0.0, 0, 0
        for v, rows in enumerate(mask.T):
            n = int(rows.sum())
            if n < 2:
                continue
            counted += 1
            here, own = z[rows, v], s[rows, v]
            matched = self.log_density(v, here, own)
            with torch.no_grad():
                blind = gaussian_log_density(own, own.mean(0), own.std(0) + STD_FLOOR).mean()
                frozen = bool(matched.mean() < blind)
            if frozen:
                continue
            usable += 1
            crossed = self.log_density(v, here, own[torch.randperm(n)])
            total = total + (matched.mean() - crossed.mean()).clamp_min(0.0)
        return total, usable / max(counted, 1)


def dependence(z: Tensor, s: Tensor, mask: Tensor) -> Tensor:
    """Normalised HSIC of each view's z and s, summed over views; needs no critic.

    Shape:
        z: [n, V, q]; s: [n, V, r]; mask: [n, V]; returns a scalar.
    """
    parts = [hsic(z[rows, v], s[rows, v]) for v, rows in enumerate(mask.T)]
    return torch.stack(parts).sum()


def contrast_of_views(z: Tensor, mask: Tensor, *, temperature: float) -> Tensor:
    """InfoNCE of each pair of views over the rows that show both, summed over pairs.

    Shape:
        z: [n, V, q]; mask: [n, V]; returns a scalar.
    """
    total = torch.zeros(())
    for v, w in combinations(range(mask.shape[1]), 2):
        rows = mask[:, v] & mask[:, w]
        total = total + info_nce(z[rows, v], z[rows, w], temperature=temperature)
    return total


def coherence(mean: Tensor, var: Tensor, z: Tensor, z_std: Tensor, mask: Tensor) -> Tensor:
    """KL of the pooled latent to what each observed view says: mean over views, then rows.

    Shape:
        mean, var: [n, q]; z, z_std: [n, V, q]; mask: [n, V]; returns a scalar.
    """
    each = gaussian_kl(mean[:, None], var[:, None], z, z_std**2)
    return ((each * mask).sum(1) / mask.sum(1)).mean()


def sampled(mean: Tensor, std: Tensor) -> Tensor:
    """One draw of diagonal Gaussians that lets gradients through."""
    return mean + std * torch.randn_like(mean)


def over_observed(each: Tensor, mask: Tensor) -> Tensor:
    """Sum over a row's observed views, mean over rows. Shape: each, mask [n, V]."""
    return (each * mask).sum(1).mean()
