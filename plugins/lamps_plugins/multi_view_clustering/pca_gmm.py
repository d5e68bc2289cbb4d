"""Mixture of Gaussians on principal components, missing views integrated out exactly.

Paper: Ghahramani and Jordan, Supervised learning from incomplete data via an EM approach, NeurIPS
1994, section 2, for Gaussians with full covariances.

    p(s_O) = sum_k pi_k N(s_O; mu_k[O], Sigma_k[O, O])                                          (1)

with ``s`` the components of all views side by side and O those of the observed views: no cell is
filled. Starts at k-means on the means of missing components. A row's embedding is its expected
position given what was observed, whatever cluster it is in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lamps import space as hp
from lamps.method import MethodSpec, Paper, State
from lamps_plugins._views.clusterer import Assignment, Clusterer, Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.linear import kmeans
from lamps_plugins._views.rule import softmax
from lamps_plugins.multi_view_clustering._gmm import (
    Mixture,
    em,
    expected_rows,
    log_joint,
    start,
)
from lamps_plugins.multi_view_clustering._pca import Basis, bases, project


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of a mixture on principal components."""

    components: int = hp.integer(8, low=2, high=20, log=True, doc="Components of a view at most.")
    variance: float = hp.real(0.95, low=0.5, high=0.99, doc="Share of a view's variance to keep.")
    prior: float = hp.real(
        20.0, low=1.0, high=200.0, log=True,
        doc="Rows of the pooled covariance that every cluster is given.",
    )  # fmt: skip
    rounds: int = hp.integer(30, low=5, high=100, log=True, doc="Steps of EM.")
    restarts: int = hp.integer(10, low=1, high=30, log=True, doc="Runs of k-means at the start.")


class PcaGmm(Clusterer[Params]):
    """A mixture with exact marginals.

    Attributes:
        mixture_: What was fitted.
        basis_: Components of each view.
    """

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="mixture of Gaussians on principal components, missing views integrated out",
        paper=Paper(
            title="Supervised learning from incomplete data via an EM approach",
            venue="NeurIPS 1994",
            section="2",
        ),
    )

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self.mixture_: Mixture | None = None
        self.basis_: list[Basis] = []
        self.likelihood_ = float("nan")

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """Equation (1), by EM."""
        p = self.params
        self.basis_ = bases(data, p.variance, p.components)
        x, known = self._scores(data)
        labels, _ = kmeans(x, data.n_clusters, rng, restarts=p.restarts)
        first = start(x, labels, data.n_clusters, 1e-3)
        self.mixture_, resp, trace = em(
            x, known, first, rounds=p.rounds, prior=p.prior, ridge=1e-4
        )
        self.likelihood_ = trace[-1]
        return Clustering(
            labels=resp.argmax(axis=1),
            soft=resp.astype(np.float32),
            embedding=expected_rows(x, known, self.mixture_, resp).astype(np.float32),
            trace=tuple({"step": float(t), "likelihood": value} for t, value in enumerate(trace)),
        )

    def _scores(self, data: ViewData) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        scores = project(data, self.basis_)
        # Views of equal total variance: wide ones would rule the start.
        parts = [
            s / np.sqrt(len(centre)) for s, (centre, _) in zip(scores, self.basis_, strict=True)
        ]
        known = np.repeat(data.mask, [s.shape[1] for s in scores], axis=1)
        return np.concatenate(parts, axis=1), known

    def assign(self, data: ViewData) -> Assignment:
        """Responsibilities of the mixture for new rows."""
        if self.mixture_ is None:
            return super().assign(data)
        joint = log_joint(*self._scores(data), self.mixture_)
        return joint.argmax(axis=1).astype(np.int64), softmax(joint)

    def signals(self) -> dict[str, float]:
        """Mean log likelihood of a row."""
        return {"log_likelihood": self.likelihood_} if self.mixture_ is not None else {}

    def model_state(self) -> State:
        """Mixture and components."""
        if self.mixture_ is None:
            return {}
        state: State = {
            "weights": self.mixture_.weights,
            "means": self.mixture_.means,
            "covariances": self.mixture_.covariances,
            "likelihood": self.likelihood_,
        }
        for v, (centre, directions) in enumerate(self.basis_):
            state |= {f"centre/{v}": centre, f"directions/{v}": directions}
        return state

    def load_model_state(self, state: State) -> None:
        """See `model_state`."""
        if "weights" not in state:
            return
        taken: dict[str, Any] = {k: np.asarray(v) for k, v in state.items() if k != "likelihood"}
        self.likelihood_ = float(state["likelihood"])
        self.mixture_ = Mixture(taken["weights"], taken["means"], taken["covariances"])
        count = sum(k.startswith("centre/") for k in taken)
        self.basis_ = [(taken[f"centre/{v}"], taken[f"directions/{v}"]) for v in range(count)]
