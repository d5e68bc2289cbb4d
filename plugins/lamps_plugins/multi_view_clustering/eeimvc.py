"""Efficient and effective incomplete multi-view clustering: kernels completed in low rank.

Paper: Liu et al., Efficient and effective regularized incomplete multi-view clustering, IEEE TPAMI
2021, equation (9).

    max tr( H' sum_v beta_v W_v H_v ) + lambda sum_v tr( H_v' M_v ),  H, W_v, H_v orthonormal  (1)

where ``H_v`` is the base clustering of view v, of which the hidden rows are found with the
consensus H, and ``M_v`` is the clustering of the observed rows. The implementation is that of
imml; the kernel is its default. Memory grows with the square of the rows.
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
    """Hyperparameters of EE-IMVC."""

    lam: float = hp.real(
        1.0, low=2.0**-5, high=2.0**5, log=True, doc="lambda of equation (1), unitless."
    )


class Eeimvc(ImmlClusterer[Params]):
    """Late fusion with completed base clusterings, by imml."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="completes base clusterings of the views while it fuses them",
        paper=Paper(
            title="Efficient and effective regularized incomplete multi-view clustering",
            venue="IEEE TPAMI 2021",
        ),
    )

    def estimator(self, library: Any, data: ViewData, seed: int) -> Any:
        """The library's object with our params."""
        return library.EEIMVC(
            n_clusters=data.n_clusters, lambda_reg=self.params.lam, random_state=seed
        )
