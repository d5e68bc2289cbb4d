"""SiMVC: views are weighed into one code and clusters are read off it, without aligning views.

Paper: Trosten et al., Reconsidering Representation Alignment for Multi-view Clustering, CVPR 2021,
section 3; equations and what is ours in `_deep_divergence`, with no contrast in (3).
"""

from __future__ import annotations

from dataclasses import dataclass

from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.multi_view_clustering._deep_divergence import (
    DivergenceClusterer,
    DivergenceParams,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(DivergenceParams):
    """Hyperparameters of SiMVC."""


class Simvc(DivergenceClusterer[Params]):
    """Weighed views, clustered by a divergence of kernels."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="Weighed sum of the views' codes, clustered by a divergence of kernels.",
        paper=Paper(
            title="Reconsidering Representation Alignment for Multi-view Clustering",
            venue="CVPR 2021",
        ),
        tags=Tags(),
    )
