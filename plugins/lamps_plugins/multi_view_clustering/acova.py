"""ACOVA: a variational latent pooled from views whose errors correlate by a learned matrix.

Paper: Xu et al., Beyond Independence: Learning Correlated Views for Variational Incomplete
Multi-View Clustering, ICML 2026, arXiv 2608.15757, and its public code. Networks, losses (1)-(3)
and stages are those of `_deep_variational`; the pooling is that of `_aggregate_correlated`, with

    R = A scaled to unit diagonal,   A = L L',   L = strict lower(C) + diag(exp(diag C))        (4)

of a free matrix C that starts from the mean cosine similarities of the views' latents.

What R is. Under the variational objective it is a learned pooling matrix, not an estimate of how
errors correlate: small variances help (1), a mean close to every view helps (3), and on data with
a known correlation the learned R does not come nearer to it with more rows, and may pool worse
than R = I. ``r_objective="contrast"`` takes R from how much views disagree instead, where the
unknown truth cancels; that finds the true correlation once the encoders' deviations are
calibrated. The signal ``r_drift`` is the distance between the two.

Ours: R is restricted to the observed views before it is inverted (``block="masked-inverse"`` is
the public code, which is not the marginal once a view is missing); (3) with variances where the
code passes deviations (``coherence_std_bug``); the start stores the logarithm of the Cholesky
diagonal, which (4) exponentiates again; pairs of views that no row shows together have no
correlation. Oracles: R = I is DVIMC; leaving a view out equals never having had it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.random import Generator

from lamps import space as hp
from lamps.errors import LampsWarning
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.multi_view_clustering._aggregate_correlated import (
    Block,
    cosine_correlation,
    difference_correlation,
    pearson_correlation,
)
from lamps_plugins.multi_view_clustering._deep_correlation import Correlation, Structure
from lamps_plugins.multi_view_clustering._deep_variational import (
    VariationalClusterer,
    VariationalParams,
)
from lamps_plugins.multi_view_clustering._deep_views import Tensors

DRIFT_EVERY = 10
"""Epochs between two looks at how far R is from the moments of view differences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(VariationalParams):
    """Hyperparameters of ACOVA."""

    r_lr: float = hp.real(0.01, low=1e-3, high=0.03, log=True, doc="First rate of C; eq. (4).")
    r_init: str = hp.choice(
        "cosine",
        ("cosine", "pearson", "identity", "randn"),
        doc="Where R starts: how latents go along, independence, or a random C.",
    )
    structure: str = hp.choice(
        "full",
        ("identity", "equicorrelated", "full", "per-group"),
        doc="Freedom of R: none, one number, a matrix, or one for each half of the latent.",
    )
    r_objective: str = hp.choice(
        "elbo", ("elbo", "contrast"), doc="R by the loss, or by the moments of view differences."
    )
    block: str = hp.fixed(
        "observed", doc="Inverted block of R: observed, or masked-inverse as in the public code."
    )
    coherence_std_bug: bool = hp.fixed(
        False, doc="Deviations in place of variances in eq. (3), as in the public code."
    )


class Acova(VariationalClusterer[Params]):
    """Views whose errors correlate by a learned matrix."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="Variational latent of views whose errors correlate by a learned matrix.",
        paper=Paper(
            title="Beyond Independence: Learning Correlated Views for Variational Incomplete "
            "Multi-View Clustering",
            arxiv="2608.15757",
            venue="ICML 2026",
        ),
        tags=Tags(),
    )

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self.block = cast(Block, params.block)
        self.correlation_lr = params.r_lr
        self.coherence_on_std = params.coherence_std_bug

    def make_correlation(self, n_views: int) -> Correlation:
        """See `VariationalClusterer.make_correlation`."""
        structure = cast(Structure, self.params.structure)
        return Correlation(structure, n_views, learned=self.params.r_objective == "elbo")

    def start_correlation(self, latents: np.ndarray, mask: np.ndarray, rng: Generator) -> None:
        """See `VariationalClusterer.start_correlation`."""
        apart = int(self.signals_["pairs_never_together"])
        if apart:
            warnings.warn(
                f"{apart} pairs of views are never seen together, so their correlation cannot be "
                "known: it is held at 0",
                LampsWarning,
                stacklevel=2,
            )
        if self.params.r_init == "randn":
            self.correlation_.scatter()
        elif self.params.r_init == "identity":
            self.correlation_.put(np.eye(mask.shape[1]))
        else:
            start = cosine_correlation if self.params.r_init == "cosine" else pearson_correlation
            self.correlation_.put(start(latents, mask))

    def refresh_correlation(self, tensors: Tensors, epoch: int) -> None:
        """See `VariationalClusterer.refresh_correlation`; R's distance to the moments, too."""
        if self.params.r_objective == "elbo" and epoch % DRIFT_EVERY:
            return
        with torch.no_grad():
            mu, sigma = self.posteriors(tensors.views)
        moments = difference_correlation(mu.numpy(), sigma.numpy(), tensors.mask.numpy())
        if self.params.r_objective == "contrast":
            self.correlation_.put(moments)
        matrix = self.correlation_.usable().double().numpy()
        self.signals_["r_drift"] = float(np.linalg.norm(matrix - moments, axis=(1, 2)).mean())
