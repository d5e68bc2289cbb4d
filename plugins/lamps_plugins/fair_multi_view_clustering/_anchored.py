"""The base class of the two anchor methods: fit, read labels off the codes, assign new rows."""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeVar

import numpy as np
from numpy.random import Generator

from lamps.errors import ProblemError
from lamps.method import State
from lamps_plugins._views.clusterer import Assignment, Clusterer, Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.metrics import balance
from lamps_plugins.fair_multi_view_clustering import _anchors as anchors
from lamps_plugins.fair_multi_view_clustering._anchors import Weights
from lamps_plugins.fair_multi_view_clustering._fitting import Reader, fit, groups_of, sides

P = TypeVar("P")


class Anchored(Clusterer[P]):
    """Labels by k-means on the spectrum of content codes.

    Attributes:
        reader_: Reads labels off codes, and codes off new rows.
        facts_: Signals of the last fit.
    """

    params: P

    def __init__(self, params: P) -> None:
        super().__init__(params)
        self.reader_: Reader | None = None
        self.facts_: dict[str, float] = {}

    @abstractmethod
    def weights(self, data: ViewData) -> Weights:
        """Weights of the objective for these rows."""

    @abstractmethod
    def effort(self) -> tuple[int, int, float, int]:
        """Anchors a cluster, sweeps at most, tolerance, restarts of the last k-means."""

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """See `Clusterer.cluster`."""
        a_cluster, sweeps, tolerance, restarts = self.effort()
        weights = self.weights(data)
        model, trace = fit(
            data, weights, a_cluster * data.n_clusters, sweeps=sweeps, tolerance=tolerance, rng=rng
        )
        reader = Reader.fit(model, data.n_clusters, restarts, rng)
        self.reader_ = reader
        embedding = reader.embed(model.fair_codes)
        labels, soft = reader.label(embedding)
        assert data.group is not None
        codes = model.fair_codes
        unfair = anchors.dependence(codes, groups_of(data))
        self.facts_ = {
            "sweeps": float(len(trace) - 1),
            "objective_left": trace[-1]["total"] / max(trace[0]["total"], 1e-12),
            "dependence": float(np.sqrt(unfair) / max(float(np.linalg.norm(codes)), 1e-12)),
            "overlap": sides(model),
            # The last k-means may bring the group back in; this is what the codes alone say.
            "balance_of_codes": balance(codes.argmax(axis=1), data.group),
        }
        return Clustering(labels=labels, embedding=embedding, soft=soft, trace=tuple(trace))

    def assign(self, data: ViewData) -> Assignment:
        """See `Clusterer.assign`: the group of a new row is not asked for."""
        if self.reader_ is None:  # nothing was fitted yet, all rows are one cluster
            return super().assign(data)
        if not data.mask.all():
            row, view = (int(i[0]) for i in np.nonzero(~data.mask))
            raise ProblemError(
                f"view {data.names[view]!r} of row {row} is missing; anchors read complete rows "
                "only: fill it first"
            )
        return self.reader_.label(self.reader_.embed(self.reader_.codes(data.arrays)))

    def signals(self) -> dict[str, float]:
        """Objective left over, dependence, overlap, and the balance of the codes by themselves."""
        return dict(self.facts_)

    def model_state(self) -> State:
        """See `Clusterer.model_state`."""
        if self.reader_ is None:
            return {}
        return {**self.reader_.state(), "facts": dict(self.facts_)}

    def load_model_state(self, state: State) -> None:
        """See `Clusterer.load_model_state`."""
        if state:
            self.reader_ = Reader.of_state(state)
            self.facts_ = {str(k): float(v) for k, v in state["facts"].items()}
