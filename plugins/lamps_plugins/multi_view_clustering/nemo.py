"""NEMO: average the neighbour graphs of the views that two rows share, then spectral clustering.

Paper: Rappoport and Shamir, NEMO: cancer subtyping by integration of partial multi-omic data,
Bioinformatics 2019, section 2.1.

    RS_v(i, j) = s_v(i, j) / sum_{r in N(i)} s_v(i, r)  for j in N(i),   made symmetric         (1)
    ARS(i, j) = mean of RS_v(i, j) over the views that both rows have                           (2)

``N(i)`` are the ``n_v / neighbour_ratio`` nearest rows. The implementation is that of imml; graphs
are dense, so memory grows with the square of the rows. A strong baseline: it belongs into every
pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins._views.data import ViewData
from lamps_plugins.multi_view_clustering._imml import ImmlClusterer


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of NEMO."""

    neighbour_ratio: int = hp.integer(
        6, low=3, high=100, log=True, doc="Rows of a view over the neighbours of a row."
    )


class Nemo(ImmlClusterer[Params]):
    """Spectral clustering of averaged relative similarities, by imml."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="averages relative similarities over shared views, then spectral clustering",
        paper=Paper(
            title="NEMO: cancer subtyping by integration of partial multi-omic data",
            venue="Bioinformatics 2019",
            section="2.1",
        ),
        tags=Tags(baseline=True),
    )

    def estimator(self, library: Any, data: ViewData, seed: int) -> Any:
        """The library's object with our params."""
        return library.NEMO(
            n_clusters=data.n_clusters,
            num_neighbors=[
                max(2, round(int(seen) / self.params.neighbour_ratio))
                for seen in data.mask.sum(axis=0)
            ],
            random_state=seed,
        )
