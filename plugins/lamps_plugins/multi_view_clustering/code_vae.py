"""CoDE-VAE: a variational latent pooled from views whose errors all correlate by one fixed number.

Paper: Mancisidor et al., Aggregation of dependent expert distributions in multimodal variational
autoencoders, ICML 2025; the rule alone, on the networks, losses and start of `_deep_variational`:

    R = (1 - rho) I + rho 1 1'                                                                  (1)

in `_aggregate_correlated`. Oracles: ``rho = 0`` is DVIMC to 1e-6; two views with deviations 1 and
2 and ``rho = 0.5`` weigh 1 and 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.multi_view_clustering._deep_correlation import Correlation
from lamps_plugins.multi_view_clustering._deep_variational import (
    VariationalClusterer,
    VariationalParams,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(VariationalParams):
    """Hyperparameters of CoDE-VAE."""

    rho: float = hp.choice(
        0.5, (0.3, 0.5, 0.7), doc="Correlation of any two views' errors, unitless; eq. (1)."
    )


class CodeVae(VariationalClusterer[Params]):
    """Equally correlated views."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="Variational latent of views whose errors share one fixed correlation.",
        paper=Paper(
            title="Aggregation of dependent expert distributions in multimodal variational "
            "autoencoders",
            venue="ICML 2025",
        ),
        tags=Tags(),
    )

    def make_correlation(self, n_views: int) -> Correlation:
        """See `VariationalClusterer.make_correlation`."""
        return Correlation("equicorrelated", n_views, learned=False, rho=self.params.rho)
