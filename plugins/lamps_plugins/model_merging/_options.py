"""Settings with which a user opens a merging problem; imports nothing heavy."""

from __future__ import annotations

from lamps.method import ProblemOption

__all__ = ["KINDS", "OPTIONS", "PROFILES"]

KINDS = ("full", "lora", "oft")
"""How the experts of the built-in zoo were fine-tuned."""

PROFILES = ("quick", "full")
"""How long the experts of the built-in zoo were trained."""

OPTIONS: tuple[ProblemOption, ...] = (
    ProblemOption(
        name="base", kind="path", doc="Folder of the model that all experts were fine-tuned from."
    ),
    ProblemOption(
        name="expert",
        kind="path",
        multiple=True,
        doc="Folder of an expert, whole model or peft adapter; its task has the folder's name, or "
        "write TASK=FOLDER (repeatable).",
    ),
    ProblemOption(
        name="task_data",
        multiple=True,
        doc="TASK=FILE, the labelled texts of a task (repeatable).",
    ),
    ProblemOption(name="target", doc="Column that holds the label."),
    ProblemOption(
        name="text",
        doc="Column that holds the text; without it the text column with the longest texts.",
    ),
    ProblemOption(
        name="max_length", kind="int", default=128, doc="Tokens of a text that models read."
    ),
    ProblemOption(
        name="split_seed", kind="int", default=0, doc="Seed of splits, sampling and order."
    ),
    ProblemOption(
        name="experts",
        choices=KINDS,
        doc="Experts of a built-in problem: all weights, LoRA or OFT.  [default: full]",
    ),
    ProblemOption(
        name="tasks", kind="int", doc="Tasks of the built-in mm-text8, 2 to 8.  [default: 8]"
    ),
    ProblemOption(
        name="zoo_seed", kind="int", doc="Seed of the built-in experts' training.  [default: 0]"
    ),
    ProblemOption(
        name="profile",
        choices=PROFILES,
        doc="How long the built-in experts are trained.  [default: quick]",
    ),
)
