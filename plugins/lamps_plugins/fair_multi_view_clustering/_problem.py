"""The family ``fair-multi-view-clustering``: clusters that a sensitive group does not show in.

Beside the loss of `lamps_plugins._views.problem` every landmark measures, from the groups alone,

    val_unfairness = 1 - MNCE,    val_imbalance = 1 - BAL,    val_tv

so `lamps front RUN` draws utility against fairness. They are 0 where every cluster holds the
groups as the data does (BAL: in equal numbers). Labels that leave a cluster empty count as wholly
unfair: one cluster of everything would be the fairest answer otherwise, and say nothing. Perfect
fairness stays easy for useless clusters, so no fairness should be read without its loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lamps.errors import ProblemError
from lamps.types import Json, Objective, Split
from lamps_plugins._views import metrics
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.family import ClusterFamily
from lamps_plugins._views.problem import OBJECTIVES, ClusterProblem
from lamps_plugins.fair_multi_view_clustering._options import OPTIONS

__all__ = ["FAMILY", "FairFamily", "FairProblem", "fairness_losses"]

FAIRNESS: tuple[Objective, ...] = (
    Objective("val_unfairness", doc="1 - MNCE: entropy of groups in the worst cluster, lost."),
    Objective("val_imbalance", doc="1 - BAL: rarest over commonest group in the worst cluster."),
    Objective("val_tv", doc="Mean distance of groups in a row's cluster from those of the data."),
)

MOST_GROUPS = 50


def fairness_losses(
    labels: NDArray[np.int64], group: NDArray[np.int64], n_clusters: int
) -> dict[str, float]:
    """``unfairness``, ``imbalance`` and ``tv`` of a labelling, each in [0, 1], 0 best.

    All are 1 where a cluster is empty; MNCE above 1 counts as 1.

    Shape:
        labels: [n], values 0..K-1; group: [n].
    """
    if len(np.unique(labels)) < n_clusters:
        return {"unfairness": 1.0, "imbalance": 1.0, "tv": 1.0}
    return {
        "unfairness": float(np.clip(1.0 - metrics.mnce(labels, group), 0.0, 1.0)),
        "imbalance": 1.0 - metrics.balance(labels, group),
        "tv": metrics.weighted_tv(labels, group),
    }


class FairProblem(ClusterProblem):
    """A clustering problem whose rows have a sensitive group; see `ClusterProblem`.

    Raises:
        ProblemError: Groups are missing, one, or too small, or a view is missing.
    """

    family: ClassVar[str] = "fair-multi-view-clustering"

    def __init__(self, **settings: Any) -> None:
        _check(settings["raw"])
        super().__init__(**settings)

    @property
    def group(self) -> NDArray[np.int64]:
        """Group of each row, 0..t-1. Shape: [n]."""
        assert self.raw.group is not None
        return self.raw.group

    @property
    def objectives(self) -> tuple[Objective, ...]:
        first, *rest = OBJECTIVES
        return (first, *FAIRNESS, *rest)

    def score(
        self,
        labels: NDArray[np.int64],
        embedding: NDArray[np.float32],
        rows: NDArray[np.int64],
        split: Split,
    ) -> dict[str, float]:
        """See `ClusterProblem.score`; fairness beside it, which needs no truth."""
        found = super().score(labels, embedding, rows, split)
        fair = fairness_losses(labels, self.group[rows], self.n_clusters)
        return found | {f"{split}_{name}": value for name, value in fair.items()}

    def score_signals(
        self,
        labels: NDArray[np.int64],
        embedding: NDArray[np.float32],
        rows: NDArray[np.int64],
        split: Split,
    ) -> dict[str, float]:
        """See `ClusterProblem.score_signals`; the balance over the best there is."""
        found = super().score_signals(labels, embedding, rows, split)
        group = self.group[rows]
        ceiling = metrics.balance_ceiling(group)
        return found | {"balance_of_ceiling": metrics.balance(labels, group) / ceiling}

    def floor(self, split: Split = "val") -> dict[str, float]:
        """One cluster of all rows: as fair as nothing is."""
        found = super().floor(split)
        return found | {f"{split}_{o.name.removeprefix('val_')}": 1.0 for o in FAIRNESS}

    def card(self) -> dict[str, Json]:
        counts = np.bincount(self.group)
        return {
            **super().card(),
            "groups": [int(c) for c in counts],
            "balance_ceiling": metrics.balance_ceiling(self.group),
        }


def _check(raw: ViewData) -> None:
    if raw.group is None:
        raise ProblemError("there are no groups; give the sensitive group of each row: --group")
    if not raw.mask.all():
        row, view = (int(i[0]) for i in np.nonzero(~raw.mask))
        raise ProblemError(
            f"view {raw.names[view]!r} of row {row} is missing; this family needs complete views: "
            "fill them first, or use multi-view-clustering"
        )
    counts = np.bincount(raw.group)
    if len(counts) < 2:
        raise ProblemError(
            f"all {raw.n} rows are of one group; fairness needs two or more. Use "
            "multi-view-clustering for data without groups"
        )
    if len(counts) > MOST_GROUPS:
        raise ProblemError(
            f"there are {len(counts)} groups, expected at most {MOST_GROUPS}; a group is a "
            "category, not a measured value"
        )
    smallest = int(counts.argmin())
    if counts[smallest] < raw.n_clusters:
        raise ProblemError(
            f"group {smallest} has {counts[smallest]} rows for {raw.n_clusters} clusters, so no "
            "clustering is fair to it; merge small groups, or ask for fewer clusters"
        )


class FairFamily(ClusterFamily):
    """Clustering with a sensitive group, of built-in and of a user's own views."""

    name: ClassVar[str] = "fair-multi-view-clustering"
    summary: ClassVar[str] = "Cluster things by several views, alike for all groups of them."
    default_objectives: ClassVar[tuple[str, ...]] = ("val_loss", "val_unfairness", "train_s")
    options = OPTIONS

    def open_given(self, reference: str | None, given: Mapping[str, Any]) -> ClusterProblem:
        """See `ClusterFamily.open_given`."""
        from lamps_plugins.fair_multi_view_clustering import _opening

        return _opening.open_any(reference, given)

    def toy_problem(self, *, seed: int = 0) -> ClusterProblem:
        """240 rows of three blobs in two views, moved by group."""
        return self.open_problem("toy", {"data_seed": seed, "split_seed": seed})

    def bad_inputs(self) -> Iterator[tuple[str, Any, str]]:
        """Data that must be refused: name, call that must raise, part of the message."""
        from lamps_plugins.fair_multi_view_clustering import _refused

        yield from _refused.bad_inputs(self.open_problem)


FAMILY = FairFamily()
