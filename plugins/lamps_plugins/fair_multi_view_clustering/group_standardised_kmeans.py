"""Every feature standardised inside each group, then k-means: strong, simple, and hard to beat.

    z_if = (x_if - mean_g(i),f) / std_g(i),f,       then k-means on all views side by side

It takes out every difference of means and of scales between groups, feature by feature, which is
all that groups differ in where the shift was planted. A new row needs its group; without one it is
assigned by class means.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lamps import space as hp
from lamps.method import MethodSpec, State, Tags
from lamps_plugins._views.clusterer import Assignment, Clusterer, Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.linear import concatenated, kmeans
from lamps_plugins._views.rule import softmax
from lamps_plugins.fair_multi_view_clustering._groupwise import GroupScale


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of k-means on group-standardised views."""

    weights: str = hp.choice(
        "by_size", ("by_size", "equal"), doc="Whether a view is divided by sqrt of its features."
    )
    restarts: int = hp.integer(
        10, low=1, high=30, log=True, doc="Runs of k-means; the best stays."
    )


class GroupStandardisedKmeans(Clusterer[Params]):
    """K-means after each group has been standardised by itself."""

    spec = MethodSpec(
        family="fair-multi-view-clustering",
        summary="standardises each group by itself, then k-means",
        tags=Tags(cheap=True, baseline=True),
    )

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self.scales_: tuple[GroupScale, ...] = ()
        self.centres_: NDArray[np.float64] = np.empty((0, 0))

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """See the module."""
        assert data.group is not None
        self.scales_ = tuple(GroupScale.fit(x, data.group) for x in data.arrays)
        x = self._scaled(data)
        labels, self.centres_ = kmeans(x, data.n_clusters, rng, restarts=self.params.restarts)
        return Clustering(labels=labels, embedding=x)

    def _scaled(self, data: ViewData) -> NDArray[np.float32]:
        assert data.group is not None
        arrays = [s.apply(x, data.group) for s, x in zip(self.scales_, data.arrays, strict=True)]
        return concatenated(arrays, by_size=self.params.weights == "by_size")

    def assign(self, data: ViewData) -> Assignment:
        """Nearest centre on the scale of the row's group; by class means where it has none."""
        if data.group is None or not self.scales_:
            return super().assign(data)
        x = self._scaled(data).astype(np.float64)
        d = (x**2).sum(axis=1)[:, None] - 2.0 * x @ self.centres_.T + (self.centres_**2).sum(1)
        return d.argmin(axis=1).astype(np.int64), softmax(-d / 2.0)

    def model_state(self) -> State:
        """See `Clusterer.model_state`."""
        if not self.scales_:
            return {}
        found: State = {"centres": self.centres_}
        for v, scale in enumerate(self.scales_):
            found |= {f"mean/{v}": scale.mean, f"std/{v}": scale.std}
        return found

    def load_model_state(self, state: State) -> None:
        """See `Clusterer.load_model_state`."""
        if state:
            self.centres_ = np.asarray(state["centres"])
            count = sum(key.startswith("mean/") for key in state)
            self.scales_ = tuple(
                GroupScale(np.asarray(state[f"mean/{v}"]), np.asarray(state[f"std/{v}"]))
                for v in range(count)
            )
