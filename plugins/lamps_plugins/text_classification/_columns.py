"""Which column of a table is meant, and the texts of a file that has no labels."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lamps.errors import ConfigError, ProblemError, did_you_mean

from ._options import parse_options
from ._reader import Table, open_tables

__all__ = ["find_text", "read_texts", "require_column"]

_PREDICT_OPTIONS = ("text", "data_format", "delimiter", "encoding", "quote")


def require_column(table: Table, column: str | None, flag: str) -> None:
    """Refuse a table without that column; None is no column and passes.

    Raises:
        ProblemError: The column is missing; the message suggests the nearest name.
    """
    if column is not None and column not in table.columns:
        raise ProblemError(
            f"{table.path} has no column {column!r} (--{flag}). "
            + did_you_mean(column, (c for c in table.columns if c))
        )


def find_text(
    table: Table, preview: Sequence[Sequence[Any]], taken: Sequence[str | None]
) -> tuple[str, list[str]]:
    """The string column with the longest texts on average, and a note if there was a choice.

    Args:
        table: The table.
        preview: Its first rows with all columns.
        taken: Columns with another meaning.

    Raises:
        ProblemError: There is none.
    """
    means: dict[str, float] = {}
    for place, column in enumerate(table.columns):
        values = [row[place] for row in preview if row[place] not in (None, "")]
        if column in taken or not values or not all(isinstance(v, str) for v in values):
            continue
        if table.typed or not all(_is_number(v) for v in values):
            means[column] = sum(map(len, values)) / len(values)
    if not means:
        raise ProblemError(
            f"{table.path} has no column of text. Name one with --text. Columns: {table.listing()}"
        )
    best = max(means, key=lambda c: means[c])
    if len(means) == 1:
        return best, []
    note = (
        f"text is read from column {best!r} (longest of {len(means)} text columns, "
        f"{means[best]:.0f} characters on average); --text names another"
    )
    return best, [note]


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def read_texts(
    rows: Path | None, options: Mapping[str, Any], *, likely: str | None = None
) -> Iterator[str]:
    """The text of each row of a file in its order; a missing one is empty, so answers line up.

    Args:
        rows: A file in any format of the family; None reads one text a line from standard input.
        options: Some of ``text``, ``data_format``, ``delimiter``, ``encoding``, ``quote``.
        likely: Column to take where ``text`` names none and the file has this one.

    Raises:
        ProblemError: The file cannot be read, or has no such column.
        ConfigError: An option has no meaning here.
    """
    chosen = parse_options(options)
    for name in chosen.as_json():
        if name not in _PREDICT_OPTIONS:
            raise ConfigError(
                f"option {name!r} has no meaning for rows to predict. "
                + did_you_mean(name, _PREDICT_OPTIONS)
            )
    if rows is None:
        for line in sys.stdin:
            yield line.rstrip("\r\n")
        return
    tables = open_tables(rows, chosen)
    if len(tables) != 1:
        raise ProblemError(f"{rows} has {len(tables)} splits; expected one table of rows")
    (table,) = tables
    require_column(table, chosen.text, "text")
    column = chosen.text or (likely if likely in table.columns else None)
    column = column or find_text(table, table.preview(), ())[0]
    for line, (text,) in table.rows([column]):
        if text is not None and not isinstance(text, str):
            raise ProblemError(
                f"{table.path} line {line}: column {column!r} holds {text!r:.40}; expected text"
            )
        yield text or ""
