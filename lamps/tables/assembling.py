"""Tables from columns in memory, with the checks of a file; what importers build on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from lamps.errors import ProblemError
from lamps.tables.bad_rows import BadRow
from lamps.tables.building import build_tables
from lamps.tables.columns import WORDS, Columns, Numbers, Words, parse_numbers
from lamps.tables.table import LandmarkTable


def tables_from_columns(
    columns: Mapping[str, Any],
    *,
    name: str,
    lines: Sequence[int] | None = None,
    maximize: Collection[str] = (),
) -> tuple[list[LandmarkTable], list[BadRow]]:
    """Tables from long-form columns, as if they had been read from a file.

    Args:
        columns: Sequences of cells by header; None and empty text are empty cells. All of one
            length.
        name: Of the table where there is no column ``problem``.
        lines: Line of each row in the file it comes from; 1, 2, ... if None.
        maximize: Objectives that are maximised whatever their header says.

    Raises:
        ProblemError: The columns as a whole are no landmark table.

    Example:
        >>> tables, bad = tables_from_columns(
        ...     {"candidate": "aabb", "fidelity": [0, 5, 0, 5], "loss": [9, 1, 8, "x"]}, name="t"
        ... )
        >>> tables[0].values[:, :, 0].tolist(), bad[0].reason
        ([[9.0, 1.0], [8.0, nan]], "loss is 'x', expected a number, nan, or nothing")
    """
    lengths = {len(cells) for cells in columns.values()}
    if len(lengths) > 1:
        raise ProblemError(
            f"columns of table {name!r} have lengths {sorted(lengths)}, expected one"
        )
    n = lengths.pop() if lengths else 0
    line = np.arange(1, n + 1) if lines is None else np.asarray(lines, dtype=np.int64)
    built = Columns(list(columns), line, {}, {})
    for header, cells in columns.items():
        if header in WORDS:
            index: dict[str, int] = {}
            texts = ("" if c is None else str(c) for c in cells)
            codes = np.fromiter((index.setdefault(t, len(index)) for t in texts), np.int64, n)
            built.words[header] = Words(codes, list(index))
        elif isinstance(cells, np.ndarray) and cells.dtype.kind in "fiu":
            built.numbers[header] = Numbers(cells.astype(np.float64), np.zeros(n, dtype=bool))
        else:
            built.numbers[header] = parse_numbers(cells, header, 0, line, built.bad)
    return build_tables(built, name, maximize)
