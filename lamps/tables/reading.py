"""Read landmark tables from files and folders."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Literal, overload

from lamps.errors import ProblemError, did_you_mean
from lamps.tables.bad_rows import BadRow
from lamps.tables.building import build_tables
from lamps.tables.columns import read_columns
from lamps.tables.rows import objective_headers, objective_of
from lamps.tables.table import LandmarkTable
from lamps.tables.writing import card_path

SUFFIXES = (".csv", ".csv.gz", ".parquet")


def read_table(
    path: str | Path, *, maximize: Iterable[str] = (), problem: str | None = None
) -> LandmarkTable:
    """Read the one landmark table of a CSV (also gzipped) or Parquet file.

    Args:
        path: The file.
        maximize: Objectives of which more is better, whatever their header says.
        problem: Name of the table, where the file holds several.

    Raises:
        ProblemError: A column is missing, a row is malformed or repeated, cost decreases, a
            candidate lacks its first landmark (each with the line number), or the file holds
            several tables and none is named.
    """
    tables = read_tables(path, maximize=maximize, problem=problem)
    if len(tables) > 1:
        names = ", ".join(t.name for t in tables[:4])
        raise ProblemError(
            f"{str(path)!r} holds {len(tables)} tables ({names}{', …' if tables[4:] else ''}), "
            "expected one; name the problem"
        )
    return tables[0]


@overload
def read_tables(
    path: str | Path,
    *,
    maximize: Iterable[str] = ...,
    problem: str | None = ...,
    on_bad: Literal["raise"] = ...,
) -> list[LandmarkTable]: ...
@overload
def read_tables(
    path: str | Path,
    *,
    maximize: Iterable[str] = ...,
    problem: str | None = ...,
    on_bad: Literal["list"],
) -> tuple[list[LandmarkTable], list[BadRow]]: ...
def read_tables(
    path: str | Path,
    *,
    maximize: Iterable[str] = (),
    problem: str | None = None,
    on_bad: Literal["raise", "list"] = "raise",
) -> list[LandmarkTable] | tuple[list[LandmarkTable], list[BadRow]]:
    """Read all landmark tables of a file, or of every file in a folder.

    Several problems in a file are several tables; a problem with several seeds is one table a
    seed, named ``problem#seed``. Two files of a folder may use one name; the table of the second
    is then called ``file/problem``.

    Args:
        path: A CSV, CSV.gz or Parquet file, or a folder of them.
        maximize: Objectives of which more is better, whatever their header says; each must exist.
        problem: Only tables of that name.
        on_bad: ``raise`` at the first bad row, or leave bad rows and what depends on them out and
            ``list`` them.

    Returns:
        The tables; with ``on_bad="list"`` also the bad rows, by line.

    Raises:
        ProblemError: No such file, not a landmark table, a bad row (with ``raise``), a card whose
            hash differs, or nothing of the name asked for.
        ConfigError: An objective's name or direction cannot be used.
    """
    given = list(maximize)
    tables: list[LandmarkTable] = []
    bad: list[BadRow] = []
    names: set[str] = set()
    seen: set[str] = set()
    for file in _files(Path(path)):
        _verify(file)
        columns = read_columns(file)
        names |= {objective_of(h).name for h in objective_headers(columns.header)}
        stem = _stem(file)
        found, refused = build_tables(columns, stem, given)
        if refused and on_bad == "raise":
            raise ProblemError(str(refused[0]))
        described = columns.metadata.get("tables", {})
        for table in found:
            about = described.get(table.name, {})
            table = replace(
                table, source=about.get("source", ""), licence=about.get("licence", "")
            )
            if table.name in seen:
                table = replace(table, name=f"{stem}/{table.name}")
            seen.add(table.name)
            tables.append(table)
        bad += [replace(row, file=file.name) for row in refused]
    for name in given:
        if name not in names:
            raise ProblemError(
                f"cannot maximise {name!r}, no table in {str(path)!r} has it. "
                f"{did_you_mean(name, names)}"
            )
    if problem is not None:
        known = [t.name for t in tables]
        tables = [t for t in tables if problem in (t.name, t.name.rpartition("#")[0])]
        if not tables:
            raise ProblemError(
                f"{str(path)!r} has no table {problem!r}. {did_you_mean(problem, known)}"
            )
    if on_bad == "raise":
        return tables
    return tables, sorted(bad, key=lambda row: (row.file, row.line))


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(
            f
            for f in path.iterdir()
            if f.name.endswith(SUFFIXES) and not f.name.startswith(".") and f.is_file()
        )
        if not files:
            raise ProblemError(
                f"no landmark table in {str(path)!r}, expected files named {', '.join(SUFFIXES)}"
            )
        return files
    if not path.is_file():
        raise ProblemError(f"no landmark table at {str(path)!r}")
    return [path]


def _stem(file: Path) -> str:
    for suffix in SUFFIXES[::-1]:
        if file.name.endswith(suffix):
            return file.name.removesuffix(suffix)
    return file.stem


def _verify(file: Path) -> None:
    """Refuse a file that is not the one its card describes."""
    card = card_path(file)
    if not card.is_file():
        return
    try:
        told = json.loads(card.read_text(encoding="utf-8"))["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProblemError(f"{card} is no card of a landmark table: {error!r}") from error
    with file.open("rb") as handle:
        found = hashlib.file_digest(handle, "sha256").hexdigest()
    if found != told:
        raise ProblemError(
            f"{file} is not the file that {card.name} describes: its hash is {found[:12]}, the "
            f"card has {str(told)[:12]}; restore the file, or delete the card"
        )
