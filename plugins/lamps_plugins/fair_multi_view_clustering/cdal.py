"""Anchors that are split into a fair and a sensitive part, in time and memory linear in n.

Paper: Causal Disentangled Anchor Learning for Scalable Fair Multi-view Clustering, ICML 2026; the
updates and the grid are those of the authors' published program.

    min sum_v |X_v - Z_u A_v - Z_s B_v|^2 + alpha |Z_u' G|^2 + beta sum_v |A_v B_v'|^2
        + gamma |Z_s - G1 W'|^2,        rows of Z_u, Z_s on the simplex,  W'W = I               (1)

with the groups one-hot in ``G1``, centred in ``G``; labels are k-means on the first K left
singular vectors of ``Z_u``. The last term is exact in this form only, see `_anchors`. Weak points
of the published form are parameters: ``zu_step='joint'`` is its step, which hardly moves for large
``alpha``; ``paper_scale`` keeps ``alpha`` and ``beta`` as they are, where we divide them by n and
by the width of the view so that defaults transfer. Ours as well: ``fair_share``. A landmark fits
its rows from scratch: a start from the anchors of the landmark before would depend on where that
stopped.
Oracle: with ``alpha = beta = gamma = 0`` and no sensitive part this is `consensus_anchors`.
"""

from __future__ import annotations

from dataclasses import dataclass

from lamps import space as hp
from lamps.method import MethodSpec, Paper
from lamps_plugins._views.data import ViewData
from lamps_plugins.fair_multi_view_clustering._anchored import Anchored
from lamps_plugins.fair_multi_view_clustering._anchors import ZU_STEPS, Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of CDAL."""

    anchors_per_cluster: int = hp.integer(
        2, low=1, high=5, doc="Content anchors, and as many sensitive ones, over K; m = 2 K."
    )
    alpha: float = hp.real(
        1000.0, low=1e-5, high=1e3, log=True,
        doc="Weight of the dependence of content codes on the group; eq. (1). 'split' asks only "
        "whether it is positive.",
    )  # fmt: skip
    beta: float = hp.real(
        1000.0, low=1e-5, high=1e3, log=True,
        doc="Weight of the overlap of content and sensitive anchors; eq. (1).",
    )  # fmt: skip
    gamma: float = hp.real(
        1000.0, low=1e-5, high=1e3, log=True,
        doc="Weight of the tie between sensitive codes and groups; eq. (1).",
    )  # fmt: skip
    zu_step: str = hp.choice(
        "split", ZU_STEPS, doc="How the content codes move; 'joint' is the published step."
    )
    fair_share: float = hp.real(
        1.0, low=0.0, high=1.0,
        doc="Share of the groups' mean difference that a 'split' move takes out, unitless.",
    )  # fmt: skip
    inner_steps: int = hp.choice(5, (1, 5, 20), doc="Moves of the content codes in a sweep.")
    sweeps: int = hp.fixed(50, doc="Rounds over all blocks, at most.")
    tolerance: float = hp.fixed(
        1e-3, doc="Relative change of the objective at which sweeps stop, unitless."
    )
    restarts: int = hp.integer(20, low=5, high=20, doc="Restarts of the last k-means.")
    paper_scale: bool = hp.choice(
        False, (False, True), doc="Take alpha and beta as they are, not over n and over widths."
    )


class Cdal(Anchored[Params]):
    """Fair clustering by anchors."""

    spec = MethodSpec(
        family="fair-multi-view-clustering",
        summary="splits anchors into a fair and a sensitive part; linear in the number of rows",
        paper=Paper(
            title="Causal Disentangled Anchor Learning for Scalable Fair Multi-view Clustering",
            venue="ICML 2026",
        ),
    )

    def weights(self, data: ViewData) -> Weights:
        """Weights of (1), divided by n and by widths unless ``paper_scale``."""
        p = self.params
        return Weights(
            alpha=p.alpha if p.paper_scale else p.alpha / data.n,
            beta=tuple(p.beta if p.paper_scale else p.beta / d for d in data.dims),
            gamma=p.gamma,
            zu_step=p.zu_step,
            inner_steps=p.inner_steps,
            fair_share=p.fair_share,
        )

    def effort(self) -> tuple[int, int, float, int]:
        """See `Anchored.effort`."""
        p = self.params
        return p.anchors_per_cluster, p.sweeps, p.tolerance, p.restarts
