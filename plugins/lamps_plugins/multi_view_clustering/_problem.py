"""The family ``multi-view-clustering``: K clusters of things whose views may be missing.

See `lamps_plugins._views.problem` for what a landmark is and what the two tracks measure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

from lamps.errors import ConfigError, ProblemError, did_you_mean
from lamps.method import Family, Method, Problem
from lamps.types import Candidate, Json
from lamps_plugins._views.problem import ClusterProblem
from lamps_plugins.multi_view_clustering._options import OPTIONS

__all__ = ["FAMILY", "MultiViewFamily"]

ONE_VIEW = "single-view-kmeans"


class MultiViewFamily(Family):
    """Clustering of built-in and of a user's own views."""

    name: ClassVar[str] = "multi-view-clustering"
    summary: ClassVar[str] = "Cluster things that several views describe, with views missing."
    default_objectives: ClassVar[tuple[str, ...]] = ("val_loss", "train_s")
    options = OPTIONS

    def open_problem(self, reference: str | None, options: Mapping[str, Any]) -> ClusterProblem:
        """A built-in problem, or views from the user's files.

        Raises:
            ProblemError: The views cannot be used; one line.
            ConfigError: An option cannot be used.
        """
        from lamps_plugins.multi_view_clustering import _opening

        known = [option.name for option in OPTIONS]
        for name in options:
            if name not in known:
                raise ConfigError(
                    f"{self.name} has no option {name!r}. {did_you_mean(name, known)}"
                )
        given = {k: v for k, v in options.items() if v is not None and v not in ((), [])}
        return _opening.open_any(reference, given)

    def reopen(self, reference: Mapping[str, Json]) -> ClusterProblem:
        """The problem of a reference; refused if data, mask or labels changed since."""
        options = cast("dict[str, Any]", reference.get("options") or {})
        builtin = reference.get("builtin")
        problem = self.open_problem(None if builtin is None else str(builtin), options)
        if problem.fingerprint() != reference["fingerprint"]:
            raise ProblemError(
                f"{problem.name} changed: its fingerprint was {reference['fingerprint']}, now it "
                f"is {problem.fingerprint()}. Restore the files, or start a new run"
            )
        return problem

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

    def describe_export(self, directory: Path, scores: Mapping[str, float]) -> None:
        """Put the scores into the member's card."""
        from lamps_plugins._views import export

        export.with_scores(directory, scores)

    def predict(
        self, directory: Path, rows: Path | None, options: Mapping[str, Any]
    ) -> Iterable[Mapping[str, Json]]:
        """Cluster and shares of new rows by an exported member.

        Args:
            directory: The exported folder.
            rows: One NPZ with an array per view by its name, and optionally ``mask``; see
                `lamps_plugins._views.export`.
            options: None are known.
        """
        from lamps_plugins._views import export

        return export.predict(directory, rows)

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
