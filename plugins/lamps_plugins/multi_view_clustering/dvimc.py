"""DVIMC: a variational latent pooled from the observed views as if their errors were independent.

Paper: Xu et al., Deep Variational Incomplete Multi-View Clustering: Exploring Shared Clustering
Structures, AAAI 2024. The networks, losses and start are those of `_deep_variational`, with

    R = I:   1 / var = sum_v 1 / sigma_v^2,     mean = var sum_v mu_v / sigma_v^2               (1)

over the observed views: a product of experts without a prior expert. Ours: the settings of ACOVA's
paper, so that the two differ in R alone. Oracle: (1) to 1e-6.
"""

from __future__ import annotations

from dataclasses import dataclass

from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.multi_view_clustering._deep_correlation import Correlation
from lamps_plugins.multi_view_clustering._deep_variational import (
    VariationalClusterer,
    VariationalParams,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(VariationalParams):
    """Hyperparameters of DVIMC."""


class Dvimc(VariationalClusterer[Params]):
    """Independent views: the product of experts."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="Variational latent of all observed views as a product of experts.",
        paper=Paper(
            title="Deep Variational Incomplete Multi-View Clustering: Exploring Shared "
            "Clustering Structures",
            venue="AAAI 2024",
        ),
        tags=Tags(),
    )

    def make_correlation(self, n_views: int) -> Correlation:
        """See `VariationalClusterer.make_correlation`."""
        return Correlation("identity", n_views, learned=False)
