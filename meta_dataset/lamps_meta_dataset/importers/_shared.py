"""What the importers share: finding files, and the cost model of runs without recorded seconds."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lamps.errors import ProblemError
from lamps.tables import BadRow, Imported, LandmarkTable, tables_from_columns

FLOPS = 1e15
"""Floating point operations a second of the machine that modelled costs assume."""

EVALUATION_TOKENS = 1_000_000
"""Tokens that modelled evaluations read."""

MODELLED = (
    "cost modelled: training 6 x params x tokens, each evaluation 2 x params x 1e6 tokens, at "
    "1e15 FLOP/s"
)
ONE_EVALUATION = "cost modelled: one evaluation of 2 x params x 1e6 tokens at 1e15 FLOP/s"


def evaluation_s(params: float) -> float:
    """Modelled seconds of one evaluation of a model with that many weights."""
    return 2.0 * params * EVALUATION_TOKENS / FLOPS


def training_s(params: float, tokens: float) -> float:
    """Modelled seconds of training on that many tokens."""
    return 6.0 * params * tokens / FLOPS


def locate(path: Path, *names: str) -> Path:
    """The first of some files: ``path`` itself, or inside the folder ``path``.

    Raises:
        ProblemError: None of them is there.
    """
    if path.is_file() and path.name in names:
        return path
    for name in names:
        if (path / name).is_file():
            return path / name
    raise ProblemError(
        f"{str(path)!r} has no {' or '.join(names)}; name the file, or the folder that holds it"
    )


def csv_rows(file: Path, needed: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Line and cells by header of each row.

    Raises:
        ProblemError: It is no CSV, or one of the needed columns is missing.
    """
    opener: Any = gzip.open if file.suffix == ".gz" else open
    try:
        with opener(file, "rt", encoding="utf-8-sig", newline="") as handle:
            reader = csv.DictReader(handle)
            missing = [n for n in needed if n not in (reader.fieldnames or ())]
            if missing:
                raise ProblemError(
                    f"{file.name} has no column {missing[0]!r}, only "
                    f"{', '.join(list(reader.fieldnames or ())[:8])}, …"
                )
            for row in reader:
                yield reader.line_num, row
    except (UnicodeDecodeError, OSError, EOFError, csv.Error) as error:
        raise ProblemError(f"{file} cannot be read as CSV: {error}") from error


def number(text: str | None) -> float | None:
    """The number in a cell; None where it is empty, or no number."""
    try:
        return float(text) if text else None
    except ValueError:
        return None


def snake(name: str) -> str:
    """A benchmark's name as part of a table's name.

    Example:
        >>> snake("MATH Lvl 5"), snake("arc:challenge")
        ('math_lvl_5', 'arc_challenge')
    """
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


class LongRows:
    """Rows of the long form, gathered one by one."""

    def __init__(self) -> None:
        self.lines: list[int] = []
        self.columns: dict[str, list[Any]] = {}

    def add(self, line: int, **cells: Any) -> None:
        """Append one row; a header with a colon is given as ``**{"acc:maximize": 0.5}``."""
        for name in cells:
            if name not in self.columns:
                self.columns[name] = [None] * len(self.lines)
        for name, column in self.columns.items():
            column.append(cells.get(name))
        self.lines.append(line)

    def imported(self, name: str, about: Mapping[str, str]) -> Imported:
        """The tables, with what is known about all of them.

        Raises:
            ProblemError: There is no row.
        """
        if not self.lines:
            raise ProblemError(f"nothing to import for {name!r}: no usable row was found")
        tables, bad = tables_from_columns(self.columns, name=name, lines=self.lines)
        return Imported([described(t, about) for t in tables], bad)


def described(table: LandmarkTable, about: Mapping[str, str]) -> LandmarkTable:
    """The table with family, source, licence or unit."""
    return replace(table, **dict(about))  # type: ignore[arg-type]


def merged(parts: Sequence[Imported], file: str = "") -> Imported:
    """Several imports as one."""
    bad: list[BadRow] = [replace(b, file=b.file or file) for p in parts for b in p.bad]
    return Imported([t for p in parts for t in p.tables], bad, [n for p in parts for n in p.notes])
