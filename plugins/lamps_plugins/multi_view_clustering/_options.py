"""Settings with which a user opens a clustering problem; imports nothing heavy."""

from __future__ import annotations

from lamps.method import ProblemOption
from lamps_plugins._views.evaluation import TRACKS
from lamps_plugins._views.masks import PROTOCOLS

__all__ = ["OPTIONS"]

OPTIONS: tuple[ProblemOption, ...] = (
    ProblemOption(
        name="view",
        kind="path",
        multiple=True,
        doc="A view: NPZ with one array [n, d], or Parquet with numeric columns; rows by their "
        "position, or by a column or array 'id' (repeatable). NAME=FILE gives it a name.",
    ),
    ProblemOption(
        name="mask",
        kind="path",
        doc="NPZ with one bool array [n, views], true where observed. Without it rows of NaN are "
        "missing.",
    ),
    ProblemOption(name="clusters", kind="int", doc="Number of clusters."),
    ProblemOption(
        name="labels",
        kind="path",
        doc="NPZ with one array [n] of true classes, for the final scores alone (and, with track "
        "'labelled', a fifth of it for the search).",
    ),
    ProblemOption(
        name="track",
        choices=TRACKS,
        doc="What steers the search: a score without labels, or the labels of a fifth of the "
        "rows.  [default: internal]",
    ),
    ProblemOption(
        name="missing",
        choices=PROTOCOLS,
        doc="How views of a built-in problem are hidden.  [default: sample-rate]",
    ),
    ProblemOption(
        name="rate",
        kind="float",
        doc="Share of incomplete rows, or of hidden cells with entry-rate.  [default: 0.5]",
    ),
    ProblemOption(name="mask_seed", kind="int", doc="Seed of the mask.  [default: 0]"),
    ProblemOption(
        name="split_seed",
        kind="int",
        doc="Seed of the order of rows and of those whose labels are shown.  [default: 0]",
    ),
)
