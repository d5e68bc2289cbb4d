"""Settings with which a user opens a decoding problem; imports nothing heavy."""

from __future__ import annotations

from lamps.method import ProblemOption

__all__ = ["OPTIONS", "TASKS"]

TASKS = ("code", "docstrings", "lists", "arithmetic", "copy-edit")
"""Kinds of prompts that the built-in problems consist of."""

OPTIONS: tuple[ProblemOption, ...] = (
    ProblemOption(
        name="decoder", kind="path", doc="Folder of a decoder, in transformers' layout."
    ),
    ProblemOption(
        name="draft", kind="path",
        doc="Folder of a smaller model with the same vocabulary, for draft-lm.",
    ),
    ProblemOption(
        name="prompts", kind="path",
        doc="Prompts: a text file with one a line, or JSON lines with a field prompt.",
    ),
    ProblemOption(
        name="prompt_kind", multiple=True, choices=TASKS,
        doc="Kind of prompts of a built-in problem (repeatable).  [default: all]",
    ),
    ProblemOption(name="max_new", kind="int", doc="Tokens by which each prompt is continued."),
    ProblemOption(name="n_prompts", kind="int", doc="Prompts of the whole validation split."),
    ProblemOption(
        name="temperature", kind="float", default=0.0, doc="0 decodes greedily, else samples."
    ),
    ProblemOption(
        name="top_p", kind="float", default=1.0, doc="Share of probability that is sampled from."
    ),
    ProblemOption(name="sample_seed", kind="int", default=0, doc="Seed of sampling."),
    ProblemOption(
        name="prompt_seed", kind="int", default=0, doc="Seed of the choice of built-in prompts."
    ),
)  # fmt: skip
