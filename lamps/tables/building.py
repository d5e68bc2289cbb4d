"""From the rows of a long-form file to tables: one grid of candidates and fidelities each."""

from __future__ import annotations

import dataclasses
import warnings
from collections import Counter
from collections.abc import Collection, Iterator

import numpy as np

from lamps.errors import LampsWarning, ProblemError
from lamps.pareto import Floats
from lamps.tables.bad_rows import BadRow
from lamps.tables.columns import Columns
from lamps.tables.rows import Bools, Ints, Rows, whole_number
from lamps.tables.table import LandmarkTable
from lamps.types import Objective


def build_tables(
    columns: Columns, name: str, maximize: Collection[str] = ()
) -> tuple[list[LandmarkTable], list[BadRow]]:
    """The tables of one file, and what of it was left out.

    Args:
        columns: What the file holds.
        name: Of the table where there is no column ``problem``.
        maximize: Objectives that are maximised whatever their header says.

    Raises:
        ProblemError: The file as a whole is no landmark table.
    """
    return _Builder(columns, name, maximize).tables()


@dataclasses.dataclass(slots=True)
class _Curves:
    """Rows of one problem as a grid; row indices are -1 where there is none.

    Shape:
        at: [n, K] int64, index of the row that measured a landmark, or -1.
    """

    candidates: list[int]
    fidelities: Floats
    at: Ints


class _Builder(Rows):
    def tables(self) -> tuple[list[LandmarkTable], list[BadRow]]:
        measured = self._validate()
        tables: list[LandmarkTable] = []
        for name, rows in self._groups():
            table = self._table(name, rows, measured)
            if table is not None:
                tables.append(table)
        # What is wrong with a row explains what is then wrong with its candidate.
        return tables, [*sorted(self.bad), *sorted(self.incomplete)]

    def _groups(self) -> Iterator[tuple[str, Ints]]:
        """Rows per problem and seed, in the order in which these appear."""
        rows = np.flatnonzero(self.good)
        pair = self.problem.codes[rows] * len(self.seed.words) + self.seed.codes[rows]
        pairs, first, group = np.unique(pair, return_index=True, return_inverse=True)
        order = np.argsort(group, kind="stable")
        starts = np.searchsorted(group[order], np.arange(len(pairs) + 1))
        problems = (pairs // len(self.seed.words)).tolist()
        seeds = Counter(problems)
        for at in np.argsort(first).tolist():
            name = self.problem.words[problems[at]]
            if seeds[problems[at]] > 1:
                name = f"{name}#{self.seed.words[pairs[at] % len(self.seed.words)]}"
            yield name, rows[order[starts[at] : starts[at + 1]]]

    def _table(self, name: str, rows: Ints, measured: Bools) -> LandmarkTable | None:
        curves = self._curves(rows, measured)
        if curves is None:
            return None
        at = curves.at
        here = at >= 0
        objectives, values = self._values(name, rows, at)
        endless = int(np.isinf(values).any(axis=2).sum())
        if endless:
            warnings.warn(
                f"table {name!r}: {endless} landmarks have an infinite objective; they count as "
                "failed",
                LampsWarning,
                stacklevel=2,
            )
            values[np.isinf(values)] = np.nan
        first = int(rows[0])
        largest = float(curves.fidelities[-1])
        unit = self._first_word("unit", rows, "share")
        fidelities = curves.fidelities
        if largest > 1.0:
            fidelities = fidelities / largest
            unit = f"share of {largest:g}" + ("" if unit == "share" else f" {unit}")
        return LandmarkTable(
            name,
            tuple(self.candidate.words[c] for c in curves.candidates),
            objectives,
            fidelities,
            values,
            self._cost(at),
            here,
            self._size(rows, curves.candidates),
            family=self._first_word("family", rows, ""),
            unit=unit,
            seed=whole_number(self.seed.words[self.seed.codes[first]]) or 0,
            peak_bytes=self._peaks(at),
        )

    def _curves(self, rows: Ints, measured: Bools) -> _Curves | None:
        """The rows as a grid, without candidates that lack the first landmark."""
        fidelity = self.columns.numbers["fidelity"].values
        codes, first, back = np.unique(
            self.candidate.codes[rows], return_index=True, return_inverse=True
        )
        order = np.argsort(first)  # candidates as they appear
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        levels, level = np.unique(fidelity[rows], return_inverse=True)
        at = np.full((len(codes), len(levels)), -1, dtype=np.int64)
        kept = measured[rows]
        at[place[back[kept]], level[kept]] = rows[kept]
        self._refuse_decreasing(at)
        started = at[:, 0] >= 0
        for i in np.flatnonzero(~started).tolist():
            row = int(rows[first[order[i]]])
            word = self.candidate.words[self.candidate.codes[row]]
            line = int(self.columns.line[row])
            problem = self.problem.words[self.problem.codes[row]]
            reason = (
                f"candidate {word!r} has no landmark 0 (fidelity {levels[0]:g}), which every "
                "candidate needs; it is left out"
            )
            self.incomplete.append(BadRow(line, problem, word, reason))
        if not started.any():
            return None
        # Levels that only refused rows had are gone with them.
        used = np.zeros(len(levels), dtype=bool)
        used[level[started[place[back]] & self.good[rows]]] = True
        chosen = [int(codes[c]) for c in order[started]]
        return _Curves(chosen, levels[used], at[started][:, used])

    def _refuse_decreasing(self, at: Ints) -> None:
        elapsed = self._number("elapsed_s")
        if elapsed is None:
            return
        spent = np.where(at >= 0, elapsed.values[at], -np.inf)
        before = np.zeros_like(spent)
        before[:, 1:] = np.maximum.accumulate(spent, axis=1)[:, :-1]
        before = np.maximum(before, 0.0)
        for i, k in zip(*np.nonzero((at >= 0) & (spent < before)), strict=True):
            row = int(at[i, k])
            word = self.candidate.words[self.candidate.codes[row]]
            self._refuse(
                row,
                f"elapsed_s of candidate {word!r} decreases from {before[i, k]:g} to "
                f"{spent[i, k]:g}; expected seconds since its start",
            )
            at[i, k] = -1

    def _values(self, name: str, rows: Ints, at: Ints) -> tuple[tuple[Objective, ...], Floats]:
        headers = [h for h in self.objectives if not self.columns.numbers[h].empty[rows].all()]
        # Everything failed with no value at all: the objectives can only be those of the file.
        headers = headers or list(self.objectives)
        meta = self.columns.metadata.get("tables", {}).get(name, {}).get("objectives", [])
        described = {o["name"]: Objective(**o) for o in meta}
        found = {h: self.objectives[h] for h in headers}
        names = [o.name for o in found.values()]
        for twice in names:
            if names.count(twice) > 1:
                raise ProblemError(f"landmark table {name!r} has the objective {twice!r} twice")
        position = list(described)
        if set(position) == set(names):
            headers.sort(key=lambda h: position.index(found[h].name))
        objectives: list[Objective] = []
        for header in headers:
            plain = found[header]
            told = described.get(plain.name, plain)
            objectives.append(dataclasses.replace(told, direction=plain.direction))
        values = np.full((*at.shape, len(headers)), np.nan)
        here = at >= 0
        for column, header in enumerate(headers):
            values[here, column] = self.columns.numbers[header].values[at[here]]
        return tuple(objectives), values

    def _cost(self, at: Ints) -> Floats:
        """Seconds per landmark from seconds since the start."""
        here = at >= 0
        elapsed, own = self._number("elapsed_s"), self._number("cost_s")
        cost = np.full(at.shape, np.nan)
        if elapsed is None and own is not None:
            cost[here] = own.values[at[here]]
            return cost
        if elapsed is None:
            spent = np.tile(np.arange(at.shape[1], dtype=np.float64), (len(at), 1))
        else:
            spent = np.where(here, elapsed.values[at], 0.0)
        before = np.zeros_like(spent)
        running = np.maximum.accumulate(np.where(here, spent, 0.0), axis=1)
        before[:, 1:] = running[:, :-1]
        cost[here] = (spent - before)[here]
        if own is not None:
            # The exact seconds, where no row between was lost.
            given = np.where(here, own.values[at], np.nan)
            told = here & ~np.where(here, own.empty[at], True)
            near = np.abs(given - cost) <= 1e-9 * np.maximum(np.abs(spent), 1e-300)
            use = told & (near | np.isnan(given))
            cost[use] = given[use]
        return cost

    def _size(self, rows: Ints, candidates: list[int]) -> Floats:
        found = self._number("size")
        if found is None:
            return np.full(len(candidates), np.nan)
        # The largest that is given, so that the order of rows does not matter.
        by_code = np.full(len(self.candidate.words), np.nan)
        np.fmax.at(by_code, self.candidate.codes[rows], found.values[rows])
        size: Floats = by_code[np.array(candidates)]
        return size

    def _peaks(self, at: Ints) -> Floats | None:
        found = self._number("peak_bytes")
        if found is None:
            return None
        here = at >= 0
        peaks = np.full(at.shape, np.nan)
        peaks[here] = found.values[at[here]]
        return peaks if np.isfinite(peaks).any() else None

    def _first_word(self, column: str, rows: Ints, default: str) -> str:
        found = self._words(column, "")
        words = (found.words[code] for code in dict.fromkeys(found.codes[rows].tolist()))
        return next(filter(None, words), default)
