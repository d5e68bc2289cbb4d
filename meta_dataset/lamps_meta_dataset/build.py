"""Measuring the meta-dataset: every candidate on every task, through `lamps.search` itself.

One run a task, named ``meta-TASK``, in one store. A task is measured in a process of its own with
the local backend: landmarks do not disturb each other, and a candidate that takes the process down
ends that process only. `build` starts another one, which resumes the run; after three attempts at
the same landmark the controller leaves the trial as crashed.

**A candidate's cost is its own.** Tokens and features that one candidate computed would make the
next one of the same network nearly free. So the caches of tokens, features, tokenizers and vectors
are emptied whenever another candidate has its turn; within a candidate, later landmarks use what
the earlier ones computed, as they do in any search. Imports are paid before the first candidate.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lamps
from lamps.errors import ConfigError, did_you_mean
from lamps.method import cache_dir
from lamps.scheduler.progress import Progress
from lamps.types import Candidate
from lamps_meta_dataset import machine
from lamps_meta_dataset.candidates import pool
from lamps_meta_dataset.tasks import TASKS, read_task, sample, write_rows

PREFIX = "meta-"
OBJECTIVES = ("val_error", "latency_ms", "size_bytes")
MAX_STALLS = 4
"""Processes in a row that may end without a new landmark before a task is left alone: one more
than a landmark has attempts, so that a candidate that kills its process does not end the task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large a task's sample is.

    Args:
        train: Training texts, about.
        val: Validation texts, about.
        test: Test texts, about.
        max_length: Tokens of a text that networks read.
        landmarks: Doubling landmarks after the untouched one.
    """

    train: int = 480
    val: int = 160
    test: int = 80
    max_length: int = 32
    landmarks: int = 5

    @property
    def total(self) -> int:
        """Rows of a sample."""
        return self.train + self.val + self.test

    def options(self) -> dict[str, Any]:
        """Options of the problem."""
        return {
            "target": "label",
            "text": "text",
            "val_share": self.val / self.total,
            "test_share": self.test / self.total,
            "max_length": self.max_length,
            "landmarks": self.landmarks,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a build keeps things.

    Args:
        folder: Samples, caches and, unless ``store`` says otherwise, the database.
        store: SQLAlchemy URL of the database; a SQLite file in the folder if empty.
    """

    folder: Path = field(default_factory=lambda: Path("build/meta_dataset"))
    store: str = ""

    @property
    def url(self) -> str:
        """The database."""
        return self.store or f"sqlite:///{self.folder.absolute()}/meta.db"


def say(text: str) -> None:
    """A line of progress on stderr, with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def check_names(names: Sequence[str]) -> list[str]:
    """Names of tasks as given, all of them if none.

    Raises:
        ConfigError: There is no such task.
    """
    for name in names:
        if name not in TASKS:
            raise ConfigError(f"no task {name!r}. {did_you_mean(name, TASKS)}")
    return list(names) or list(TASKS)


def build(names: Sequence[str], place: Place) -> list[str]:
    """Measure tasks that are not finished yet, each in a process of its own.

    Args:
        names: Tasks, in order; all if empty.
        place: Where to.

    Returns:
        Tasks that could not be finished; empty if all is well.
    """
    left = []
    for name in check_names(names):
        stalls, before = 0, progress(name, place.url)
        while before[0] != "finished" and stalls < MAX_STALLS:
            say(f"{name}: starts or goes on after {before[1]} landmarks")
            code = subprocess.run(
                [sys.executable, "-m", "lamps_meta_dataset", "measure", name,
                 "--folder", str(place.folder), "--store", place.url],
                check=False,
            ).returncode  # fmt: skip
            after = progress(name, place.url)
            if after[0] != "finished":
                say(f"{name}: its process ended with code {code}")
                if code == 130:
                    raise KeyboardInterrupt
            stalls = 0 if after[1] > before[1] else stalls + 1
            before = after
        if before[0] == "finished":
            say(f"{name}: finished with {before[1]} landmarks")
        else:
            left.append(name)
            say(f"{name}: given up for now")
    return left


def progress(name: str, url: str) -> tuple[str, int]:
    """State of a task's run (``absent`` where there is none) and its number of landmarks."""
    with lamps.open_store(url) as store:
        for run in store.runs():
            if run.name == PREFIX + name:
                return run.state, run.n_evaluations
    return "absent", 0


def measure(
    name: str,
    place: Place,
    *,
    candidates: Sequence[Candidate] = (),
    size: Size | None = None,
    warm: bool = True,
) -> None:
    """Measure one task in this process, or go on with it.

    Args:
        name: One of `TASKS`.
        place: Where to.
        candidates: What to measure; the list of `candidates.pool` if empty.
        size: How large the sample is; the default size if None.
        warm: Whether imports are paid for first.
    """
    chosen = list(candidates) or pool()
    machine.record(place.folder)
    with own_cache(place.folder):
        listener = Turns(name, chosen)
        if progress(name, place.url)[0] != "absent":
            if warm:
                warm_up(chosen)
            lamps.resume(PREFIX + name, store=place.url, listener=listener)
            return
        size = size or Size()
        data = write_sample(name, place.folder, size)
        if warm:
            warm_up(chosen)
        lamps.search(
            data,
            candidates=chosen,
            objectives=OBJECTIVES,
            policy="exhaustive",
            backend="local",
            store=place.url,
            name=PREFIX + name,
            seed=0,
            listener=listener,
            **size.options(),
        )


def write_sample(name: str, folder: Path, size: Size) -> Path:
    """The CSV of a task's sample; written under another name first, so it is whole or absent."""
    task = TASKS[name]
    rows = sample(read_task(name), size.total, most_of_class=task.most_of_class)
    target = folder / "samples" / f"{name}.csv"
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(f".{os.getpid()}")
    write_rows(rows, part)
    part.replace(target)
    return target


@contextmanager
def own_cache(folder: Path) -> Iterator[None]:
    """A cache for this build, because it is emptied all the time; converted models are shared."""
    shared = cache_dir()
    own = (folder / "cache").absolute()
    own.mkdir(parents=True, exist_ok=True)
    (shared / "models").mkdir(parents=True, exist_ok=True)
    if not (own / "models").exists():
        (own / "models").symlink_to((shared / "models").absolute(), target_is_directory=True)
    before = os.environ.get("LAMPS_CACHE")
    os.environ["LAMPS_CACHE"] = str(own)
    try:
        forget()
        yield
    finally:
        if before is None:
            del os.environ["LAMPS_CACHE"]
        else:
            os.environ["LAMPS_CACHE"] = before


def forget() -> None:
    """Empty the caches of tokens, features, tokenizers and vectors."""
    from lamps_plugins.text_classification import _features, _static

    for part in ("tokens", "features"):
        shutil.rmtree(cache_dir() / part, ignore_errors=True)
    _features._tokenizer.cache_clear()
    _static.vectors.cache_clear()


class Turns:
    """Listens to a search: empties the caches between candidates and reports each one.

    Args:
        task: Its name in the report.
        candidates: The pool.
    """

    def __init__(self, task: str, candidates: Sequence[Candidate]) -> None:
        self.task, self.candidates = task, candidates
        self.trial, self.started = -1, time.monotonic()

    def __call__(self, event: Progress) -> None:
        """Take one event; the next candidate's turn begins with its first decision."""
        if event.event == "decide" and event.trial != self.trial:
            forget()
            self.trial, self.started = event.trial, time.monotonic()
        if event.event in ("failed", "crashed"):
            say(f"{self.task}: {event.event}: {event.error}")
        if event.event == "ok" and event.evaluation is not None:
            values = event.evaluation.objectives
            spent = time.monotonic() - self.started
            say(
                f"{self.task} {event.trial + 1}/{len(self.candidates)} landmark {event.landmark} "
                f"error {values['val_error']:.3f} {values['latency_ms']:.1f} ms "
                f"{spent:.1f} s {self.candidates[event.trial].label}"
            )


def warm_up(candidates: Sequence[Candidate]) -> None:
    """Import what candidates need and run the toy problem with one of each method."""
    first = {c.method: c for c in reversed(candidates)}
    with tempfile.TemporaryDirectory() as folder:
        lamps.search(
            problem="text-classification:toy",
            candidates=list(first.values()),
            policy="exhaustive",
            backend="local",
            store=f"sqlite:///{folder}/toy.db",
            name="toy",
        )
    forget()
