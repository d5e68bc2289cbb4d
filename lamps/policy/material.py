"""The landmark tables that policies learn from and are judged on: shipped ones and any folder.

Reading is generous: whatever cannot be used is named with its reason, the rest is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lamps.errors import ConfigError, LampsError, ProblemError, did_you_mean
from lamps.plugins import hooks
from lamps.tables import LandmarkTable, card_path, read_tables

_SUFFIXES = (".csv", ".csv.gz", ".parquet")
_LISTED = 12  # bad rows of one file that are spelled out


@dataclass(slots=True)
class Material:
    """Tables, and what was left out.

    Args:
        tables: Each name once.
        left_out: One line per file, row or table that could not be used.
        held_out: Names of tables whose card keeps them out of every training.
    """

    tables: list[LandmarkTable] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    held_out: set[str] = field(default_factory=set)

    def add(self, table: LandmarkTable, stem: str) -> str:
        """Add a table under its name, or under ``stem/name`` where that is taken; the name."""
        taken = {t.name: t for t in self.tables}
        name = table.name
        if name in taken and taken[name].fingerprint() == table.fingerprint():
            self.left_out.append(f"{stem}: table {name!r} came before, it is used once")
            return name
        number = 1
        while name in taken:
            name = f"{stem}/{table.name}" + (f"~{number}" if number > 1 else "")
            number += 1
        self.tables.append(replace(table, name=name))
        return name

    def extend(self, tables: Sequence[LandmarkTable], stem: str = "shipped") -> None:
        """Add tables that were read already."""
        for table in tables:
            self.add(table, stem)


def shipped(held_out: bool | None = False) -> list[LandmarkTable]:
    """The tables that installed packages provide.

    Args:
        held_out: Only those that are kept for the last evaluation (True), all but those (False),
            or all (None).
    """
    found: list[LandmarkTable] = []
    for some in hooks().hook.lamps_provide_tables(held_out=held_out):
        found += some
    return found


def gather(paths: Sequence[str | Path], maximize: Sequence[str] = ()) -> Material:
    """Read tables from files and folders, sub-folders included.

    Args:
        paths: CSV, CSV.gz or Parquet files in long form, or folders of them.
        maximize: Objectives of which more is better, in whatever table has them.

    Raises:
        ProblemError: One of the paths does not exist.
        ConfigError: No table has an objective that should be maximised.
    """
    found = Material()
    for path in map(Path, paths):
        files = list(_files(path))
        if not files:
            found.left_out.append(f"{path}: no file named {', '.join(_SUFFIXES)} in this folder")
        for file in files:
            _read(file, found)
    found.tables = [_flipped(table, maximize) for table in found.tables]
    known = {o.name for t in found.tables for o in t.objectives}
    for name in maximize:
        if found.tables and name not in known:
            raise ConfigError(
                f"cannot maximise {name!r}, no table has it. {did_you_mean(name, known)}"
            )
    return found


def unusable(table: LandmarkTable) -> str:
    """Why nothing can be chosen in a table; empty if something can."""
    n = len(table.candidates)
    known = int((~table.censored).sum())
    if n < 2:
        return f"{n} candidate, expected two or more to choose from"
    if known < 2:
        return f"the end of {known} of {n} curves is known, expected two or more"
    return ""


def _files(path: Path) -> Iterator[Path]:
    if not path.exists():
        raise ProblemError(f"no file or folder {str(path)!r} with landmark tables")
    if path.is_file():
        yield path
        return
    for file in sorted(path.rglob("*")):
        inner = file.relative_to(path).parts
        hidden = any(part.startswith(".") for part in inner)
        if file.name.lower().endswith(_SUFFIXES) and file.is_file() and not hidden:
            yield file


def _read(file: Path, found: Material) -> None:
    try:
        tables, bad = read_tables(file, on_bad="list")
        held_out = _held_out(file)
    except (LampsError, OSError) as error:
        found.left_out.append(f"{file}: {' '.join(str(error).split())}")
        return
    found.left_out += [f"{file}: {row}" for row in bad[:_LISTED]]
    if len(bad) > _LISTED:
        found.left_out.append(f"{file}: {len(bad) - _LISTED} more bad rows")
    if not tables:
        found.left_out.append(f"{file}: no table is left")
    stem = file.name.split(".")[0]
    for table in tables:
        name = found.add(table, stem)
        if table.name in held_out:
            found.held_out.add(name)


def _held_out(file: Path) -> set[str]:
    """Names of the tables that a file's card keeps out of training."""
    card = card_path(file)
    if not card.is_file():
        return set()
    try:
        tasks = json.loads(card.read_text(encoding="utf-8")).get("tasks", {})
        return {name for name, about in tasks.items() if about.get("held_out")}
    except (ValueError, AttributeError) as error:
        raise ProblemError(f"{card} is no card of a landmark table: {error}") from error


def _flipped(table: LandmarkTable, maximize: Sequence[str]) -> LandmarkTable:
    if not {o.name for o in table.objectives} & set(maximize):
        return table
    objectives = tuple(
        replace(o, direction="maximize") if o.name in maximize else o for o in table.objectives
    )
    return replace(table, objectives=objectives)
