"""Ridge regression on Legendre polynomials of x.

Paper: Hoerl and Kennard, Ridge Regression: Biased Estimation for Nonorthogonal Problems,
Technometrics 1970, equation (2.1).

    w = (P'P + alpha n I)^-1 P'y,      P_ij = L_j(x_i)                                          (1)

Ours, not the paper's: ``alpha`` is scaled by n, so its meaning does not depend on the fidelity.
Oracle: without noise and with alpha -> 0 a polynomial of the same degree is found exactly.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.random import Generator

from lamps import space as hp
from lamps.method import Method, MethodSpec, Paper, State, Tags
from lamps.types import Evaluation, Split

from ._problem import CurveProblem, Floats, Predictor

KIND = "legendre"


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """How many polynomials, and how much they are held back."""

    degree: int = hp.integer(5, low=0, high=15, doc="Highest degree of a polynomial; eq. (1).")
    alpha: float = hp.real(1e-4, low=1e-8, high=1.0, log=True, doc="Weight of |w|^2; eq. (1).")


class PolynomialRidge(Method[CurveProblem, Params]):
    """Solves (1) on the examples of a landmark."""

    spec = MethodSpec(
        family="example-curve-fitting",
        summary="ridge regression on Legendre polynomials",
        paper=Paper(
            title="Ridge Regression: Biased Estimation for Nonorthogonal Problems",
            venue="Technometrics 1970",
        ),
        tags=Tags(cheap=True),
    )

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self.weights_ = np.zeros(params.degree + 1)

    def partial_fit(self, problem: CurveProblem, fidelity: float, *, rng: Generator) -> Self:
        """Solve (1) for the first examples of the trial's order."""
        if self.fidelity_ is not None and fidelity <= self.fidelity_:
            return self
        order = rng.permutation(problem.n_points)[: int(problem.amount(fidelity))]
        if len(order):
            x, y = problem.split("train")
            self.weights_ = solve(x[order], y[order], self.params.degree, self.params.alpha)
        self.fidelity_ = fidelity
        return self

    def evaluate(self, problem: CurveProblem, split: Split = "val") -> Evaluation:
        """Error, and one number per weight."""
        return problem.measure(predictor(self._member()), len(self.weights_), split)

    def state_dict(self) -> State:
        """The weights."""
        return {"weights": self.weights_, "fidelity": self.fidelity_}

    def load_state_dict(self, state: State, problem: CurveProblem) -> None:
        """The weights again."""
        self.weights_, self.fidelity_ = state["weights"], state["fidelity"]

    def save(self, problem: CurveProblem, directory: Path) -> None:
        """The weights as JSON; numpy.polynomial.legendre.legval evaluates them."""
        text = json.dumps(self._member())
        (directory / "member.json").write_text(text, encoding="utf-8")

    def _member(self) -> dict[str, Any]:
        return {"kind": KIND, "weights": self.weights_.tolist()}


def predictor(member: dict[str, Any]) -> Predictor:
    """The function behind a saved member. Shape: [n] -> [n]."""
    weights = np.array(member["weights"])
    return lambda x: np.polynomial.legendre.legval(x, weights)


def solve(x: Floats, y: Floats, degree: int, alpha: float) -> Floats:
    """The weights of (1). Shape: x, y [n]; returns [degree + 1]."""
    design = np.polynomial.legendre.legvander(x, degree)
    gram = design.T @ design + alpha * len(x) * np.eye(degree + 1)
    weights: Floats = np.asarray(np.linalg.solve(gram, design.T @ y), dtype=np.float64)
    return weights
