"""What an importer of a public table format is; plugins register them through a hook."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lamps.tables.bad_rows import BadRow
from lamps.tables.table import LandmarkTable


@dataclass(frozen=True, slots=True)
class Imported:
    """What came out of a file or folder.

    Args:
        tables: The tables, each with a name of its own.
        bad: Rows that were refused.
        notes: Sentences about what else was left out, counted.
    """

    tables: list[LandmarkTable]
    bad: list[BadRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """Reads one foreign layout.

    Args:
        summary: What it reads, in one line.
        expects: Files it looks for, for help and error messages.
        read: Takes the file or folder that the user named. Raises `ProblemError` if it is
            something else; reports rows that it left out.
    """

    summary: str
    expects: str
    read: Callable[[Path], Imported]
