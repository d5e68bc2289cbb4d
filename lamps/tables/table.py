"""A landmark table in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lamps import pareto
from lamps.errors import ProblemError, did_you_mean
from lamps.pareto import Floats
from lamps.types import Objective


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
            measured. A landmark after unmeasured ones includes what they took.
        measured: [n, K] bool, whether the landmark was run at all.
        size: [n] float64; NaN where unknown.
        family: Problems that share inputs, outputs and objectives; empty if unknown.
        source: Where the numbers come from, and what of them is modelled.
        licence: Under which they may be passed on.
        unit: What a fidelity counts.
        seed: Of the runs behind it.
        peak_bytes: [n, K] float64, largest memory per landmark; NaN where unknown, None where
            nothing is known.
    """

    name: str
    candidates: tuple[str, ...]
    objectives: tuple[Objective, ...]
    fidelities: Floats
    values: Floats
    cost_s: Floats
    measured: NDArray[np.bool_]
    size: Floats
    family: str = ""
    source: str = ""
    licence: str = ""
    unit: str = "share"
    seed: int = 0
    peak_bytes: Floats | None = None

    @property
    def failed(self) -> NDArray[np.bool_]:
        """Landmarks that were run and gave no finite value in some objective. Shape: [n, K]."""
        return np.asarray(self.measured & ~np.isfinite(self.values).all(axis=2), dtype=np.bool_)

    @property
    def censored(self) -> NDArray[np.bool_]:
        """Candidates whose curve ends before the last fidelity although nothing failed: [n]."""
        return np.asarray(~self.measured[:, -1] & ~self.failed.any(axis=1), dtype=np.bool_)

    def elapsed_s(self) -> Floats:
        """Seconds since a candidate's start; NaN where not measured. Shape: [n, K]."""
        total: Floats = np.where(
            self.measured, np.cumsum(np.nan_to_num(self.cost_s), axis=1), np.nan
        )
        return total

    def minimised(self, objectives: Sequence[str] | None = None) -> Floats:
        """Values with maximised objectives flipped, so that less is better everywhere.

        Args:
            objectives: Names; all of the table if None.

        Shape:
            Returns [n, K, m] float64; NaN as in ``values``.

        Raises:
            ProblemError: The table has no objective of that name.
        """
        columns = self.columns(objectives)
        chosen = self.values[:, :, columns]
        flipped = pareto.to_minimization(
            chosen.reshape(-1, len(columns)), [self.objectives[c].direction for c in columns]
        )
        result: Floats = flipped.reshape(chosen.shape)
        return result

    def columns(self, objectives: Sequence[str] | None = None) -> list[int]:
        """Indices of objectives by name, all if None.

        Raises:
            ProblemError: None is named, or one that the table does not have.
        """
        known = [o.name for o in self.objectives]
        for name in objectives or ():
            if name not in known:
                raise ProblemError(
                    f"table {self.name!r} has no objective {name!r}. {did_you_mean(name, known)}"
                )
        if objectives is not None and not objectives:
            raise ProblemError(f"no objective of table {self.name!r} was named, expected one")
        return [known.index(name) for name in objectives or known]

    def select(
        self,
        rows: ArrayLike,
        objectives: Sequence[str] | None = None,
        levels: ArrayLike | None = None,
    ) -> LandmarkTable:
        """A part of the table.

        The cost of dropped levels is added to the next kept one, so that a kept landmark costs
        what it would take to get there. A candidate that failed at a dropped level fails at the
        next kept one.

        Args:
            rows: Indices of candidates in the wanted order, or [n] bool.
            objectives: Names in the wanted order; all if None.
            levels: Increasing indices of fidelities, or [K] bool; all if None.

        Raises:
            ProblemError: An unknown objective, or levels that do not increase.
        """
        chosen = _indices(rows, len(self.candidates))
        columns = self.columns(objectives)
        part = replace(
            self,
            candidates=tuple(self.candidates[i] for i in chosen),
            objectives=tuple(self.objectives[c] for c in columns),
            values=self.values[chosen][:, :, columns],
            cost_s=self.cost_s[chosen],
            measured=self.measured[chosen],
            size=self.size[chosen],
            peak_bytes=None if self.peak_bytes is None else self.peak_bytes[chosen],
        )
        if levels is None:
            return part
        kept = _indices(levels, len(self.fidelities))
        if not len(kept) or (np.diff(kept) <= 0).any():
            raise ProblemError(
                f"levels {kept.tolist()} of table {self.name!r}, expected increasing indices"
            )
        return part if len(kept) == len(self.fidelities) else _thinned(part, kept)

    def without_gaps(self) -> LandmarkTable:
        """The same with landmarks that were skipped filled in.

        Candidates with grids of their own lack landmarks of the others. A landmark between two
        measured ones repeats the value before it and costs nothing; the next measured one already
        includes what it took. What comes after a candidate's last landmark stays unmeasured.
        """
        later = np.flip(np.logical_or.accumulate(np.flip(self.measured, 1), axis=1), 1)
        before = np.logical_or.accumulate(self.measured, axis=1)
        gap = ~self.measured & later & before
        if not gap.any():
            return self
        levels = np.arange(self.measured.shape[1])
        source = np.maximum.accumulate(np.where(self.measured, levels, -1), axis=1)
        source = np.maximum(source, 0)
        rows = np.arange(len(source))[:, None]
        return replace(
            self,
            values=np.where(gap[..., None], self.values[rows, source], self.values),
            cost_s=np.where(gap, 0.0, self.cost_s),
            measured=self.measured | gap,
        )

    def fingerprint(self) -> str:
        """SHA-256 of everything measured in the table; not of its name and provenance."""
        h = hashlib.sha256(repr((self.candidates, self.objectives)).encode())
        h.update(_bytes(self.fidelities) + _bytes(self.values) + _bytes(self.cost_s))
        h.update(np.ascontiguousarray(self.measured).tobytes() + _bytes(self.size))
        # Only where they say something, so that older hashes stay true.
        if (self.unit, self.seed) != ("share", 0):
            h.update(repr((self.unit, self.seed)).encode())
        if self.peak_bytes is not None:
            h.update(_bytes(self.peak_bytes))
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


def _bytes(array: Floats) -> bytes:
    """The bytes of an array in which every NaN is the same NaN."""
    return np.where(np.isnan(array), np.nan, array).tobytes()


def _indices(chosen: ArrayLike, length: int) -> NDArray[np.int64]:
    array: NDArray[Any] = np.asarray(chosen)
    if array.dtype == bool:
        array = np.flatnonzero(array)
    return np.arange(length)[array.astype(np.int64)]


def _thinned(table: LandmarkTable, kept: NDArray[np.int64]) -> LandmarkTable:
    spent = np.cumsum(np.nan_to_num(table.cost_s), axis=1)[:, kept]
    failed, measured = table.failed, table.measured[:, kept].copy()
    peaks = None if table.peak_bytes is None else np.empty(measured.shape)
    start = 0
    for column, level in enumerate(kept.tolist()):
        dropped = slice(start, level)
        # What failed on the way has failed here, unless it was seen to go on.
        measured[:, column] |= failed[:, dropped].any(axis=1)
        if peaks is not None and table.peak_bytes is not None:
            peaks[:, column] = np.fmax.reduce(table.peak_bytes[:, start : level + 1], axis=1)
        start = level + 1
    cost = np.full(measured.shape, np.nan)
    before = np.zeros(len(cost))
    for column in range(len(kept)):
        here = measured[:, column]
        cost[here, column] = (spent[:, column] - before)[here]
        before = np.where(here, spent[:, column], before)
    return replace(
        table,
        fidelities=table.fidelities[kept],
        values=table.values[:, kept],
        cost_s=cost,
        measured=measured,
        peak_bytes=peaks,
    )
