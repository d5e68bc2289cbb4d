"""Late fusion incomplete multi-view clustering: base clusterings completed with a consensus.

Paper: Liu et al., Late fusion incomplete multi-view clustering, IEEE TPAMI 2019, equation (5).

    max tr( H' sum_v W_v H_v ) + lambda sum_v tr( H_v' M_v ),    H, W_v, H_v orthonormal        (1)

where ``M_v`` is the spectral clustering of the observed rows of view v. The implementation is that
of imml with its default kernel, a dot product. Memory grows with the square of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lamps import space as hp
from lamps.method import MethodSpec, Paper
from lamps_plugins._views.data import ViewData
from lamps_plugins.multi_view_clustering._imml import ImmlClusterer


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of LF-IMVC."""

    lam: float = hp.real(
        1.0, low=2.0**-5, high=2.0**5, log=True, doc="lambda of equation (1), unitless."
    )
    rounds: int = hp.integer(200, low=20, high=400, log=True, doc="Turns at most.")


class Lfimvc(ImmlClusterer[Params]):
    """Late fusion, by imml."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="fuses base clusterings of the views, missing rows found meanwhile",
        paper=Paper(title="Late fusion incomplete multi-view clustering", venue="IEEE TPAMI 2019"),
    )

    def estimator(self, library: Any, data: ViewData, seed: int) -> Any:
        """The library's object with our params."""
        return library.LFIMVC(
            n_clusters=data.n_clusters,
            lambda_reg=self.params.lam,
            max_iter=self.params.rounds,
            random_state=seed,
        )
