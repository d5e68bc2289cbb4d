"""A landmark table as the arrays that replays, training and evaluation work on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lamps.pareto import Floats
from lamps.policy.base import Hindsight, Pool
from lamps.tables import LandmarkTable


@dataclass(frozen=True, slots=True)
class Recorded:
    """Curves of ``n`` candidates, everything minimised.

    Args:
        name: Of the table.
        family: Of the table; its name if it states none.
        objectives: [m] names.
        values: [n, K, m] float64; NaN where a landmark failed or was not measured.
        cost_s: [n, K] float64, 0 where not measured.
        measured: [n, K] bool.
        fidelities: [K] float64.
        size: [n] float64, NaN where unknown.
        labels: [n] candidates.
    """

    name: str
    family: str
    objectives: tuple[str, ...]
    values: Floats
    cost_s: Floats
    measured: NDArray[np.bool_]
    fidelities: Floats
    size: Floats
    labels: tuple[str, ...]

    @property
    def n(self) -> int:
        """Number of candidates."""
        return len(self.values)

    @property
    def whole(self) -> NDArray[np.bool_]:
        """[n] bool: the curve is there to its end, and finite."""
        finite = np.isfinite(self.values).all(axis=2) & self.measured
        return np.asarray(finite.all(axis=1), dtype=np.bool_)

    @property
    def last_level(self) -> NDArray[np.int64]:
        """[n] last landmark before the first that was never measured."""
        count: NDArray[np.int64] = self.measured.cumprod(axis=1).sum(axis=1) - 1
        return count

    def rows(self, index: NDArray[np.int64]) -> Recorded:
        """Some of the candidates."""
        return replace(
            self,
            values=self.values[index],
            cost_s=self.cost_s[index],
            measured=self.measured[index],
            size=self.size[index],
            labels=tuple(self.labels[i] for i in index),
        )

    def pool(self) -> Pool:
        """What a policy is shown, hindsight included."""
        return Pool(self.labels, None, Hindsight(self.values, self.cost_s))


def recorded(
    table: LandmarkTable, objectives: Sequence[str] | None = None, *, most_landmarks: int = 0
) -> Recorded:
    """The arrays of a table.

    Args:
        table: The table.
        objectives: Names of those that count; all if None.
        most_landmarks: Thin longer curves to this many landmarks, in geometric steps; 0 keeps all.

    Raises:
        ProblemError: The table has no such objective.
    """
    levels = len(table.fidelities)
    if 1 < most_landmarks < levels:
        kept = np.geomspace(1, levels, most_landmarks).round().astype(np.int64) - 1
        table = table.select(np.arange(len(table.candidates)), levels=np.unique(kept))
    table = table.without_gaps()
    columns = table.columns(objectives)
    return Recorded(
        name=table.name,
        family=table.family or table.name,
        objectives=tuple(table.objectives[c].name for c in columns),
        values=table.minimised(objectives),
        cost_s=np.nan_to_num(table.cost_s),
        measured=table.measured,
        fidelities=table.fidelities,
        size=table.size,
        labels=table.candidates,
    )
