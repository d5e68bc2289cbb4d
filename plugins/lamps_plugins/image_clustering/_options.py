"""Settings with which a user opens an image clustering problem; imports nothing heavy."""

from __future__ import annotations

from lamps.method import ProblemOption

__all__ = ["ENCODERS", "OPTIONS", "TRACKS"]

TRACKS = ("internal", "labelled")
ENCODERS = ("efficientnet-lite0", "hog-colour")

OPTIONS: tuple[ProblemOption, ...] = (
    ProblemOption(
        name="image_features",
        kind="path",
        doc="Features of the images: NPZ with one array [n, d], or Parquet with numeric columns.",
    ),
    ProblemOption(
        name="text_features",
        kind="path",
        multiple=True,
        doc="Features of the texts at one granularity, from coarse to fine (repeatable). "
        "NAME=FILE gives it a name.",
    ),
    ProblemOption(
        name="images", kind="path", doc="Folder of pictures; needs --texts, encoders run once."
    ),
    ProblemOption(
        name="texts",
        kind="path",
        doc="CSV or JSONL with a column 'file' (below the folder of pictures), one column of text "
        "a granularity, and optionally 'label'.",
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
        "images.  [default: internal]",
    ),
    ProblemOption(
        name="image_encoder",
        choices=ENCODERS,
        doc="What reads pictures.  [default: efficientnet-lite0]",
    ),
    ProblemOption(
        name="text_encoder",
        doc="What reads texts: an encoder of text-classification.  [default: all-MiniLM-L6-v2]",
    ),
    ProblemOption(
        name="flags", kind="flag", doc="Keep the country flags of the built-in 'emoji'."
    ),
    ProblemOption(
        name="distractors",
        kind="int",
        doc="Facts in the texts of the built-in 'mnist-text' that have nothing to do with the "
        "digit, 0 to 4.  [default: 1]",
    ),
    ProblemOption(
        name="rows", kind="int", doc="Images of the built-in 'mnist-text'.  [default: 2000]"
    ),
    ProblemOption(
        name="text_hidden",
        kind="float",
        doc="Share of the images whose texts are hidden from every method.  [default: 0]",
    ),
    ProblemOption(
        name="data_seed", kind="int", doc="Seed of what is drawn and hidden.  [default: 0]"
    ),
    ProblemOption(
        name="split_seed",
        kind="int",
        doc="Seed of the order of rows and of those whose labels are shown.  [default: 0]",
    ),
)
