"""What the families of clustering have in common: opening, reopening, export, prediction."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from lamps.errors import ConfigError
from lamps.method import Family
from lamps.types import Json
from lamps_plugins._views.problem import ClusterProblem


class ClusterFamily(Family):
    """A family whose problems are views to be clustered; a subclass says how they are opened."""

    @abstractmethod
    def open_given(self, reference: str | None, given: Mapping[str, Any]) -> ClusterProblem:
        """A problem by its name, or of the user's files.

        Args:
            reference: Name of a built-in problem; None for files.
            given: Options that were given; all are known.
        """

    def open_problem(self, reference: str | None, options: Mapping[str, Any]) -> ClusterProblem:
        """A built-in problem, or one of the user's files.

        Raises:
            ProblemError: The data cannot be used; one line.
            ConfigError: An option cannot be used.
        """
        self.check_options(options)
        given = {k: v for k, v in options.items() if v is not None and v is not False}
        return self.open_given(reference, {k: v for k, v in given.items() if v not in ((), [])})

    def reopen(self, reference: Mapping[str, Json]) -> ClusterProblem:
        """The problem of a reference; refused if data, mask, groups or labels changed since."""
        options = cast("dict[str, Any]", reference.get("options") or {})
        builtin = reference.get("builtin")
        problem = self.open_problem(None if builtin is None else str(builtin), options)
        self.require_unchanged(problem, reference["fingerprint"], "the files")
        return problem

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

        refuse_options(options)
        return export.predict(directory, rows)


def refuse_options(options: Mapping[str, Any]) -> None:
    """Refuse options of other families when new rows are labelled.

    Raises:
        ConfigError: One was given.
    """
    if options:
        raise ConfigError(
            f"--{next(iter(options))} has no meaning for an exported clustering, which reads one "
            "NPZ with an array per view"
        )
