"""The family ``multi-view-clustering``: K clusters of things whose views may be missing.

See `lamps_plugins._views.problem` for what a landmark is and what the two tracks measure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from lamps.method import Method, Problem
from lamps.types import Candidate
from lamps_plugins._views.family import ClusterFamily
from lamps_plugins._views.problem import ClusterProblem
from lamps_plugins.multi_view_clustering._options import OPTIONS

__all__ = ["FAMILY", "MultiViewFamily"]

ONE_VIEW = "single-view-kmeans"


class MultiViewFamily(ClusterFamily):
    """Clustering of built-in and of a user's own views."""

    name: ClassVar[str] = "multi-view-clustering"
    summary: ClassVar[str] = "Cluster things that several views describe, with views missing."
    default_objectives: ClassVar[tuple[str, ...]] = ("val_loss", "train_s")
    options = OPTIONS

    def open_given(self, reference: str | None, given: Mapping[str, Any]) -> ClusterProblem:
        """See `ClusterFamily.open_given`."""
        from lamps_plugins.multi_view_clustering import _opening

        return _opening.open_any(reference, given)

    def toy_problem(self, *, seed: int = 0) -> ClusterProblem:
        """240 rows of three small views that see three clusters, half of the rows incomplete."""
        return self.open_problem("toy", {"split_seed": seed})

    def candidates(
        self,
        problem: Problem,
        methods: Mapping[str, type[Method[Any, Any]]],
        models: Sequence[str],
        *,
        given: Mapping[str, Mapping[str, Any]],
        per_method: int,
        seed: int,
    ) -> list[Candidate]:
        """See `Family.candidates`; one candidate a view where a method takes one view."""
        assert isinstance(problem, ClusterProblem)
        pool = super().candidates(
            problem, methods, models, given=given, per_method=per_method, seed=seed
        )
        kept: dict[str, Candidate] = {}
        for candidate in pool:
            for one in _of_each_view(candidate, problem, given.get(candidate.method, {})):
                kept.setdefault(one.key, one)
        return list(kept.values())

    def bad_inputs(self) -> Iterator[tuple[str, Any, str]]:
        """Data that must be refused: name, call that must raise, part of the message."""
        from lamps_plugins.multi_view_clustering import _refused

        yield from _refused.bad_inputs(self.open_problem)


def _of_each_view(
    candidate: Candidate, problem: ClusterProblem, given: Mapping[str, Any]
) -> list[Candidate]:
    if candidate.method != ONE_VIEW or "view" in given:
        return [candidate]
    params = dict(candidate.params)
    views = range(problem.data.n_views)
    return [dataclasses.replace(candidate, params={**params, "view": v}) for v in views]


FAMILY = MultiViewFamily()
