"""From what a user typed to a problem: built-in zoos, or folders and files of the user's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lamps.errors import ConfigError, ProblemError, did_you_mean
from lamps.types import Json
from lamps_plugins._zoo._build import Say, ZooSpec, build, on_stderr
from lamps_plugins._zoo._tasks import task_problem
from lamps_plugins.model_merging._experts import Expert
from lamps_plugins.model_merging._options import KINDS, PROFILES
from lamps_plugins.model_merging._problem import CALIBRATION, MergeProblem
from lamps_plugins.model_merging._sets import moved_embeddings, open_set
from lamps_plugins.text_classification._loading import Parts, load
from lamps_plugins.text_classification._options import parse_options
from lamps_plugins.text_classification._splits import normalised

MOST_VAL = 128
"""Validation texts of a task, at most."""

_BUILTIN = {
    "mm-text8": ("experts", "tasks", "zoo_seed", "profile"),
    "toy": ("experts", "zoo_seed"),
}
"""Built-in problems and the options that they take."""

_OWN = ("base", "expert", "task_data", "target", "text", "max_length", "split_seed")


def open_any(reference: str | None, options: Mapping[str, Any]) -> MergeProblem:
    """The problem that was named; see `MergeFamily.open_problem`."""
    own = reference is None
    if own and not options.get("base"):
        raise ProblemError(
            "model-merging needs a built-in problem (model-merging:mm-text8, model-merging:toy) "
            "or --base DIR, --expert DIR twice or more, and --task-data TASK=FILE for each"
        )
    if not own and reference not in _BUILTIN:
        raise ProblemError(
            f"no built-in merging problem {reference!r}. {did_you_mean(str(reference), _BUILTIN)}"
        )
    allowed = _OWN if own else _BUILTIN[str(reference)]
    for name in options:
        if name not in allowed:
            where = "one's own experts" if own else f"the built-in {reference!r}"
            raise ConfigError(f"option {name!r} has no meaning for {where}; it takes {allowed}")
    return _own(options) if own else _builtin(str(reference), options)


def _builtin(reference: str, options: Mapping[str, Any], say: Say = on_stderr) -> MergeProblem:
    for name, known in (("experts", KINDS), ("profile", PROFILES)):
        if options.get(name, known[0]) not in known:
            raise ConfigError(
                f"{name}={options[name]!r}. {did_you_mean(str(options[name]), known)}"
            )
    seed = int(options.get("zoo_seed", 0))
    if seed < 0:
        raise ConfigError(f"zoo_seed={seed}: expected 0 or more")
    spec = ZooSpec(
        kind=str(options.get("experts", "full")),
        n_tasks=int(options.get("tasks", 8)),
        seed=seed,
        profile="toy" if reference == "toy" else str(options.get("profile", "quick")),
    )
    zoo = build(spec, say)
    facts: dict[str, Json] = {"profile": spec.profile, "zoo_seed": spec.seed}
    return MergeProblem(
        name=reference,
        experts=open_set(zoo.base, zoo.experts),
        tasks=[spec.task(name, most_train=CALIBRATION) for name in spec.tasks],
        source={"builtin": reference, "options": dict(options)},
        facts=facts,
    )


def _own(options: Mapping[str, Any]) -> MergeProblem:
    base = Path(str(options["base"])).expanduser().absolute()
    folders = _named(options.get("expert") or (), "expert", bare=True)
    files = _named(options.get("task_data") or (), "task-data", bare=False)
    for name in folders:
        if name not in files:
            raise ProblemError(
                f"expert {name!r} has no texts; give --task-data {name}=FILE. "
                f"Given: {', '.join(files) or 'none'}"
            )
    for name in files:
        if name not in folders:
            raise ProblemError(f"no expert for texts {name!r}. {did_you_mean(name, folders)}")
    experts = open_set(base, folders)  # before any file of texts: it is the quicker refusal
    data = {
        "val_share": 0.1,
        "max_val": MOST_VAL,
        **{k: options[k] for k in ("target", "text", "max_length", "split_seed") if k in options},
    }
    chosen = parse_options(data)
    notes: list[str] = []
    parts: dict[str, Parts] = {}
    for expert in experts.experts:
        read = load(files[expert.name], chosen)
        parts[expert.name] = with_labels(read, expert)
        notes += [f"{expert.name}: {note}" for note in read.notes]
    refuse_shared_texts(parts)
    if lost := moved_embeddings(experts):
        notes.append(
            f"experts {', '.join(lost)} moved the embeddings, which are not merged; expect them "
            "to lose by it"
        )
    kept = {k: v for k, v in options.items() if k not in ("base", "expert", "task_data")}
    source: dict[str, Json] = {
        "options": {
            **kept,
            "base": str(base),
            "expert": [f"{name}={folder}" for name, folder in folders.items()],
            "task_data": [f"{name}={file}" for name, file in files.items()],
        }
    }
    return MergeProblem(
        name=f"{base.name}-{len(folders)}-experts",
        experts=experts,
        tasks=[
            task_problem(name, found, chosen.max_length, chosen.split_seed, most_train=CALIBRATION)
            for name, found in parts.items()
        ],
        source=source,
        notes=notes,
    )


def _named(values: Sequence[str], flag: str, *, bare: bool) -> dict[str, Path]:
    """Paths by name from ``NAME=PATH``; the last part of the path where ``bare`` allows it.

    Raises:
        ConfigError: A value has no name, or two have the same.
    """
    found: dict[str, Path] = {}
    for value in values:
        name, equals, place = str(value).partition("=")
        if not equals:
            if not bare:
                raise ConfigError(f"--{flag} {value!r} is not of the form TASK=FILE")
            name, place = Path(value).expanduser().absolute().name, value
        if name in found:
            raise ConfigError(f"two values of --{flag} are named {name!r}; write NAME=PATH")
        if not name or "/" in name or name.startswith("."):
            raise ConfigError(f"--{flag} {value!r}: {name!r} cannot name a folder of the export")
        found[name] = Path(place).expanduser().absolute()
    return found


def with_labels(parts: Parts, expert: Expert) -> Parts:
    """Parts whose classes are those of an expert's head, in its order.

    Raises:
        ProblemError: The texts have a label that the expert does not know, or several a text.
    """
    if parts.multi_label:
        raise ProblemError(
            f"task {expert.name!r} has several labels a text; merging measures one label a text"
        )
    known = {name: i for i, name in enumerate(expert.labels)}
    for label in parts.labels:
        if str(label) not in known:
            raise ProblemError(
                f"task {expert.name!r} has the label {str(label)!r}, which its expert does not "
                f"know. {did_you_mean(str(label), known)}"
            )
    place = np.array([known[str(label)] for label in parts.labels], dtype=np.int64)
    return dataclasses.replace(
        parts,
        labels=expert.labels,
        targets={split: place[targets] for split, targets in parts.targets.items()},
    )


def refuse_shared_texts(parts: Mapping[str, Parts]) -> None:
    """Refuse texts that one task tests on and any task calibrates or validates with.

    Raises:
        ProblemError: There is one; the message names both tasks.
    """
    held = {normalised(t): name for name, part in parts.items() for t in part.texts["test"]}
    for name, part in parts.items():
        for split in ("train", "val"):
            for text in part.texts[split]:
                if (other := held.get(normalised(text))) is not None:
                    raise ProblemError(
                        f"a {split} text of task {name!r} is a test text of task {other!r}: "
                        f"{text[:40]!r}; take it out of one of the two files"
                    )
