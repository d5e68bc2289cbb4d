"""Missing views predicted from the observed ones by ridge regression, then k-means.

    x_iv = B_{O,v}' [x_iw / sqrt(d_w) : w in O],    one B per set O of observed views and target v

Fitted on the rows that have the target and all of O; see `_impute.ridge` for rows of which there
are too few.
"""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec
from lamps_plugins._views.clusterer import Clusterer, Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.linear import concatenated, kmeans
from lamps_plugins.multi_view_clustering._impute import ridge


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of imputation by regression."""

    alpha: float = hp.real(
        0.1, low=1e-3, high=10.0, log=True, doc="Penalty, relative to the mean variance of inputs."
    )
    restarts: int = hp.integer(
        10, low=1, high=30, log=True, doc="Runs of k-means; the best stays."
    )


class RidgeImpute(Clusterer[Params]):
    """Regression imputation and k-means."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="predicts missing views from the others by ridge regression, then k-means",
    )

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """See the module."""
        filled = ridge(data, self.params.alpha)
        x = concatenated(filled)
        labels, _ = kmeans(x, data.n_clusters, rng, restarts=self.params.restarts)
        return Clustering(labels=labels, embedding=x, imputed=filled)
