"""Settings with which a user opens a transfer; imports nothing heavy."""

from __future__ import annotations

from lamps.method import ProblemOption

__all__ = ["BUILTIN", "HEADS", "OPTIONS", "OWN"]

HEADS = ("old", "ridge")
"""Keep the head of the fine-tuned source, or refit one in closed form for every method."""

OPTIONS: tuple[ProblemOption, ...] = (
    ProblemOption(name="source_base", kind="path", doc="Folder of the base that was fine-tuned."),
    ProblemOption(
        name="source_tuned",
        kind="path",
        doc="Folder of what was fine-tuned from it, whole classifier or peft adapter.",
    ),
    ProblemOption(
        name="target_base", kind="path", doc="Folder of the base that the update is moved to."
    ),
    ProblemOption(
        name="target_tuned",
        kind="path",
        doc="Folder of the target base fine-tuned on the task, to measure against (optional).",
    ),
    ProblemOption(name="generic_data", kind="path", doc="Unlabelled texts, for generic Fishers."),
    ProblemOption(
        name="domain_data",
        kind="path",
        doc="Unlabelled texts of what the target base is better at, for retention.",
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
        name="head",
        choices=HEADS,
        doc="Head under which all methods are judged; another width needs ridge.  [default: old "
        "for equal widths]",
    ),
    ProblemOption(
        name="shots", kind="int", doc="Labelled texts a class of a ridge head.  [default: 16]"
    ),
    ProblemOption(name="task", doc="Task of a built-in transfer.  [default: r8]"),
    ProblemOption(
        name="shift_domain",
        doc="Texts that shift the base of a built-in transfer.  [default: encyclopedia]",
    ),
    ProblemOption(
        name="zoo_seed", kind="int", doc="Seed of the built-in experts' training.  [default: 0]"
    ),
    ProblemOption(
        name="profile",
        choices=("quick", "full"),
        doc="How long the built-in experts are trained.  [default: quick]",
    ),
)

BUILTIN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("shift-small", "shift-medium", "shift-large"),
        ("task", "shift_domain", "zoo_seed", "profile", "head", "shots"),
    ),
    "width-192": ("task", "zoo_seed", "profile", "shots"),
    "toy": ("zoo_seed", "head", "shots"),
    "toy-width": ("zoo_seed", "shots"),
}
"""Built-in transfers and the options that they take."""

OWN = (
    "source_base", "source_tuned", "target_base", "target_tuned", "generic_data", "domain_data",
    "target", "text", "max_length", "split_seed", "head", "shots",
)  # fmt: skip
"""Options for one's own models; the labelled texts are the file that a search is given."""
