"""Rows that cannot be used, named by line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class BadRow:
    """A row, or a whole candidate, that was left out and why.

    Args:
        line: Line in the file, from 1; of a Parquet file the row, from 1.
        problem: Its problem.
        candidate: Its candidate.
        reason: What came and what was expected.
        file: Name of the file.
    """

    line: int
    problem: str
    candidate: str
    reason: str
    file: str = ""

    def __str__(self) -> str:
        return f"table {self.problem!r} line {self.line}: {self.reason}"
