"""The mean of the k nearest examples: nothing to fit, everything to store.

The baseline of the family: it follows any curve, and pays for that in stored numbers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.random import Generator

from lamps import space as hp
from lamps.method import Method, MethodSpec, State, Tags
from lamps.types import Evaluation, Split

from ._problem import CurveProblem, Floats, Predictor

KIND = "neighbours"


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """How many neighbours."""

    k: int = hp.integer(3, low=1, high=9, doc="Neighbours that are averaged.")


class NearestNeighbours(Method[CurveProblem, Params]):
    """Stores the examples of a landmark."""

    spec = MethodSpec(
        family="example-curve-fitting",
        summary="mean of the nearest examples",
        tags=Tags(baseline=True, cheap=True),
    )

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self.stored_ = np.zeros((0, 2))

    def partial_fit(self, problem: CurveProblem, fidelity: float, *, rng: Generator) -> Self:
        """Store the first examples of the trial's order."""
        if self.fidelity_ is not None and fidelity <= self.fidelity_:
            return self
        order = rng.permutation(problem.n_points)[: int(problem.amount(fidelity))]
        x, y = problem.split("train")
        self.stored_ = np.stack([x[order], y[order]], axis=1)
        self.fidelity_ = fidelity
        return self

    def evaluate(self, problem: CurveProblem, split: Split = "val") -> Evaluation:
        """Error, and two numbers per stored example."""
        return problem.measure(predictor(self._member()), self.stored_.size, split)

    def state_dict(self) -> State:
        """The stored examples."""
        return {"stored": self.stored_, "fidelity": self.fidelity_}

    def load_state_dict(self, state: State, problem: CurveProblem) -> None:
        """The stored examples again."""
        self.stored_, self.fidelity_ = state["stored"], state["fidelity"]

    def save(self, problem: CurveProblem, directory: Path) -> None:
        """The stored examples as JSON."""
        text = json.dumps(self._member())
        (directory / "member.json").write_text(text, encoding="utf-8")

    def _member(self) -> dict[str, Any]:
        return {"kind": KIND, "stored": self.stored_.tolist(), "k": self.params.k}


def predictor(member: dict[str, Any]) -> Predictor:
    """The function behind a saved member. Shape: [n] -> [n]."""
    stored = np.array(member["stored"]).reshape(-1, 2)
    return lambda x: mean_of_nearest(x, stored, member["k"])


def mean_of_nearest(x: Floats, stored: Floats, k: int) -> Floats:
    """Mean y of the k stored examples nearest to each x; 0 with nothing stored.

    Shape:
        x: [n];  stored: [s, 2].  Returns [n].
    """
    if not len(stored):
        return np.zeros(len(x))
    near = np.argsort(np.abs(x[:, None] - stored[:, 0]), axis=1, kind="stable")[:, :k]
    mean: Floats = stored[near, 1].mean(axis=1)
    return mean
