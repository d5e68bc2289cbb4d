"""Consensus anchors that are blind to groups: one code a row for all views, and nothing else.

    min sum_v |X_v - Z A_v|^2,      rows of Z on the simplex                                    (1)

This is `cdal` with ``alpha = beta = gamma = 0`` and no sensitive part: what its fairness costs and
brings is the difference between the two. Labels are read off the codes in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

from lamps import space as hp
from lamps.method import MethodSpec, Tags
from lamps_plugins._views.data import ViewData
from lamps_plugins.fair_multi_view_clustering._anchored import Anchored
from lamps_plugins.fair_multi_view_clustering._anchors import Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of consensus anchors."""

    anchors_per_cluster: int = hp.integer(2, low=1, high=5, doc="Anchors over K; m = 2 K.")
    inner_steps: int = hp.choice(5, (1, 5, 20), doc="Gradient moves of the codes in a sweep.")
    sweeps: int = hp.fixed(50, doc="Rounds over anchors and codes, at most.")
    tolerance: float = hp.fixed(
        1e-3, doc="Relative change of the objective at which sweeps stop, unitless."
    )
    restarts: int = hp.integer(20, low=5, high=20, doc="Restarts of the last k-means.")


class ConsensusAnchors(Anchored[Params]):
    """One code a row for all views."""

    spec = MethodSpec(
        family="fair-multi-view-clustering",
        summary="shared anchors without any fairness: the blind half of cdal",
        tags=Tags(baseline=True),
    )

    def weights(self, data: ViewData) -> Weights:
        """All zero."""
        return Weights(
            alpha=0.0,
            beta=(0.0,) * data.n_views,
            gamma=0.0,
            inner_steps=self.params.inner_steps,
            sensitive=False,
        )

    def effort(self) -> tuple[int, int, float, int]:
        """See `Anchored.effort`."""
        p = self.params
        return p.anchors_per_cluster, p.sweeps, p.tolerance, p.restarts
