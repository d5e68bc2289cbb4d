"""A user's pictures with texts: a folder, and a table that describes the files in it.

CSV or JSONL with a column ``file``, one column of text a granularity, and optionally ``label``
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

from lamps.errors import ProblemError
from lamps_plugins.image_clustering._described import Described
from lamps_plugins.image_clustering._images import read_images

__all__ = ["listed"]

FILE, LABEL = "file", "label"


def listed(folder: Path, table: Path) -> Described:
    """The pictures that a table names, with their texts.

    Raises:
        ProblemError: Table, folder or a file cannot be used; one line names it.
    """
    if not folder.is_dir():
        raise ProblemError(f"there is no folder of pictures {folder}")
    rows = _rows(table)
    columns = [name for name in rows[0] if name not in (FILE, LABEL)]
    if FILE not in rows[0] or not columns:
        raise ProblemError(
            f"{table} has the columns {', '.join(rows[0])}; expected {FILE!r} and one column of "
            "text a granularity"
        )
    for number, row in enumerate(rows, start=1):
        if set(row) != set(rows[0]):
            raise ProblemError(
                f"{table}: row {number} has the columns {', '.join(row)}, the first one has "
                f"{', '.join(rows[0])}"
            )
    files = [folder / row[FILE] for row in rows]
    inside = folder.resolve()
    for row, file in zip(rows, files, strict=True):
        if not file.is_file() or inside not in file.resolve().parents:
            raise ProblemError(f"{table} names {row[FILE]!r}, which is no file below {folder}")
    classes: tuple[str, ...] = ()
    truth = None
    if LABEL in rows[0]:
        values, places = np.unique([row[LABEL] for row in rows], return_inverse=True)
        classes, truth = tuple(str(v) for v in values), places.astype(np.int64).ravel()
    return Described(
        images=read_images(files),
        texts={name: tuple(row[name] for row in rows) for name in columns},
        truth=truth,
        classes=classes,
        facts={"source": "the user's files"},
    )


def _rows(table: Path) -> list[dict[str, str]]:
    try:
        text = table.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ProblemError(f"{table} cannot be read as UTF-8 text: {error}") from error
    found: list[dict[str, str]] = []
    if table.suffix.lower() in (".jsonl", ".ndjson"):
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ProblemError(f"{table}: line {number} is no JSON: {error}") from error
            if not isinstance(row, dict):
                raise ProblemError(f"{table}: line {number} is no JSON object")
            found.append({str(k): str(v) for k, v in row.items()})
    elif table.suffix.lower() == ".csv":
        for row in csv.DictReader(text.splitlines()):
            found.append({str(k): str(v or "") for k, v in row.items()})
    else:
        raise ProblemError(f"{table} is neither .csv nor .jsonl; write the texts as one of these")
    if not found:
        raise ProblemError(f"{table} has no rows")
    return found
