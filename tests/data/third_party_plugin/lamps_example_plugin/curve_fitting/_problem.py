"""Fit a curve to noisy points: the smallest family that has everything a family can have.

    y_i = f(x_i) + noise * e_i,      x_i ~ U(-1, 1),  e_i ~ N(0, 1)                             (1)

Fidelity counts examples: a landmark learns from the first ``amount(fidelity)`` points of an order
that the trial draws once, so landmarks are nested. Objectives: the mean squared error in units of
the variance of y (1 is as good as the mean), and the number of stored numbers.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lamps import stats
from lamps.errors import ProblemError, did_you_mean
from lamps.method import Family, Problem
from lamps.types import Candidate, Evaluation, Json, Objective, Split

from ._options import OPTIONS

Floats = NDArray[np.float64]
Predictor = Callable[[Floats], Floats]

VAL_ERROR = Objective("val_error", "1", doc="Mean squared error over the variance of y.")
N_PARAMS = Objective("n_params", "numbers", doc="Numbers that must be stored to predict.")

SHAPES: dict[str, Predictor] = {
    "sine": lambda x: np.sin(4.0 * x),
    "step": lambda x: np.sign(x),
    "line": lambda x: 0.5 + 2.0 * x,
}


@dataclasses.dataclass(slots=True)
class CurveProblem(Problem):
    """Noisy points of one curve in three splits.

    Args:
        name: One of `SHAPES`.
        n_points: Points to learn from; half as many again for each of val and test.
        noise: Standard deviation of y around the curve.
        seed: Seed of the points.
        points: [n, 2] float64 per split: x and y.
        test_opened: How often the test split was handed out.
    """

    family: ClassVar[str] = "example-curve-fitting"
    name: str
    n_points: int = 128
    noise: float = 0.1
    seed: int = 0
    points: dict[str, Floats] = dataclasses.field(init=False, repr=False)
    test_opened: int = dataclasses.field(default=0, init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng([self.seed, self.n_points])
        self.points = {}
        for split, n in (
            ("train", self.n_points),
            ("val", self.n_points // 2),
            ("test", self.n_points // 2),
        ):
            x = rng.uniform(-1.0, 1.0, n)
            y = SHAPES[self.name](x) + self.noise * rng.normal(size=n)
            self.points[split] = np.stack([x, y], axis=1)

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """Error and size."""
        return (VAL_ERROR, N_PARAMS)

    @property
    def fidelities(self) -> tuple[float, ...]:
        """Doubling from an eighth."""
        return (0.0, 0.125, 0.25, 0.5, 1.0)

    @property
    def unit(self) -> str:
        """Points to learn from."""
        return "examples"

    def amount(self, fidelity: float) -> float:
        """Whole examples."""
        return float(round(fidelity * self.n_points))

    def reference(self) -> dict[str, Json]:
        """The four numbers that make the points."""
        return {
            "name": self.name,
            "n_points": self.n_points,
            "noise": self.noise,
            "seed": self.seed,
            "fingerprint": self.fingerprint(),
        }

    def fingerprint(self) -> str:
        """Hash of all points."""
        h = hashlib.sha256(self.name.encode())
        for split in ("train", "val", "test"):
            h.update(np.ascontiguousarray(self.points[split]).tobytes())
        return h.hexdigest()

    def card(self) -> dict[str, Json]:
        """Sizes and provenance."""
        sizes: dict[str, Json] = {k: len(v) for k, v in self.points.items()}
        return {
            "points": sizes,
            "noise": self.noise,
            "source": "made up",
            "floor": dict(self.floor()),
        }

    def floor(self, split: Split = "val") -> dict[str, float]:
        """The mean of y."""
        return {f"{split}_error": 1.0}

    def size_hint(self, candidate: Candidate) -> float:
        """Stored numbers: known from the params alone."""
        if "degree" in candidate.params:
            return float(str(candidate.params["degree"])) + 1.0
        return 2.0 * self.n_points

    def split(self, split: Split) -> tuple[Floats, Floats]:
        """The x and y of a split; opening test is counted."""
        if split == "test":
            self.test_opened += 1
        x, y = self.points[split].T
        return x, y

    def measure(self, predict: Predictor, n_params: int, split: Split) -> Evaluation:
        """The family's common code behind every ``evaluate``."""
        x, y = self.split(split)
        squares = (predict(x) - y) ** 2 / np.var(y)
        error = float(np.mean(squares))
        if split == "test":
            low, high = stats.bootstrap_interval(squares, n_resamples=500)
            return Evaluation(
                {"test_error": error}, {"test_error_low": low, "test_error_high": high}
            )
        return Evaluation({"val_error": error, "n_params": float(n_params)}, {"n_points": len(y)})


class CurveFitting(Family):
    """Curves with a name, and curves to try things on."""

    name = "example-curve-fitting"
    summary = "fit a curve to noisy points"
    default_objectives = ("val_error", "n_params")
    options = OPTIONS

    def open_problem(self, reference: str | None, options: Mapping[str, Any]) -> CurveProblem:
        """One of `SHAPES`, with as many points and as much noise as asked."""
        if reference is None:
            raise ProblemError(
                f"family {self.name!r} needs a curve: --problem {self.name}:NAME. "
                f"Known: {', '.join(sorted(SHAPES))}."
            )
        if reference not in SHAPES:
            raise ProblemError(f"no curve {reference!r}. {did_you_mean(reference, SHAPES)}")
        n_points = int(options.get("n_points") or 128)
        noise = float(0.1 if options.get("noise") is None else options["noise"])
        if n_points < 16:
            raise ProblemError(f"n_points is {n_points}, expected 16 or more")
        if not (math.isfinite(noise) and noise >= 0):
            raise ProblemError(f"noise is {noise}, expected 0 or more")
        return CurveProblem(reference, n_points, noise)

    def reopen(self, reference: Mapping[str, Json]) -> CurveProblem:
        """The same points again."""
        values = {k: v for k, v in reference.items() if k != "fingerprint"}
        problem = CurveProblem(**values)  # type: ignore[arg-type]
        if problem.fingerprint() != reference["fingerprint"]:
            raise ProblemError(
                f"curve {problem.name!r} has other points than when the run began. "
                "Start a new run, or install the numpy of then."
            )
        return problem

    def toy_problem(self, *, seed: int = 0) -> CurveProblem:
        """A sine with 64 points."""
        return CurveProblem("sine", 64, 0.1, seed)

    def bad_inputs(self) -> Iterator[tuple[str, Callable[[], Any], str]]:
        """What must be refused: a name, a call, a word of the message."""
        yield "unknown_curve", lambda: self.open_problem("sin", {}), "Did you mean 'sine'"
        yield "no_curve", lambda: self.open_problem(None, {}), "--problem"
        yield "few_points", lambda: self.open_problem("sine", {"n_points": 3}), "n_points is 3"
        yield "bad_noise", lambda: self.open_problem("sine", {"noise": math.nan}), "noise is nan"

    def predict(
        self, directory: Path, rows: Path | None, options: Mapping[str, Any]
    ) -> Iterable[Mapping[str, Json]]:
        """A y for each ``x`` of a CSV file."""
        from . import nearest_neighbours, polynomial_ridge

        member = json.loads((directory / "member.json").read_text(encoding="utf-8"))
        makers = {m.KIND: m.predictor for m in (nearest_neighbours, polynomial_ridge)}
        predict = makers[member["kind"]](member)
        if rows is None:
            raise ProblemError("give a CSV file with a column x")
        with rows.open(encoding="utf-8", newline="") as file:
            try:
                x = np.array([float(row["x"]) for row in csv.DictReader(file)])
            except (KeyError, ValueError) as error:
                raise ProblemError(f"{rows} needs a column x of numbers: {error}") from error
        return [{"x": a, "y": b} for a, b in zip(x.tolist(), predict(x).tolist(), strict=True)]


FAMILY = CurveFitting()
