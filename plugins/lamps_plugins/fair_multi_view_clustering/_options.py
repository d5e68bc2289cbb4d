"""Settings with which a user opens a fair clustering problem; imports nothing heavy."""

from __future__ import annotations

from lamps.method import ProblemOption

__all__ = ["OPTIONS"]

TRACKS = ("internal", "labelled")

OPTIONS: tuple[ProblemOption, ...] = (
    ProblemOption(
        name="view",
        kind="path",
        multiple=True,
        doc="A view: NPZ with one array [n, d], or Parquet with numeric columns; rows by their "
        "position, or by a column or array 'id' (repeatable). NAME=FILE gives it a name.",
    ),
    ProblemOption(
        name="group",
        kind="path",
        doc="NPZ or Parquet with one column: the sensitive group of each row, as a number.",
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
        doc="What steers the search beside fairness: a score without labels, or the labels of a "
        "fifth of the rows.  [default: internal]",
    ),
    ProblemOption(
        name="delta",
        kind="float",
        doc="Length of the planted shift of the built-in 'plant', over the median length of a "
        "row.  [default: 1]",
    ),
    ProblemOption(
        name="rho",
        kind="float",
        doc="Tie between group and class in the built-in 'plant', 0 to 1.  [default: 0]",
    ),
    ProblemOption(
        name="data_seed", kind="int", doc="Seed of what built-in data draws.  [default: 0]"
    ),
    ProblemOption(
        name="split_seed",
        kind="int",
        doc="Seed of the order of rows and of those whose labels are shown.  [default: 0]",
    ),
)
