"""CoMVC: SiMVC with a contrastive loss that brings the views' codes of a row together.

Paper: Trosten et al., Reconsidering Representation Alignment for Multi-view Clustering, CVPR 2021,
section 4; equations and what is ours in `_deep_divergence`. Pairs of views are contrasted over the
rows of a batch that show both.
"""

from __future__ import annotations

from dataclasses import dataclass

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.multi_view_clustering._deep_divergence import (
    DivergenceClusterer,
    DivergenceParams,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(DivergenceParams):
    """Hyperparameters of CoMVC."""

    delta: float = hp.real(
        0.1, low=0.01, high=1.0, log=True, doc="Weight of the contrast, unitless; eq. (3)."
    )
    tau: float = hp.choice(0.1, (0.07, 0.1, 0.5), doc="Temperature of InfoNCE, unitless.")


class Comvc(DivergenceClusterer[Params]):
    """Weighed and aligned views, clustered by a divergence of kernels."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="Weighed sum of aligned codes, clustered by a divergence of kernels.",
        paper=Paper(
            title="Reconsidering Representation Alignment for Multi-view Clustering",
            venue="CVPR 2021",
        ),
        tags=Tags(),
    )

    @property
    def contrast(self) -> float:
        """See `DivergenceClusterer.contrast`."""
        return self.params.delta

    @property
    def temperature(self) -> float:
        """See `DivergenceClusterer.temperature`."""
        return self.params.tau
