"""Landmark tables: what many candidates were worth at many fidelities, and what it cost to know.

Long form, one row per candidate and fidelity. Columns: ``candidate``, ``fidelity`` (share in [0,
1]), ``elapsed_s`` (seconds since the candidate's start, so it never decreases), optionally
``size`` (anything that orders candidates before a run), ``seed``, and one column per objective,
whose header may carry direction and unit: ``accuracy:maximize:1``.

A cell that is empty was never measured (a *censored* curve); ``nan`` is a landmark that was run
and failed.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamps.errors import MissingExtra, ProblemError
from lamps.pareto import Floats
from lamps.types import Objective

_RESERVED = ("candidate", "fidelity", "elapsed_s", "size", "seed")


@dataclass(frozen=True, slots=True)
class LandmarkTable:
    """Curves of ``n`` candidates at ``K`` fidelities in ``m`` objectives.

    Args:
        name: What it is called in figures.
        candidates: [n] labels.
        objectives: [m] with their directions; values are stored as they came, not flipped.
        fidelities: [K] increasing shares.
        values: [n, K, m] float64; NaN where a landmark failed or was never measured.
        cost_s: [n, K] float64, seconds of each landmark on its own; NaN where it was never
            measured.
        measured: [n, K] bool, whether the landmark was run at all.
        size: [n] float64; NaN where unknown.
    """

    name: str
    candidates: tuple[str, ...]
    objectives: tuple[Objective, ...]
    fidelities: Floats
    values: Floats
    cost_s: Floats
    measured: NDArray[np.bool_]
    size: Floats

    def fingerprint(self) -> str:
        """SHA-256 of everything in the table."""
        h = hashlib.sha256(repr((self.candidates, self.objectives)).encode())
        for array in (self.fidelities, self.values, self.cost_s, self.measured, self.size):
            h.update(np.ascontiguousarray(array).tobytes())
        return h.hexdigest()

    def row(self, candidate: str) -> int:
        """Index of a candidate.

        Raises:
            ProblemError: It is not in the table.
        """
        try:
            return self.candidates.index(candidate)
        except ValueError:
            raise ProblemError(
                f"table {self.name!r} has no candidate {candidate!r}, only "
                f"{len(self.candidates)} others"
            ) from None


def read_table(path: str | Path) -> LandmarkTable:
    """Read a landmark table from CSV (also gzipped) or Parquet.

    Raises:
        ProblemError: A column is missing, a row is malformed or repeated, or cost decreases; with
            the line number.
    """
    file = Path(path)
    if not file.is_file():
        raise ProblemError(f"no landmark table at {str(path)!r}")
    if file.suffix == ".parquet":
        return _from_rows(file.stem, *_parquet_rows(file))
    opener: Any = gzip.open if file.suffix == ".gz" else open
    try:
        with opener(file, "rt", encoding="utf-8-sig", newline="") as handle:
            reader = csv.reader(handle)
            header = next(reader, [])
            lines = [(reader.line_num, cells) for cells in reader if cells]
    except (UnicodeDecodeError, EOFError, OSError, csv.Error) as error:
        raise ProblemError(f"{file} cannot be read as CSV: {error}") from error
    name = file.name.split(".")[0]
    for line, cells in lines:
        if len(cells) != len(header):
            raise ProblemError(
                f"table {name!r} line {line}: {len(cells)} cells, the header has {len(header)}"
            )
    return _from_rows(name, header, [(n, dict(zip(header, c, strict=True))) for n, c in lines])


def _parquet_rows(file: Path) -> tuple[list[str], list[tuple[int, dict[str, Any]]]]:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise MissingExtra("reading Parquet", "pyarrow", "text") from error
    try:
        table = parquet.read_table(file)
    except (ValueError, OSError) as error:  # pyarrow's ArrowInvalid is a ValueError
        line = " ".join(str(error).split())
        raise ProblemError(f"{file} cannot be read as Parquet: {line}") from error
    return table.column_names, list(enumerate(table.to_pylist(), start=1))


def _from_rows(
    name: str, header: Sequence[str], rows: Iterable[tuple[int, Mapping[str, Any]]]
) -> LandmarkTable:
    for column in ("candidate", "fidelity"):
        if column not in header:
            raise ProblemError(
                f"landmark table {name!r} has no column {column!r}, only {list(header)}"
            )
    columns = [h for h in header if h not in _RESERVED]
    if not columns:
        raise ProblemError(
            f"landmark table {name!r} has no objective column beside {list(header)}"
        )
    objectives = tuple(_objective(h) for h in columns)
    names = [o.name for o in objectives]
    if twice := [n for n in names if names.count(n) > 1]:
        raise ProblemError(f"landmark table {name!r} has the objective {twice[0]!r} twice")
    cells: dict[tuple[str, float], tuple[int, Mapping[str, Any]]] = {}
    for line, row in rows:
        if row["candidate"] in (None, ""):
            raise ProblemError(f"table {name!r} line {line}: candidate is empty")
        key = (str(row["candidate"]), _number(name, line, "fidelity", row["fidelity"]))
        if not 0.0 <= key[1] <= 1.0:
            raise ProblemError(f"table {name!r} line {line}: fidelity {key[1]} is not in [0, 1]")
        if key in cells:
            raise ProblemError(
                f"table {name!r} line {line}: candidate {key[0]!r} at fidelity {key[1]} was "
                f"given in line {cells[key][0]} already"
            )
        cells[key] = (line, row)
    if not cells:
        raise ProblemError(f"landmark table {name!r} has no rows")
    candidates = tuple(dict.fromkeys(c for c, _ in cells))
    fidelities = np.array(sorted({f for _, f in cells}))
    n, k, m = len(candidates), len(fidelities), len(objectives)
    values, elapsed = np.full((n, k, m), np.nan), np.full((n, k), np.nan)
    measured, size = np.zeros((n, k), dtype=bool), np.full(n, np.nan)
    at = {c: i for i, c in enumerate(candidates)}
    level = {f: i for i, f in enumerate(fidelities.tolist())}
    for (candidate, fidelity), (line, row) in cells.items():
        i, j = at[candidate], level[fidelity]
        texts = [row.get(h) for h in columns]
        measured[i, j] = any(t not in (None, "") for t in texts)
        values[i, j] = [_number(name, line, h, t) for h, t in zip(columns, texts, strict=True)]
        seconds = _number(name, line, "elapsed_s", row.get("elapsed_s", j))
        elapsed[i, j] = seconds if measured[i, j] else np.nan
        if row.get("size") not in (None, ""):
            size[i] = _number(name, line, "size", row["size"])
    return LandmarkTable(
        name,
        candidates,
        objectives,
        fidelities,
        values,
        _steps(name, candidates, elapsed),
        measured,
        size,
    )


def _steps(name: str, candidates: Sequence[str], elapsed: Floats) -> Floats:
    """Seconds per landmark from seconds since the start.

    Unmeasured landmarks cost nothing of their own.
    """
    cost = np.full_like(elapsed, np.nan)
    for i, row in enumerate(elapsed):
        known = np.flatnonzero(np.isfinite(row))
        steps = np.diff(row[known], prepend=0.0)
        if (steps < 0).any():
            raise ProblemError(
                f"table {name!r}: elapsed_s of candidate {candidates[i]!r} decreases"
            )
        cost[i, known] = steps
    return cost


def _objective(header: str) -> Objective:
    name, *rest = header.split(":")
    direction: Any = rest[0] if rest else "minimize"
    return Objective(name, rest[1] if len(rest) > 1 else "1", direction)


def _number(name: str, line: int, column: str, value: Any) -> float:
    if value is None or value == "":
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ProblemError(
            f"table {name!r} line {line}: {column} is {value!r}, expected a number, nan, "
            "or nothing"
        ) from None
