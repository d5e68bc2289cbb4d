"""The correlation between views' errors as a trainable or fixed part of a network."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lamps_plugins.multi_view_clustering._aggregate_correlated import (
    correlation_of,
    free_of,
    lifted,
)

Structure = Literal["identity", "equicorrelated", "full", "per-group"]

N_GROUPS = 2
"""Groups of latent dimensions that have a matrix each under ``per-group``."""


class Correlation(nn.Module):
    """R of one of four structures.

    Args:
        structure: ``identity``: independent views; ``equicorrelated``: one number for all pairs;
            ``full``: one matrix; ``per-group``: one matrix for each half of the latent.
        n_views: V.
        learned: Whether its numbers are trained.
        rho: Start of ``equicorrelated``.
    """

    together: Tensor

    def __init__(
        self, structure: Structure, n_views: int, *, learned: bool, rho: float = 0.0
    ) -> None:
        super().__init__()
        self.structure, self.n_views = structure, n_views
        self.register_buffer("together", torch.ones(n_views, n_views))
        if structure == "equicorrelated":
            self.free = nn.Parameter(torch.tensor(self._logit(rho)), requires_grad=learned)
        elif structure in ("full", "per-group"):
            groups = N_GROUPS if structure == "per-group" else 1
            self.free = nn.Parameter(torch.zeros(groups, n_views, n_views), requires_grad=learned)

    @property
    def _lowest(self) -> float:
        return -1.0 / max(self.n_views - 1, 1)  # below, the matrix is no longer definite

    def _logit(self, rho: float) -> float:
        share = (rho - self._lowest) / (1.0 - self._lowest)
        return float(np.log(share) - np.log1p(-share))

    def forward(self) -> Tensor:
        """The matrices, [G, V, V]; pairs that no row shows together are 0."""
        if self.structure == "identity":
            return torch.eye(self.n_views)[None]
        if self.structure == "equicorrelated":
            rho = self._lowest + (1.0 - self._lowest) * self.free.sigmoid()
            eye = torch.eye(self.n_views)
            matrix = (eye + rho * (1.0 - eye))[None]
        else:
            matrix = correlation_of(self.free)
        return matrix * self.together

    def usable(self) -> Tensor:
        """As `forward`, positive definite for any set of views, without a gradient.

        Setting pairs to 0 may break definiteness for sets of views that no training row shows; new
        rows may show them.
        """
        with torch.no_grad():
            found = self.forward()
            if bool(self.together.all()):
                return found
            each = [lifted(matrix.double().numpy()) for matrix in found]
            return torch.from_numpy(np.stack(each)).float()

    def put(self, matrix: NDArray[np.float64]) -> None:
        """Stand at a matrix [V, V]; for ``equicorrelated`` at its mean entry off the diagonal."""
        with torch.no_grad():
            if self.structure == "equicorrelated":
                off = matrix[~np.eye(self.n_views, dtype=bool)]
                rho = float(np.clip(off.mean(), self._lowest + 1e-3, 1.0 - 1e-3))
                self.free.fill_(self._logit(rho))
            elif self.structure != "identity":
                self.free.copy_(torch.from_numpy(free_of(matrix)).float())

    def scatter(self) -> None:
        """Stand at a random matrix, drawn from torch's global generator."""
        with torch.no_grad():
            if self.structure != "identity":
                self.free.copy_(torch.randn_like(self.free))

    def limit_to(self, together: NDArray[np.bool_]) -> None:
        """Hold pairs at 0 that no row shows together. Shape: [V, V]."""
        self.together.copy_(torch.from_numpy(together).float())

    def facts(self) -> dict[str, float]:
        """Least eigenvalue, logarithm of the condition number, mean size off the diagonal."""
        matrices = self.usable().double().numpy()
        values = np.linalg.eigvalsh(matrices)
        off = np.abs(matrices[:, ~np.eye(self.n_views, dtype=bool)])
        least = float(values.min())
        return {
            "r_min_eigenvalue": least,
            "r_log10_condition": float(np.log10(values.max() / max(least, 1e-12))),
            "r_mean_abs": float(off.mean()) if off.size else 0.0,
        }
