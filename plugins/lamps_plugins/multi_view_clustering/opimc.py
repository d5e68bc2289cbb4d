"""One-pass incomplete multi-view clustering: matrix factors updated batch by batch.

Paper: Hu and Chen, One-pass incomplete multi-view clustering, AAAI 2019, arXiv 1903.00637,
equation (2).

    min sum_v ||(X_v - U_v V') D_v||^2 + alpha ||U_v||^2,   rows of V one-hot                   (1)

with ``D_v`` the observed rows. The implementation is that of imml. The embedding are the distances
of a row to all clusters, less their mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins._views.data import ViewData
from lamps_plugins.multi_view_clustering._imml import ImmlClusterer


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of OPIMC."""

    alpha: float = hp.real(10.0, low=1e-3, high=1e3, log=True, doc="alpha of equation (1).")
    passes: int = hp.integer(1, low=1, high=5, doc="Passes over the rows.")
    batch: int = hp.integer(250, low=50, high=1000, log=True, doc="Rows of a batch.")


class Opimc(ImmlClusterer[Params]):
    """Regularised factors in one pass, by imml."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="matrix factors with one-hot rows, batch by batch",
        paper=Paper(
            title="One-pass incomplete multi-view clustering",
            arxiv="1903.00637",
            venue="AAAI 2019",
        ),
        tags=Tags(cheap=True),
    )

    def estimator(self, library: Any, data: ViewData, seed: int) -> Any:
        """The library's object with our params."""
        return library.OPIMC(
            n_clusters=data.n_clusters,
            alpha=self.params.alpha,
            num_passes=self.params.passes,
            batch_size=min(self.params.batch, data.n),
            random_state=seed,
        )

    def embedding_of(self, model: Any) -> Any:
        """Distances to the clusters, less their mean."""
        distances = np.asarray(model.embedding_)
        return distances.mean(axis=1, keepdims=True) - distances
