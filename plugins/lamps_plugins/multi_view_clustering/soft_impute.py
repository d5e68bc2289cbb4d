"""Low-rank completion of missing views by soft-thresholded singular values, then k-means.

Paper: Mazumder, Hastie and Tibshirani, Spectral regularization algorithms for learning large
incomplete matrices, JMLR 2010, algorithm 1.

    X <- S_lambda( P(X) + P'(X) ),    S_lambda(U D V') = U max(D - lambda, 0) V'                (1)

with ``P`` the observed cells and ``P'`` the hidden ones, for views side by side over sqrt(d_v).
"""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Paper
from lamps_plugins._views.clusterer import Clusterer, Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.linear import concatenated, kmeans
from lamps_plugins.multi_view_clustering._impute import soft


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of soft imputation."""

    shrink: float = hp.real(
        0.05, low=0.005, high=0.5, log=True,
        doc="lambda of equation (1) as a share of the largest singular value.",
    )  # fmt: skip
    rounds: int = hp.integer(30, low=5, high=60, log=True, doc="Repetitions of equation (1).")
    restarts: int = hp.integer(
        10, low=1, high=30, log=True, doc="Runs of k-means; the best stays."
    )


class SoftImpute(Clusterer[Params]):
    """Low-rank completion and k-means."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="fills missing views by a matrix of low rank, then k-means",
        paper=Paper(
            title="Spectral regularization algorithms for learning large incomplete matrices",
            venue="JMLR 2010",
            section="algorithm 1",
        ),
    )

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """Equation (1), and k-means on what it gives."""
        filled = soft(data, self.params.shrink, self.params.rounds)
        x = concatenated(filled)
        labels, _ = kmeans(x, data.n_clusters, rng, restarts=self.params.restarts)
        return Clustering(labels=labels, embedding=x, imputed=filled)
