"""Rows of a long-form file: each is usable, or refused with its line and the reason."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamps.errors import ProblemError
from lamps.pareto import Floats
from lamps.tables.bad_rows import BadRow
from lamps.tables.columns import NUMBERS, WORDS, Columns, Numbers, Words
from lamps.types import Objective

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


def objective_of(header: str) -> Objective:
    """The objective that a column's header describes: ``NAME[:DIRECTION[:UNIT]]``.

    Raises:
        ConfigError: The name is no identifier, or the direction is unknown.

    Example:
        >>> objective_of("accuracy:maximize:share").unit
        'share'
    """
    name, *rest = header.split(":", 2)
    direction: Any = rest[0] if rest else "minimize"
    return Objective(name, rest[1] if len(rest) > 1 else "1", direction)


def objective_headers(header: Sequence[str]) -> list[str]:
    """Headers of the objective columns."""
    return [h for h in header if h not in WORDS and h not in NUMBERS]


class Rows:
    """The rows of one file, of which bad ones are refused one by one.

    Args:
        columns: What the file holds.
        name: Of the table where there is no column ``problem``.
        maximize: Objectives that are maximised whatever their header says.
    """

    def __init__(self, columns: Columns, name: str, maximize: Collection[str]) -> None:
        self.columns, self.name, self.maximize = columns, name, maximize
        self.n = len(columns.line)
        self.good = np.ones(self.n, dtype=bool)
        self.bad: list[BadRow] = []
        self.incomplete: list[BadRow] = []
        self.objectives = {h: self._objective(h) for h in objective_headers(columns.header)}
        self._check_header()
        self.problem = self._words("problem", name)
        self.candidate = self._words("candidate", "")
        self.seed = self._words("seed", "0")

    def _objective(self, header: str) -> Objective:
        found = objective_of(header)
        if found.name in self.maximize:
            return Objective(found.name, found.unit, "maximize")
        return found

    def _check_header(self) -> None:
        header, where = self.columns.header, f"landmark table {self.name!r}"
        for column in ("candidate", "fidelity"):
            if column not in header:
                raise ProblemError(f"{where} has no column {column!r}, only {header}")
        for column in (*WORDS, *NUMBERS):
            if header.count(column) > 1:
                raise ProblemError(f"{where} has the column {column!r} twice")
        headers = objective_headers(header)
        if not headers:
            raise ProblemError(f"{where} has no objective column beside {header}")
        for column in headers:
            if headers.count(column) > 1:
                raise ProblemError(f"{where} has the objective {column.split(':')[0]!r} twice")
        if not self.n and not self.columns.bad:
            raise ProblemError(f"{where} has no rows")

    def _words(self, column: str, default: str) -> Words:
        """A text column in which an empty cell is the default."""
        found = self.columns.words.get(column)
        if found is None:
            return Words(np.zeros(self.n, dtype=np.int64), [default])
        index: dict[str, int] = {}
        if self.columns.metadata:  # ours, in which every word is meant as it stands
            new = [index.setdefault(w or default, len(index)) for w in found.words]
        else:  # words that differ in white space only are one word
            new = [index.setdefault(w.strip() or default, len(index)) for w in found.words]
        return Words(np.array(new, dtype=np.int64)[found.codes], list(index))

    def _number(self, column: str) -> Numbers | None:
        return self.columns.numbers.get(column)

    def _validate(self) -> Bools:
        """Refuse what cannot be used; which rows were measured. Shape: [r] bool."""
        for row, line, reason in self.columns.bad:
            if row >= 0:
                self._refuse(row, reason)
            else:
                self.bad.append(BadRow(line, self.name, "", reason))
        self._check_words()
        fidelity = self.columns.numbers["fidelity"].values
        self._refuse_where(
            ~(np.isfinite(fidelity) & (fidelity >= 0)),
            lambda r: f"fidelity {fidelity[r]} is not a number of 0 or more",
        )
        measured = self._measured()
        elapsed = self._number("elapsed_s") or self._number("cost_s")
        if elapsed is not None:
            self._refuse_where(
                measured & ~np.isfinite(elapsed.values),
                lambda r: (
                    f"elapsed_s is {'empty' if elapsed.empty[r] else elapsed.values[r]}, expected "
                    "the seconds of this candidate up to and including the landmark"
                ),
            )
        if (own := self._number("cost_s")) is not None:
            self._refuse_where(
                measured & (own.values < 0),
                lambda r: f"cost_s is {own.values[r]}, expected 0 or more seconds",
            )
        self._refuse_repeated(fidelity)
        return measured

    def _refuse(self, row: int, reason: str) -> None:
        if self.good[row]:
            self.good[row] = False
            self.bad.append(
                BadRow(
                    int(self.columns.line[row]),
                    self.problem.words[self.problem.codes[row]],
                    self.candidate.words[self.candidate.codes[row]],
                    reason,
                )
            )

    def _refuse_where(self, wrong: Bools, reason: Any) -> None:
        for row in np.flatnonzero(wrong & self.good).tolist():
            self._refuse(row, reason(row))

    def _check_words(self) -> None:
        empty = np.array([not word for word in self.candidate.words], dtype=bool)
        self._refuse_where(empty[self.candidate.codes], lambda r: "candidate is empty")
        odd = np.array([whole_number(word) is None for word in self.seed.words], dtype=bool)
        self._refuse_where(
            odd[self.seed.codes],
            lambda r: f"seed is {self.seed.words[self.seed.codes[r]]!r}, expected a whole number",
        )
        state = self._words("state", "ok")
        odd = np.array([word not in ("ok", "failed") for word in state.words], dtype=bool)
        self._refuse_where(
            odd[state.codes],
            lambda r: f"state is {state.words[state.codes[r]]!r}, expected 'ok' or 'failed'",
        )

    def _measured(self) -> Bools:
        """Rows with a value, or that failed; failed ones lose their values."""
        numbers = [self.columns.numbers[h] for h in self.objectives]
        measured: Bools = np.zeros(self.n, dtype=bool)
        finite: Bools = np.ones(self.n, dtype=bool)
        for column in numbers:
            measured |= ~column.empty
            finite &= column.empty | np.isfinite(column.values)
        state = self._words("state", "ok")
        failed = np.array([word == "failed" for word in state.words], dtype=bool)[state.codes]
        for column in numbers:
            column.values[failed & finite] = np.nan
        measured |= failed
        return measured

    def _refuse_repeated(self, fidelity: Floats) -> None:
        rows = np.flatnonzero(self.good)
        keys = (fidelity[rows], *(c.codes[rows] for c in (self.candidate, self.seed)))
        keys = (*keys, self.problem.codes[rows])
        order = rows[np.lexsort((rows, *keys))]
        same = np.ones(max(len(order) - 1, 0), dtype=bool)
        for values in (fidelity, self.candidate.codes, self.seed.codes, self.problem.codes):
            same &= values[order[1:]] == values[order[:-1]]
        first = np.arange(len(order))
        first[1:][same] = 0
        first = order[np.maximum.accumulate(first)] if len(order) else order
        for row, earlier in zip(order[1:][same].tolist(), first[1:][same].tolist(), strict=True):
            candidate = self.candidate.words[self.candidate.codes[row]]
            self._refuse(
                row,
                f"candidate {candidate!r} at fidelity {fidelity[row]} was given in line "
                f"{self.columns.line[earlier]} already",
            )


def whole_number(word: str) -> int | None:
    """An integer, also one that a tool wrote as 3.0."""
    try:
        return int(word)
    except ValueError:
        try:
            number = float(word)
        except ValueError:
            return None
        return int(number) if number.is_integer() else None
