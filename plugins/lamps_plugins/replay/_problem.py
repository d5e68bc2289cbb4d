"""The family ``replay``.

Recorded curves instead of training, for the development of policies and for fault tests.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from lamps.errors import ProblemError
from lamps.method import Family, Method, Problem
from lamps.tables import LandmarkTable, read_table
from lamps.types import Candidate, Json, Objective


@dataclasses.dataclass(slots=True)
class ReplayProblem(Problem):
    """A landmark table as a problem: each candidate of the table is one curve.

    Args:
        table: The curves.
        path: Where the table was read, ``FILE`` or ``FILE::TABLE``; empty for one made in memory.
    """

    family: ClassVar[str] = "replay"
    table: LandmarkTable
    path: str = ""
    name: str = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.name = self.table.name

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The objective columns of the table."""
        return self.table.objectives

    @property
    def fidelities(self) -> tuple[float, ...]:
        """The fidelities of the table."""
        return tuple(self.table.fidelities.tolist())

    @property
    def unit(self) -> str:
        """What the table says."""
        return self.table.unit

    def amount(self, fidelity: float) -> float:
        """The share itself."""
        return fidelity

    def reference(self) -> dict[str, Json]:
        """Path and hash of the table."""
        return {"path": self.path, "fingerprint": self.fingerprint()}

    def fingerprint(self) -> str:
        """Hash of the table."""
        return self.table.fingerprint()

    def card(self) -> dict[str, Json]:
        """Size and gaps of the table."""
        return {
            "candidates": len(self.table.candidates),
            "fidelities": list(self.fidelities),
            "failed_landmarks": int(
                (self.table.measured & ~np.isfinite(self.table.values).all(axis=2)).sum()
            ),
            "unmeasured_landmarks": int((~self.table.measured).sum()),
        }

    def size_hint(self, candidate: Candidate) -> float:
        """The ``size`` column."""
        return float(self.table.size[self.table.row(str(candidate.params["curve"]))])

    def landmark_table(self) -> LandmarkTable:
        """The table, for the replay backend."""
        return self.table


class ReplayFamily(Family):
    """Curves read from a CSV or Parquet file."""

    name = "replay"
    summary = "recorded landmark curves, replayed live or in simulated time"
    default_objectives = ()

    def open_problem(self, reference: str | None, options: Mapping[str, Any]) -> ReplayProblem:
        """Read the table at ``reference``: ``FILE``, or ``FILE::TABLE`` where it holds several."""
        path, separator, name = (reference or "").partition("::")
        if not path:
            raise ProblemError("family 'replay' needs a table: --problem replay:FILE.csv")
        table = read_table(path, problem=name or None)
        return ReplayProblem(table, f"{Path(path).absolute()}{separator}{name}")

    def reopen(self, reference: Mapping[str, Json]) -> ReplayProblem:
        """Read the table again; refused if it changed."""
        problem = self.open_problem(str(reference["path"]), {})
        if problem.fingerprint() != reference["fingerprint"]:
            raise ProblemError(
                f"{reference['path']} has changed since the run began: its hash was "
                f"{str(reference['fingerprint'])[:12]}, now it is {problem.fingerprint()[:12]}"
            )
        return problem

    def toy_problem(self, *, seed: int = 0) -> ReplayProblem:
        """Six falling curves with two objectives."""
        rng = np.random.default_rng(seed)
        n, fidelities = 6, np.array([0.0, 0.25, 0.5, 1.0])
        start, end = rng.uniform(0.5, 0.9, n), rng.uniform(0.05, 0.4, n)
        error = end[:, None] + (start - end)[:, None] * (1 - fidelities) ** 2
        size = np.repeat(rng.uniform(1, 10, n)[:, None], len(fidelities), axis=1)
        table = LandmarkTable(
            name="toy",
            candidates=tuple(f"c{i}" for i in range(n)),
            objectives=(Objective("error"), Objective("size", "MB")),
            fidelities=fidelities,
            values=np.stack([error, size], axis=2),
            cost_s=np.tile(np.array([0.1, 1.0, 1.0, 2.0]), (n, 1)),
            measured=np.ones((n, len(fidelities)), dtype=bool),
            size=size[:, 0],
        )
        return ReplayProblem(table)

    def candidates(
        self,
        problem: Problem,
        methods: Mapping[str, type[Method[Any, Any]]],
        models: Sequence[str],
        *,
        given: Mapping[str, Mapping[str, Any]],
        per_method: int,
        seed: int,
    ) -> list[Candidate]:
        """One candidate per curve of the table."""
        assert isinstance(problem, ReplayProblem)
        return [
            Candidate(self.name, name, {"curve": c} | dict(given.get(name, {})))
            for name in methods
            for c in problem.table.candidates
        ]


FAMILY = ReplayFamily()
