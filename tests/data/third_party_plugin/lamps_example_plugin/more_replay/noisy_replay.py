"""Replays a recorded curve with noise on every landmark, fixed by the trial's stream.

For policies: recorded curves are smoother than what a search will see. The value of landmark j is

    v_j (1 + scale e_j),      e_j ~ N(0, 1) from the substream of j                             (1)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.random import Generator

from lamps import space as hp
from lamps.errors import ProblemError
from lamps.method import Method, MethodSpec, Problem, State, Tags, substream
from lamps.tables import LandmarkTable
from lamps.types import Evaluation, Split


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Which curve, and how noisy."""

    curve: str = hp.fixed("", doc="Candidate of the table whose values are replayed.")
    scale: float = hp.real(0.05, low=0.0, high=1.0, doc="Size of the noise, a share of the value.")


class NoisyReplay(Method[Problem, Params]):
    """A recorded curve, seen through noise."""

    spec = MethodSpec(
        family="replay",
        summary="replays a recorded curve with noise",
        tags=Tags(data_free=True),
    )

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self.values_ = np.zeros(0)

    def partial_fit(self, problem: Problem, fidelity: float, *, rng: Generator) -> Self:
        """Draw the noise of that landmark alone, so stops before it do not show."""
        if self.fidelity_ is not None and fidelity <= self.fidelity_:
            return self
        table = table_of(problem)
        level = problem.fidelities.index(fidelity)
        recorded = table.values[table.row(self.params.curve), level]
        noise = substream(rng, level).normal(size=len(recorded))
        self.values_ = recorded * (1.0 + self.params.scale * noise)
        self.fidelity_ = fidelity
        return self

    def evaluate(self, problem: Problem, split: Split = "val") -> Evaluation:
        """The noisy values."""
        values = {
            o.name: v for o, v in zip(problem.objectives, self.values_.tolist(), strict=True)
        }
        if split == "test":
            return Evaluation({f"test_{k}": v for k, v in values.items()})
        return Evaluation(values)

    def state_dict(self) -> State:
        """The values of the landmark reached."""
        return {"values": self.values_, "fidelity": self.fidelity_}

    def load_state_dict(self, state: State, problem: Problem) -> None:
        """The values again."""
        self.values_, self.fidelity_ = state["values"], state["fidelity"]

    def save(self, problem: Problem, directory: Path) -> None:
        """The values as text."""
        np.savetxt(directory / "values.txt", self.values_)


def table_of(problem: Problem) -> LandmarkTable:
    """The recorded curves of the problem."""
    table = problem.landmark_table()
    if table is None:
        raise ProblemError(f"problem {problem.name!r} has no recorded curves")
    return table
