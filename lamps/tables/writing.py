"""Write landmark tables as one compact Parquet file with a card beside it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lamps.errors import ProblemError
from lamps.tables.columns import METADATA_KEY, pyarrow_parquet
from lamps.tables.table import LandmarkTable

FORMAT = 1
_INT64 = range(-(2**63), 2**63)


def card_path(path: str | Path) -> Path:
    """Where the card of a table file lies: ``curves.parquet`` has ``curves.card.json``.

    Example:
        >>> card_path("curves.csv.gz").name
        'curves.card.json'
    """
    file = Path(path)
    return file.with_name(file.name.removesuffix(".gz")).with_suffix(".card.json")


def write_tables(
    path: str | Path, tables: Sequence[LandmarkTable], card: Mapping[str, Any] | None = None
) -> Path:
    """Write tables to one Parquet file in the long form, and a card with hashes beside it.

    `read_tables` gives the same tables back bit for bit (values that are not finite become NaN),
    in the same order. Nothing is half-written: the file appears complete or not at all.

    Args:
        path: The file, ``*.parquet``; replaced if it exists.
        tables: At least one, with different names.
        card: Further keys of the card, JSON values.

    Returns:
        Path of the card.

    Raises:
        ProblemError: Nothing to write, a name twice, or a table that could not be read back.
        MissingExtra: pyarrow is not installed.
    """
    file = Path(path)
    if file.suffix != ".parquet":
        raise ProblemError(f"{str(path)!r} is no name for landmark tables, expected *.parquet")
    if not tables:
        raise ProblemError(f"no table to write to {str(path)!r}")
    names = [t.name for t in tables]
    for table in tables:
        if names.count(table.name) > 1:
            raise ProblemError(f"two tables are named {table.name!r}; give each its own name")
        _check(table)
    parquet = pyarrow_parquet("writing Parquet")
    arrow = _arrow(tables)
    words = [f.name for f in arrow.schema if str(f.type).startswith("dictionary")]
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = card_path(file)
    drafts = {target: target.with_name(f".{target.name}.{os.getpid()}.tmp") for target in
              (file, beside)}  # fmt: skip
    try:
        parquet.write_table(
            arrow,
            drafts[file],
            compression="zstd",
            compression_level=15,
            use_dictionary=[*words, "fidelity", "size", "seed"],
            write_statistics=False,
        )
        about = {**(card or {}), **describe_tables(tables), "sha256": _sha256(drafts[file])}
        text = json.dumps(about, ensure_ascii=False, indent=1) + "\n"
        drafts[beside].write_text(text, encoding="utf-8")
        for draft in drafts.values():
            _sync(draft)
        # Without its old card first: a kill in between leaves tables without one, never tables
        # beside the card of others.
        beside.unlink(missing_ok=True)
        for target, draft in drafts.items():
            os.replace(draft, target)
        _sync(file.parent)
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)
    return beside


def describe_tables(tables: Sequence[LandmarkTable]) -> dict[str, Any]:
    """The part of a card that follows from the tables."""
    return {
        "format": FORMAT,
        "tables": [
            {
                "name": t.name,
                "family": t.family,
                "candidates": len(t.candidates),
                "landmarks": len(t.fidelities),
                "objectives": [
                    {"name": o.name, "direction": o.direction, "unit": o.unit}
                    for o in t.objectives
                ],
                "unit": t.unit,
                "seed": t.seed,
                "source": t.source,
                "licence": t.licence,
                "failed_landmarks": int(t.failed.sum()),
                "failed_candidates": int(t.failed.any(axis=1).sum()),
                "censored_candidates": int(t.censored.sum()),
                "fingerprint": t.fingerprint(),
            }
            for t in tables
        ],
    }


def _check(table: LandmarkTable) -> None:
    where = f"table {table.name!r}"
    shape = (len(table.candidates), len(table.fidelities), len(table.objectives))
    if table.values.shape != shape or 0 in shape:
        raise ProblemError(
            f"{where} has values of shape {list(table.values.shape)}, expected {list(shape)} with "
            "at least one candidate, fidelity and objective"
        )
    if not table.name or "" in table.candidates:
        raise ProblemError(f"{where} has an empty name or candidate; name each")
    if len(set(table.candidates)) < shape[0]:
        raise ProblemError(f"{where} has a candidate twice; make the labels unique")
    if (table.fidelities < 0).any() or table.fidelities[-1] > 1:
        raise ProblemError(f"{where} has fidelities beyond [0, 1]; divide by the largest")
    if (np.diff(table.fidelities) <= 0).any():
        raise ProblemError(f"{where} has fidelities that do not increase")
    late = np.flatnonzero(~table.measured[:, 0])
    if len(late):
        raise ProblemError(
            f"{where}: candidate {table.candidates[late[0]]!r} has no landmark 0; leave it out "
            "with select"
        )
    if (table.cost_s < 0).any() or np.isinf(table.cost_s).any():
        raise ProblemError(f"{where} has a negative or infinite cost_s, expected seconds")


def _arrow(tables: Sequence[LandmarkTable]) -> Any:
    import pyarrow

    headers = dict.fromkeys(_header(o) for t in tables for o in t.objectives)
    # pandas would do, but costs a second to import.
    parts = [_rows(t, list(headers)) for t in tables]
    seeds = [t.seed for t in tables]
    columns: dict[str, Any] = {}
    for name in parts[0]:
        cells = np.concatenate([p[name] for p in parts])
        if name in ("problem", "candidate", "family", "unit", "state"):
            columns[name] = pyarrow.array(cells.tolist(), pyarrow.string()).dictionary_encode()
        elif name == "seed":
            small = all(s in _INT64 for s in seeds)
            kind = pyarrow.int64() if small else pyarrow.string()
            values = cells.tolist() if small else [str(s) for s in cells.tolist()]
            columns[name] = pyarrow.array(values, kind)
        elif name in headers or name in ("elapsed_s", "cost_s"):
            # NaN is a value here, and where there is none the cell is empty.
            empty = np.concatenate([p.get(f"{name}?", p["empty?"]) for p in parts])
            columns[name] = pyarrow.array(cells.astype(np.float64), mask=empty, from_pandas=False)
        elif not name.endswith("?"):
            empty = np.isnan(cells.astype(np.float64))
            columns[name] = pyarrow.array(cells.astype(np.float64), mask=empty)
    if columns["peak_bytes"].null_count == len(columns["peak_bytes"]):
        del columns["peak_bytes"]
    about = {
        "tables": {
            t.name: {
                "source": t.source,
                "licence": t.licence,
                "objectives": [dataclasses.asdict(o) for o in t.objectives],
            }
            for t in tables
        }
    }
    return pyarrow.table(columns).replace_schema_metadata({METADATA_KEY: json.dumps(about)})


def _header(objective: Any) -> str:
    return f"{objective.name}:{objective.direction}:{objective.unit}"


def _rows(table: LandmarkTable, headers: Sequence[str]) -> dict[str, Any]:
    """Columns of one table; a mask of empty cells is called like its column with a ``?``."""
    shown = table.measured.copy()
    # A level that nobody reached is still a level: one empty row says so.
    shown[0] |= ~table.measured.any(axis=0)
    i, k = np.nonzero(shown)
    here = table.measured[i, k]
    values = np.where(np.isfinite(table.values), table.values, np.nan)[i, k]
    peaks = np.full(len(i), np.nan) if table.peak_bytes is None else table.peak_bytes[i, k]
    rows: dict[str, Any] = {
        "problem": np.full(len(i), table.name, dtype=object),
        "candidate": np.array(table.candidates, dtype=object)[i],
        "fidelity": table.fidelities[k],
        "elapsed_s": table.elapsed_s()[i, k],
        "cost_s": table.cost_s[i, k],
        "family": np.full(len(i), table.family, dtype=object),
        "seed": np.full(len(i), table.seed, dtype=object),
        "size": table.size[i],
        "unit": np.full(len(i), table.unit, dtype=object),
        "peak_bytes": peaks,
        "state": np.where(table.failed[i, k], "failed", "ok").astype(object),
        "empty?": ~here,
    }
    own = {_header(o): c for c, o in enumerate(table.objectives)}
    for header in headers:
        rows[header] = values[:, own[header]] if header in own else np.full(len(i), np.nan)
        rows[f"{header}?"] = ~here if header in own else np.ones(len(i), dtype=bool)
    return rows


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _sync(path: Path) -> None:
    """To the disk, file or folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
