"""Builds zoos: each expert once, in a folder named after everything that its weights depend on.

A zoo is a base and one expert a task. Folders lie under ``zoo`` in the cache, appear by a rename
and are made under a file lock, so that a build can be stopped and gone on with, and two processes
that want the same zoo share the work.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from lamps.errors import ProblemError
from lamps.method import ModelInfo, cache_dir
from lamps.types import Json, digest
from lamps_plugins._zoo import _experts, _tasks, _toy
from lamps_plugins._zoo._experts import Recipe
from lamps_plugins.text_classification import _nets
from lamps_plugins.text_classification._models import CATALOGUE, folder_info
from lamps_plugins.text_classification._problem import TextProblem

FACTS = "lamps-expert.json"
"""What an expert's folder says of itself."""

ENCODER = "paraphrase-MiniLM-L3-v2"
"""The base: all three layers of a checkpoint of the text family's catalogue.

Of three candidates after 80 steps on r8 (accuracy of the expert, and of the base under its head):
this one 0.916 and 0.729; all-MiniLM-L6-v2 cut to three layers 0.685 and 0.299, with its top layer
reading all tokens alike 0.807 and 0.679."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooSpec:
    """Which zoo.

    Args:
        kind: ``full``, ``lora`` or ``oft``.
        n_tasks: How many tasks of the protocol; all toy tasks where ``profile`` is ``toy``.
        seed: Of the experts' training.
        profile: ``quick``, ``full``, or ``toy`` for networks made in code.
    """

    kind: str = "full"
    n_tasks: int = 8
    seed: int = 0
    profile: str = "quick"

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks, in order."""
        return tuple(_toy.TASKS) if self.profile == "toy" else _tasks.task_names(self.n_tasks)

    def task(self, name: str, *, most_train: int | None = None) -> TextProblem:
        """A task's texts; the first ``most_train`` of its training texts."""
        if self.profile != "toy":
            return _tasks.zoo_task(name, most_train=most_train)
        parts = _toy.toy_parts(name, self.seed)
        return _tasks.task_problem(name, parts, _toy.MAX_LENGTH, self.seed, most_train=most_train)

    def recipe(self) -> Recipe:
        """How its experts are trained."""
        return _toy.recipe(self.kind) if self.profile == "toy" else _experts.recipe(
            self.kind, self.profile
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Zoo:
    """A built zoo: folder of the base, and of each expert by the name of its task, in order."""

    base: Path
    experts: dict[str, Path]


def on_stderr(line: str) -> None:
    """The default way to tell what is going on."""
    print(line, file=sys.stderr, flush=True)


def build(spec: ZooSpec, say: Say = on_stderr) -> Zoo:
    """The zoo, built where it is not there yet.

    Args:
        spec: Which one.
        say: Told before each expert that has to be trained.

    Raises:
        ProblemError: A package with texts or weights is not installed; the message says how.
    """
    how = spec.recipe()
    base = _base(spec)
    info = folder_info(base, name=base.name)
    experts: dict[str, Path] = {}
    for number, name in enumerate(spec.tasks, start=1):
        task = spec.task(name)
        key = digest(
            [_experts.FORMAT, info.sha256, task.fingerprint(), spec.seed, *_fields(how)], length=10
        )
        folder = root() / f"{name}-{spec.kind}-{spec.profile}-s{spec.seed}-{key}"

        def make(work: Path, name: str = name, task: TextProblem = task, n: int = number) -> None:
            if spec.profile != "toy":
                say(
                    f"zoo: training expert {n} of {len(spec.tasks)}, {name} ({spec.kind}, "
                    f"{how.steps} steps, seed {spec.seed})"
                )
            _train(info, task, spec, work)

        experts[name] = made(folder, make)
    return Zoo(base, experts)


def _fields(how: Recipe) -> list[Json]:
    return [how.kind, how.steps, how.batch_size, how.lr, how.head_lr, how.oft_block]


def root() -> Path:
    """Where everything of the zoo is kept."""
    return cache_dir() / "zoo"


def made(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder, made by the first process that asks."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not folder.is_dir():
                work = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
                try:
                    make(work)
                    work.chmod(0o755)
                    os.replace(work, folder)
                finally:
                    shutil.rmtree(work, ignore_errors=True)
    return folder


def _base(spec: ZooSpec) -> Path:
    if spec.profile == "toy":
        key = digest([_experts.FORMAT, spec.seed, _toy.WIDTH, _toy.DEPTH], length=10)
        return made(
            root() / f"base-toy-s{spec.seed}-{key}", lambda work: _toy.write_base(work, spec.seed)
        )
    info = CATALOGUE.resolve(ENCODER)
    key = digest([_experts.FORMAT, info.sha256], length=10)
    return made(root() / f"base-{ENCODER}-{key}", lambda work: _write_base(info, work))


def _write_base(info: ModelInfo, work: Path) -> None:
    """The encoder with the pooler that classifiers start from, so that base and experts agree."""
    from lamps_plugins.text_classification import _export, _features

    tokenizer = _features.tokenizer_of(info)
    head = _nets.HeadSpec(names=("0", "1"), multi_label=False, max_length=_tasks.MAX_LENGTH)
    net: Any = _nets.load_classifier(info, head, pad_id=tokenizer.pad_token_id)
    with _nets.quiet():
        net.base_model.save_pretrained(work)
    _export.write_tokenizer(work, tokenizer, _tasks.MAX_LENGTH)


def _train(base: ModelInfo, task: TextProblem, spec: ZooSpec, work: Path) -> None:
    started = time.perf_counter()
    measured = _experts.train_expert(base, task, spec.recipe(), seed=spec.seed, folder=work)
    facts = {
        "task": task.name,
        "kind": spec.kind,
        "profile": spec.profile,
        "seed": spec.seed,
        "steps": spec.recipe().steps,
        "base": base.sha256,
        "n_train": task.n_train,
        "seconds": time.perf_counter() - started,
        **measured,
    }
    (work / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def listing() -> Iterator[dict[str, Json]]:
    """Facts of every expert of the zoo in the cache, with its folder and its bytes."""
    for file in sorted(root().glob(f"*/{FACTS}")):
        try:
            facts: dict[str, Json] = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ProblemError(
                f"{file} is damaged; remove its folder, it is built again"
            ) from error
        size = sum(f.stat().st_size for f in file.parent.iterdir() if f.is_file())
        yield {**facts, "size_bytes": size, "folder": str(file.parent)}
