"""Replays one recorded curve, and misbehaves on demand.

Policies are developed and the scheduler's faults are tested with this method: it is a complete
method whose numbers are known in advance, on any backend. A fault strikes when the landmark
``fault_at`` is fitted.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.random import Generator

from lamps import space as hp
from lamps.errors import ProblemError
from lamps.method import Method, MethodSpec, State, Tags
from lamps.types import Evaluation, Split
from lamps_plugins.replay._problem import ReplayProblem

FAULTS = (
    "none",
    "raise",
    "exit",
    "kill",
    "terminate",
    "nan",
    "inf",
    "huge",
    "text",
    "nothing",
    "fill-disk",
    "eat-memory",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Which curve, how slowly, and what goes wrong."""

    curve: str = hp.fixed("", doc="Candidate of the table whose values are replayed.")
    sleep_s: float = hp.fixed(0.0, doc="Seconds each landmark really takes.")
    time_scale: float = hp.fixed(
        0.0, doc="Each landmark really takes this share of its recorded seconds."
    )
    fault: str = hp.fixed("none", doc=f"What goes wrong: {', '.join(FAULTS)}.")
    fault_at: int = hp.fixed(1, doc="Index of the landmark at which it goes wrong.")
    fault_flag: str = hp.fixed(
        "", doc="File that is made when the fault strikes; where it exists nothing strikes."
    )
    payload_bytes: int = hp.fixed(
        0, doc="Bytes of ballast in each checkpoint, or that eat-memory takes."
    )


class CurveReplay(Method[ReplayProblem, Params]):
    """A recorded curve as a method."""

    spec = MethodSpec(
        family="replay",
        summary="replays a recorded curve; sleeps, raises, returns nonsense or dies on demand",
        tags=Tags(data_free=True),
    )

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self.level_ = -1

    def partial_fit(self, problem: ReplayProblem, fidelity: float, *, rng: Generator) -> Self:
        """Take as long as asked, then stand at that fidelity."""
        if self.params.fault not in FAULTS:
            raise ProblemError(
                f"fault {self.params.fault!r} is unknown; known: {', '.join(FAULTS)}"
            )
        target = problem.fidelities.index(fidelity)
        row = problem.table.row(self.params.curve)
        for level in range(self.level_ + 1, target + 1):
            recorded = np.nan_to_num(problem.table.cost_s[row, level])
            time.sleep(self.params.sleep_s + self.params.time_scale * float(recorded))
            if level == self.params.fault_at:
                self._misbehave()
            self.level_ = level
        self.fidelity_ = max(fidelity, self.fidelity_ or 0.0)
        return self

    def _misbehave(self) -> None:
        if self.params.fault == "none" or self._struck_before():
            return
        if self.params.fault == "raise":
            raise RuntimeError("curve-replay was told to raise")
        if self.params.fault == "exit":
            sys.exit(7)
        if self.params.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.params.fault == "terminate":
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1.0)  # the handler raises here
        if self.params.fault == "eat-memory":
            eaten = []
            for _ in range(self.params.payload_bytes >> 26):
                eaten.append(np.ones(1 << 26, dtype=np.uint8))
                time.sleep(0.05)
            time.sleep(30.0)  # whoever watches the memory of this machine ends us now

    def _struck_before(self) -> bool:
        if not self.params.fault_flag:
            return False
        try:
            Path(self.params.fault_flag).touch(exist_ok=False)
        except FileExistsError:
            return True
        return False

    def evaluate(self, problem: ReplayProblem, split: Split = "val") -> Evaluation:
        """The recorded values, or the nonsense that was asked for."""
        row = problem.table.values[problem.table.row(self.params.curve), self.level_]
        values: dict[str, Any] = dict(
            zip((o.name for o in problem.objectives), row.tolist(), strict=True)
        )
        if split == "test":
            return Evaluation({f"test_{k}": v for k, v in values.items()})
        if self.level_ == self.params.fault_at:
            nonsense = {"nan": np.nan, "inf": np.inf, "huge": 1e308, "text": "n/a"}
            if self.params.fault == "nothing":
                return cast(Evaluation, None)
            if self.params.fault in nonsense:
                values = dict.fromkeys(values, nonsense[self.params.fault])
        return Evaluation(values, {"level": float(self.level_)})

    def state_dict(self) -> State:
        """The landmark reached, and the ballast."""
        state: State = {"level": self.level_, "fidelity": self.fidelity_}
        ballast = 0 if self.params.fault == "eat-memory" else self.params.payload_bytes
        if self.params.fault == "fill-disk" and self.level_ == self.params.fault_at:
            ballast = max(ballast, 1 << 28)
        if ballast:
            state["ballast"] = np.zeros(ballast, dtype=np.uint8)
        return state

    def load_state_dict(self, state: State, problem: ReplayProblem) -> None:
        """Stand where the checkpoint stood."""
        self.level_, self.fidelity_ = state["level"], state["fidelity"]

    def save(self, problem: ReplayProblem, directory: Path) -> None:
        """The curve up to here, as CSV."""
        row = problem.table.row(self.params.curve)
        lines = ["fidelity," + ",".join(o.name for o in problem.objectives)]
        for level in range(self.level_ + 1):
            numbers = ",".join(repr(float(v)) for v in problem.table.values[row, level])
            lines.append(f"{problem.fidelities[level]!r},{numbers}")
        (directory / "curve.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
