"""What holding weights back does to a polynomial that has more of them than points."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lamps.method import Method
from lamps.replication import Ask, Claim, Measurement, Profile, Replication
from lamps.types import digest

from .._problem import SHAPES, CurveProblem
from ..polynomial_ridge import Params, PolynomialRidge

POINTS = 16
NOISE = 0.5
RIDGE = Params(degree=15, alpha=1e-2)
PLAIN = Params(degree=15, alpha=1e-8)


class PolynomialRidgeReplication(Replication):
    """Hoerl and Kennard: with ill-conditioned designs, biased estimates predict better."""

    claims = (
        Claim(
            id="C1",
            statement="Ridge regression predicts better than least squares where points are few.",
            quantity="test error, alpha 1e-2 / alpha 1e-8",
            compare="geometric",
            direction="<",
            threshold=1.0,
        ),
        Claim(
            id="C2",
            statement="Least squares predicts better than itself.",
            quantity="test error, alpha 1e-8 / alpha 1e-8",
            compare="geometric",
            direction="<",
            threshold=1.0,
            source="ours",
            control=True,
        ),
    )

    def seeds(self, profile: Profile) -> tuple[int, ...]:
        """They cost next to nothing."""
        return tuple(range(5 if profile == "quick" else 20))

    def fingerprint(self, profile: Profile) -> str:
        """Points are made from these numbers."""
        return digest([POINTS, NOISE, sorted(SHAPES)])

    def measure(self, ask: Ask) -> Iterator[Measurement]:
        """One pair per curve."""
        for name in SHAPES:
            if not ask.wants("C1", "C2", unit=name):
                continue
            problem = CurveProblem(name, POINTS, NOISE, ask.seed)
            ridge = _error(PolynomialRidge(RIDGE), problem, ask.seed)
            plain = _error(PolynomialRidge(PLAIN), problem, ask.seed)
            yield ask.measured("C1", name, ridge, plain)
            yield ask.measured("C2", name, plain, plain)


def _error(method: Method, problem: CurveProblem, seed: int) -> float:
    method.fit(problem, rng=np.random.default_rng(seed))
    return method.evaluate(problem, "test").objectives["test_error"]
