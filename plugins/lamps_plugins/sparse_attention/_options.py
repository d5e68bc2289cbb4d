"""Settings with which a user opens a problem of sparse attention; imports nothing heavy."""

from __future__ import annotations

from lamps.method import ProblemOption

__all__ = ["BUILTIN", "OPTIONS"]

BUILTIN: dict[str, tuple[str, ...]] = {
    "topics": ("length", "sequences", "data_seed"),
    "recall": ("length", "sequences", "data_seed"),
    "stdlib": ("length", "sequences"),
    "smollm2": ("length", "sequences"),
    "toy": ("data_seed",),
}
"""Built-in problems and the options that they take."""

OWN = ("decoder", "text_file", "length", "sequences")
"""Options of one's own decoder and text."""

OPTIONS: tuple[ProblemOption, ...] = (
    ProblemOption(
        name="decoder", kind="path", doc="Folder of a decoder, in transformers' layout."
    ),
    ProblemOption(
        name="text_file",
        kind="path",
        doc="UTF-8 text that the decoder continues; its first half serves to choose rules, its "
        "second half to test them.",
    ),
    ProblemOption(
        name="length",
        kind="int",
        doc="Tokens of the longest sequences; others have a half and a quarter of them.  "
        "[default: 8192 for topics, 4096 for decoders, 2048 for smollm2]",
    ),
    ProblemOption(
        name="sequences", kind="int", doc="Sequences of each length and split.  [default: 2 or 4]"
    ),
    ProblemOption(
        name="data_seed", kind="int", doc="Seed of sequences that are made up.  [default: 0]"
    ),
)
