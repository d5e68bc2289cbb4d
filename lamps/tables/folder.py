"""The user's folder of landmark tables: one Parquet file and card per import."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from lamps.errors import ConfigError, LampsError, LampsWarning, ProblemError, did_you_mean
from lamps.tables.reading import SUFFIXES, read_tables
from lamps.tables.table import LandmarkTable
from lamps.tables.writing import write_tables

_NAME = re.compile(r"[\w][\w .+-]*", re.UNICODE)


class TableFolder:
    """Landmark tables that policies may be trained and judged on.

    Args:
        path: The folder; made with the first import.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def files(self) -> list[Path]:
        """Its table files by name."""
        if not self.path.is_dir():
            return []
        return sorted(
            f
            for f in self.path.iterdir()
            if f.name.endswith(SUFFIXES) and not f.name.startswith(".") and f.is_file()
        )

    def tables(self) -> list[tuple[Path, LandmarkTable]]:
        """Every table with its file; a file that cannot be read is warned of and left out."""
        found: list[tuple[Path, LandmarkTable]] = []
        for file in self.files():
            try:
                found += [(file, table) for table in read_tables(file)]
            except LampsError as error:
                warnings.warn(f"{file.name} is left out: {error}", LampsWarning, stacklevel=2)
        return found

    def find(self, name: str) -> tuple[Path, LandmarkTable]:
        """The table of that name.

        Raises:
            ProblemError: There is none.
        """
        found = self.tables()
        for file, table in found:
            if table.name == name:
                return file, table
        raise ProblemError(
            f"no table {name!r} in {str(self.path)!r}. "
            f"{did_you_mean(name, [t.name for _, t in found])}"
        )

    def add(
        self,
        name: str,
        tables: Sequence[LandmarkTable],
        card: Mapping[str, Any] | None = None,
        *,
        replace: bool = False,
    ) -> Literal["imported", "replaced", "unchanged"]:
        """Keep tables under a name; the same again changes nothing.

        Args:
            name: Of the file, without suffix.
            tables: What it holds.
            card: Further keys of its card.
            replace: Whether other tables of that name may be replaced.

        Raises:
            ConfigError: The name is none for a file, or other tables have it already.
            ProblemError: The tables cannot be written.
        """
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{name!r} is no name for a file of tables, expected letters, digits, '-', '_'"
            )
        target = self.path / f"{name}.parquet"
        state: Literal["imported", "replaced"] = "imported"
        if target.exists():
            if _same(target, tables):
                return "unchanged"
            if not replace:
                raise ConfigError(
                    f"{str(target)!r} holds other tables already; give --replace to replace them, "
                    "or --name for another name"
                )
            state = "replaced"
        taken = {t.name: f for f, t in self.tables() if f != target}
        for table in tables:
            if table.name in taken:
                raise ConfigError(
                    f"table {table.name!r} is in {taken[table.name].name!r} already; remove that "
                    "file, or rename the problem"
                )
        write_tables(target, tables, card)
        return state


def _same(file: Path, tables: Sequence[LandmarkTable]) -> bool:
    def key(table: LandmarkTable) -> tuple[str, ...]:
        about = (table.name, table.family, table.source, table.licence)
        return (*about, table.fingerprint())

    try:
        return [key(t) for t in read_tables(file)] == [key(t) for t in tables]
    except LampsError:
        # Damaged: it is not the same, and the caller decides whether it may be replaced.
        return False
