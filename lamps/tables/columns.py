"""The raw columns of a long-form file: words as codes, numbers as float64, each row with its line.

CSV goes through the standard library, in blocks, because nothing else tells the line of a row with
quoted line breaks; a hundred thousand rows take a few tenths of a second.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamps.errors import MissingExtra, ProblemError
from lamps.pareto import Floats

WORDS = ("problem", "candidate", "family", "seed", "unit", "state")
NUMBERS = ("fidelity", "elapsed_s", "cost_s", "size", "peak_bytes")
METADATA_KEY = b"lamps"
_BLOCK = 1 << 15


@dataclass(slots=True)
class Words:
    """A text column.

    Shape:
        codes: [r] int64, index into ``words``.
    """

    codes: NDArray[np.int64]
    words: list[str]


@dataclass(slots=True)
class Numbers:
    """A number column.

    Shape:
        values: [r] float64, NaN where empty;  empty: [r] bool.
    """

    values: Floats
    empty: NDArray[np.bool_]


@dataclass(slots=True)
class Columns:
    """A whole file.

    Args:
        header: Names of the columns that are used, in order.
        line: [r] line of each row.
        words: Text columns by name.
        numbers: All other columns by header.
        bad: Row index (-1 where the row could not be split into cells at all), line and reason.
        metadata: What `write_tables` left in the file beside the columns.
    """

    header: list[str]
    line: NDArray[np.int64]
    words: dict[str, Words]
    numbers: dict[str, Numbers]
    bad: list[tuple[int, int, str]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)


def read_columns(file: Path) -> Columns:
    """The columns of a CSV, gzipped CSV or Parquet file.

    Raises:
        ProblemError: It cannot be read as what its name says.
        MissingExtra: Parquet without pyarrow.
    """
    return _parquet(file) if file.suffix == ".parquet" else _csv(file)


def _csv(file: Path) -> Columns:
    opener: Any = gzip.open if file.suffix == ".gz" else open
    try:
        with opener(file, "rt", encoding="utf-8-sig", newline="") as handle:
            reader = csv.reader(handle)
            header = next(reader, [])
            return _blocks(header, ((reader.line_num, cells) for cells in reader if cells))
    except (UnicodeDecodeError, EOFError, OSError, csv.Error) as error:
        raise ProblemError(f"{file} cannot be read as CSV: {error}") from error


def _blocks(header: Sequence[str], rows: Iterable[tuple[int, list[str]]]) -> Columns:
    names = [name.strip() for name in header]
    index: dict[str, dict[str, int]] = {name: {} for name in names if name in WORDS}
    parts: list[list[Any]] = [[] for _ in names]
    lines: list[NDArray[np.int64]] = []
    bad: list[tuple[int, int, str]] = []
    seen = 0
    source = iter(rows)
    while block := list(itertools.islice(source, _BLOCK)):
        whole = [row for row in block if len(row[1]) == len(names)]
        if len(whole) < len(block):
            bad += [
                (-1, line, f"{len(cells)} cells, the header has {len(names)}")
                for line, cells in block
                if len(cells) != len(names)
            ]
        if not whole:
            continue
        lines.append(np.array([line for line, _ in whole], dtype=np.int64))
        for position, cells in enumerate(zip(*(cells for _, cells in whole), strict=True)):
            name = names[position]
            if name in index:
                known = index[name]
                parts[position].append(
                    np.array([known.setdefault(c, len(known)) for c in cells], dtype=np.int64)
                )
            elif name:
                parts[position].append(parse_numbers(cells, name, seen, lines[-1], bad))
        seen += len(whole)
    words: dict[str, Words] = {}
    numbers: dict[str, Numbers] = {}
    kept = [name for name in names if name]  # an unnamed column is an index that a tool left
    for name, part in zip(names, parts, strict=True):
        if name in index:
            codes = np.concatenate(part) if part else np.empty(0, dtype=np.int64)
            words[name] = Words(codes, list(index[name]))
        elif name:
            numbers.setdefault(name, _joined(part))  # a header given twice is refused later
    line = np.concatenate(lines) if lines else np.empty(0, dtype=np.int64)
    return Columns(kept, line, words, numbers, bad)


def _joined(parts: list[Numbers]) -> Numbers:
    if not parts:
        return Numbers(np.empty(0), np.empty(0, dtype=bool))
    return Numbers(
        np.concatenate([p.values for p in parts]), np.concatenate([p.empty for p in parts])
    )


def parse_numbers(
    cells: Sequence[Any],
    name: str,
    start: int,
    line: NDArray[np.int64],
    bad: list[tuple[int, int, str]],
) -> Numbers:
    """A number column from cells of any kind; cells that are no numbers go to ``bad``."""
    try:
        # Most columns have no gap.
        whole = np.fromiter(map(float, cells), dtype=np.float64, count=len(cells))
        return Numbers(whole, np.zeros(len(cells), dtype=bool))
    except (TypeError, ValueError):
        pass  # below, cell by cell
    empty = np.array([c is None or c == "" or str(c).isspace() for c in cells], dtype=bool)
    values = np.full(len(cells), np.nan)
    try:
        full = [c for c, missing in zip(cells, empty, strict=True) if not missing]
        values[~empty] = np.fromiter(map(float, full), dtype=np.float64, count=len(full))
    except (TypeError, ValueError):
        for row in np.flatnonzero(~empty).tolist():
            try:
                values[row] = float(cells[row])
            except (TypeError, ValueError):
                what = f"{name.split(':')[0]} is {cells[row]!r:.60}"
                reason = f"{what}, expected a number, nan, or nothing"
                bad.append((start + row, int(line[row]), reason))
    return Numbers(values, empty)


def _parquet(file: Path) -> Columns:
    parquet = pyarrow_parquet("reading Parquet")
    import pyarrow

    try:
        # Not as a dataset: a folder named seed=3 would add a column then.
        with parquet.ParquetFile(file) as opened:
            table = opened.read()
    except (ValueError, OSError) as error:  # pyarrow's ArrowInvalid is a ValueError
        line = " ".join(str(error).split())
        raise ProblemError(f"{file} cannot be read as Parquet: {line}") from error
    names = [n for n in table.column_names if n and not n.startswith("__index_level_")]
    rows = np.arange(1, table.num_rows + 1)
    columns = Columns(names, rows, {}, {})
    for name in dict.fromkeys(names):
        column = table.column(table.column_names.index(name))
        kind = column.type
        if name in WORDS:
            columns.words[name] = _arrow_words(column)
        elif pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind):
            values = column.cast(pyarrow.float64(), safe=False)
            columns.numbers[name] = Numbers(
                np.array(values.to_numpy(), dtype=np.float64),
                np.array(values.is_null().to_numpy(), dtype=bool),
            )
        else:
            cells = column.to_pylist()
            columns.numbers[name] = parse_numbers(cells, name, 0, rows, columns.bad)
    if METADATA_KEY in (table.schema.metadata or {}):
        columns.metadata = json.loads(table.schema.metadata[METADATA_KEY])
    return columns


def _arrow_words(column: Any) -> Words:
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    text = column.cast(pyarrow.string()).fill_null("").combine_chunks().dictionary_encode()
    if isinstance(text, pyarrow.ChunkedArray):
        text = text.combine_chunks()
    return Words(
        np.array(text.indices.to_numpy(zero_copy_only=False), dtype=np.int64),
        text.dictionary.to_pylist(),
    )


def pyarrow_parquet(feature: str) -> Any:
    """The module ``pyarrow.parquet``.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise MissingExtra(feature, "pyarrow", "text") from error
    return parquet
