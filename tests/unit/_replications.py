"""A small real replication of `curve-replay`, laid into a folder as a user's loose plugin."""

from __future__ import annotations

from pathlib import Path

SOURCE = '''
"""Recorded curves fall: the last landmark of each is better than its first."""

import os
import time

import numpy as np

from lamps.replication import Claim, Replication
from lamps_plugins.replay._problem import FAMILY
from lamps_plugins.replay.curve_replay import CurveReplay, Params


def claim(id, direction, **more):
    return Claim(
        id=id, statement=f"The last error is {direction} the first.", direction=direction,
        quantity="error, last | first landmark", compare="ratio", threshold=1.0, **more,
    )


class CurveReplayReplication(Replication):
    claims = (
        claim("C1", "<"),
        claim("C2", "<", profile="full"),
        claim("N1", os.environ.get("REPLICATION_CONTROL", ">"), control=True, source="ours"),
    )

    def seeds(self, profile):
        return (0, 1) if profile == "quick" else (0, 1, 2)

    def fingerprint(self, profile):
        return os.environ.get("REPLICATION_DATA", "toy")

    def prepare(self, profile, say):
        say("prepared")
        print("foreign code prints this")

    def measure(self, ask):
        problem = FAMILY.toy_problem(seed=ask.seed)
        for curve in problem.table.candidates:
            if not ask.wants("C1", "C2", "N1", unit=curve):
                continue
            ask.say(f"curve {curve}")
            if os.environ.get("REPLICATION_FAULT") == f"{ask.seed}/{curve}":
                raise ValueError("no such\\n  luck")
            time.sleep(float(os.environ.get("REPLICATION_SLEEP_S", "0")))
            method, errors = CurveReplay(Params(curve=curve)), []
            for fidelity in (0.0, 1.0):
                method.partial_fit(problem, fidelity, rng=np.random.default_rng(ask.seed))
                errors.append(method.evaluate(problem).objectives["error"])
            for c in self.claims:
                yield ask.measured(c.id, curve, errors[1], errors[0], landmarks=2)
'''


def lay(folder: Path, source: str = SOURCE, *, method: str = "curve_replay") -> str:
    """Write the replication below a folder of plugins; the folder's name."""
    place = folder / "plugins" / "replay" / "_replications"
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{method}.py").write_text(source, encoding="utf-8")
    return str(folder / "plugins")
