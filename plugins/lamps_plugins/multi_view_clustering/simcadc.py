"""Scalable incomplete multi-view clustering with adaptive data completion.

Paper: He et al., Scalable incomplete multi-view clustering with adaptive data completion,
Information Sciences 2023.

    min sum_v ||X_v + E_v - W_v A Z||^2 + lambda ||W_v||^2 + beta ||Z||^2 + ...                 (1)

with anchors ``A`` that views share, hidden columns completed by ``E_v`` and one anchor graph ``Z``
on the simplex. The implementation is that of imml; time is linear in the rows.
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
    """Hyperparameters of SIMC-ADC."""

    anchors: int = hp.integer(1, low=1, high=5, doc="Anchors, times K.")
    lam: float = hp.real(
        1.0, low=1e-3, high=1e3, log=True, doc="lambda of equation (1), unitless."
    )
    beta: float = hp.real(1.0, low=1e-3, high=1e3, log=True, doc="beta of equation (1), unitless.")


class Simcadc(ImmlClusterer[Params]):
    """Shared anchors with data completion, by imml."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="anchors that all views share, missing rows completed meanwhile",
        paper=Paper(
            title="Scalable incomplete multi-view clustering with adaptive data completion",
            venue="Information Sciences 2023",
        ),
    )

    def estimator(self, library: Any, data: ViewData, seed: int) -> Any:
        """The library's object with our params."""
        return library.SIMCADC(
            n_clusters=data.n_clusters,
            n_anchors=self.params.anchors * data.n_clusters,
            lambda_parameter=self.params.lam,
            beta=self.params.beta,
            random_state=seed,
        )
