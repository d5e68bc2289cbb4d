"""From what a user typed to a problem: built-in transfers, or the user's own models and files."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lamps.errors import ConfigError, ProblemError, did_you_mean
from lamps.types import Json
from lamps_plugins._zoo import _domains, _students, _tasks
from lamps_plugins._zoo._build import Say, ZooSpec, build, on_stderr
from lamps_plugins.task_update_transfer import _toy_width
from lamps_plugins.task_update_transfer._lineage import open_lineage
from lamps_plugins.task_update_transfer._options import BUILTIN, HEADS, OWN
from lamps_plugins.task_update_transfer._problem import TransferProblem
from lamps_plugins.task_update_transfer._texts import Texts
from lamps_plugins.text_classification._columns import read_texts
from lamps_plugins.text_classification._loading import load
from lamps_plugins.text_classification._options import parse_options
from lamps_plugins.text_classification._problem import TextProblem
from lamps_plugins.text_classification._splits import normalised, text_key

SHOTS = 16
MOST_TRAIN = 2_000
"""Training texts of a task that methods may read, at most."""

MOST_DOMAIN = 256
WIDTH, OTHER_WIDTH = 128, 192
_OTHER_SEED = 1_000
"""Added to the zoo's seed for the second student, so that nothing is shared by accident."""


def open_any(
    reference: str | None, options: Mapping[str, Any], say: Say = on_stderr
) -> TransferProblem:
    """The problem that was named; see `TransferFamily.open_problem`."""
    head = options.get("head")
    if head is not None and head not in HEADS:
        raise ConfigError(f"head={head!r}. {did_you_mean(str(head), HEADS)}")
    own = any(options.get(f"{name}_base") for name in ("source", "target"))
    if not own and reference not in BUILTIN:
        raise ProblemError(
            f"no built-in transfer {reference!r}; for one's own models give a file of labelled "
            "texts with --source-base DIR, --source-tuned DIR and --target-base DIR. "
            f"{did_you_mean(str(reference), BUILTIN)}"
        )
    allowed = OWN if own else BUILTIN[str(reference)]
    for name in options:
        if name not in allowed:
            where = "one's own models" if own else f"the built-in {reference!r}"
            raise ConfigError(f"option {name!r} has no meaning for {where}; it takes {allowed}")
    if own:
        return _own(reference, options)
    seed = int(options.get("zoo_seed", 0))
    if seed < 0:
        raise ConfigError(f"zoo_seed={seed}: expected 0 or more")
    name = str(reference)
    return (_toy if name.startswith("toy") else zoo_transfer)(name, options, seed, say)


def _finished(
    name: str,
    options: Mapping[str, Any],
    folders: tuple[Path, Path, Path, Path | None],
    texts: Texts,
    **more: Any,
) -> TransferProblem:
    lineage = open_lineage(*folders)
    return TransferProblem(
        name=name,
        lineage=lineage,
        texts=texts,
        head=str(options.get("head") or ("old" if lineage.same_width else "ridge")),
        shots=int(options.get("shots", SHOTS)),
        **more,
    )


def zoo_transfer(
    name: str, options: Mapping[str, Any], seed: int, say: Say = on_stderr, *, mark: bool = True
) -> TransferProblem:
    """A built-in transfer of real tasks.

    Args:
        name: Its name.
        options: Its options.
        seed: Of all training.
        say: Told before something is trained.
        mark: Fine-tune the target base too, to measure against; it takes as long as all the rest.
    """
    profile = str(options.get("profile", "quick"))
    task = str(options.get("task", "r8"))
    how = _students.size_of(profile)
    problem = _tasks.zoo_task(task, most_train=MOST_TRAIN)  # before anything is trained
    base = _students.student(WIDTH, seed, profile, say)
    facts: dict[str, Json] = {"profile": profile, "zoo_seed": seed, "teacher": _students.TEACHER}
    if name == f"width-{OTHER_WIDTH}":
        target = _students.student(OTHER_WIDTH, seed + _OTHER_SEED, profile, say)
        held = [_domains.domain(d, how.texts).held for d in _domains.SEEN]
        domain = interleaved(held)[:MOST_DOMAIN]
    else:
        shift = str(options.get("shift_domain", "encyclopedia"))
        steps = _students.SHIFTS[name.removeprefix("shift-")]
        target = _students.shifted(base, shift, steps, seed + 1, profile, say)
        domain = _domains.domain(shift, how.texts).held
        facts |= {"shift_domain": shift, "shift_steps": steps}
    folders = (
        base,
        _students.tuned(base, task, seed, profile, say),
        target,
        _students.tuned(target, task, seed, profile, say) if mark else None,
    )
    seen = [_domains.domain(d, how.texts).train for d in _domains.SEEN]
    generic = without(interleaved(seen), [*domain, *problem._texts["val"]])
    return _finished(
        f"{name}-{task}",
        options,
        folders,
        Texts(problem, generic[: how.texts], domain),
        source={"opened": name, "options": dict(options)},
        facts=facts,
    )


def _toy(name: str, options: Mapping[str, Any], seed: int, say: Say) -> TransferProblem:
    """The zoo's toy: a base fine-tuned on one task, moved to the base after another task."""
    spec = ZooSpec(profile="toy", seed=seed)
    zoo = build(spec, say)
    task, other, far = spec.tasks
    target = _toy_width.wider(zoo.base, seed) if name == "toy-width" else zoo.experts[other]
    texts = Texts(
        spec.task(task),
        tuple(spec.task(other).texts("train")) + tuple(spec.task(far).texts("train")),
        tuple(spec.task(other).texts("val")),
    )
    folders = (zoo.base, zoo.experts[task], target, None)
    return _finished(
        name, options, folders, texts, source={"opened": name, "options": dict(options)}
    )


def _own(reference: str | None, options: Mapping[str, Any]) -> TransferProblem:
    if reference is None:
        raise ProblemError("name a file with labelled texts of the task, beside the models")
    folders: dict[str, Path] = {}
    for name in ("source_base", "source_tuned", "target_base"):
        if not options.get(name):
            raise ProblemError(
                f"--{name.replace('_', '-')} DIR is missing; a transfer needs three"
            )
        folders[name] = Path(str(options[name])).expanduser().absolute()
    if options.get("target_tuned"):
        folders["target_tuned"] = Path(str(options["target_tuned"])).expanduser().absolute()
    file = Path(reference).expanduser().absolute()
    kept = {k: options[k] for k in ("target", "text", "max_length", "split_seed") if k in options}
    chosen = parse_options(kept)
    parts = load(file, chosen)
    task = TextProblem(
        name=file.name.split(".")[0] or file.name, parts=parts, max_length=chosen.max_length,
        landmarks=1, split_seed=chosen.split_seed, source={"path": str(file)},
    )  # fmt: skip
    notes = list(parts.notes)
    unlabelled: dict[str, tuple[str, ...]] = {}
    held = [*task._texts["val"], *task._texts["test"]]
    for name in ("generic", "domain"):
        given = options.get(f"{name}_data")
        if given:
            path = Path(str(given)).expanduser().absolute()
            found = tuple(t for t in read_texts(path, {}, likely=None) if t.strip())
            unlabelled[name] = without(found, held)
        else:
            unlabelled[name] = tuple(task._texts["train"])
            notes.append(f"no --{name}-data: the task's training texts stand in, unlabelled")
    texts = Texts(task, unlabelled["generic"], unlabelled["domain"][-MOST_DOMAIN:])
    absolute = {k: str(v) for k, v in folders.items()}
    absolute |= {
        k: str(Path(str(options[k])).expanduser().absolute())
        for k in ("generic_data", "domain_data")
        if options.get(k)
    }
    return _finished(
        f"{task.name}-to-{folders['target_base'].name}",
        options,
        (
            folders["source_base"],
            folders["source_tuned"],
            folders["target_base"],
            folders.get("target_tuned"),
        ),
        texts,
        source={"opened": str(file), "options": {**options, **absolute}},
        notes=notes,
    )


def interleaved(parts: list[tuple[str, ...]]) -> tuple[str, ...]:
    """One text of each part in turn, while there are any.

    Example:
        >>> interleaved([("a", "b"), ("c",)])
        ('a', 'c', 'b')
    """
    mixed = itertools.chain.from_iterable(itertools.zip_longest(*parts))
    return tuple(text for text in mixed if text is not None)


def without(texts: tuple[str, ...], held: list[str]) -> tuple[str, ...]:
    """Texts that are not among others, compared as the splits compare them."""
    keys = {text_key(normalised(text), 0) for text in held}
    return tuple(text for text in texts if text_key(normalised(text), 0) not in keys)
