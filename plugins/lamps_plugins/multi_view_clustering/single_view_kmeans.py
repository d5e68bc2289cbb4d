"""K-means on one view; rows without it follow the views that they have.

    rows with the view     k-means
    other rows             nearest class means of those rows, over their observed views

The pool holds one candidate per view. Which of them is best is for the search to say: to report
the best by true accuracy would be an oracle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from lamps import space as hp
from lamps.errors import ProblemError
from lamps.method import MethodSpec, Tags
from lamps_plugins._views.clusterer import Clusterer, Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.linear import kmeans
from lamps_plugins._views.rule import ClassMeans


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of k-means on one view."""

    view: int = hp.fixed(0, doc="Index of the view; the pool holds one candidate for each.")
    restarts: int = hp.integer(
        10, low=1, high=30, log=True, doc="Runs of k-means; the best stays."
    )


class SingleViewKmeans(Clusterer[Params]):
    """K-means on one view."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="k-means on one view, one candidate per view",
        tags=Tags(cheap=True),
    )

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """See the module."""
        v = self.params.view
        if not 0 <= v < data.n_views:
            raise ProblemError(
                f"there is no view {v}, expected 0 to {data.n_views - 1}: {', '.join(data.names)}"
            )
        seen = data.mask[:, v]
        if not seen.any():
            raise ProblemError(f"view {data.names[v]!r} is never observed in these rows")
        labels = np.zeros(data.n, dtype=np.int64)
        labels[seen], _ = kmeans(
            data.arrays[v][seen], data.n_clusters, rng, restarts=self.params.restarts
        )
        rows, rest = np.flatnonzero(seen), np.flatnonzero(~seen)
        if len(rest):
            rule = ClassMeans.fit(data.take(rows), labels[seen])
            labels[rest] = rule.assign(data.take(rest))[0]
        return Clustering(labels=labels, embedding=data.arrays[v])
