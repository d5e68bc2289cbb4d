"""The simulator of policies against the real controller on the replay backend."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lamps
from lamps import policy as policies
from lamps.policy.recorded import recorded
from lamps.policy.simulate import simulate
from lamps.tables import read_table

NAMES = ["lamps", "front-racing", "mo-asha", "extrapolate", "ehvi", "oracle", "optuna:random"]


def table(path: Path) -> Path:
    rng = np.random.default_rng(3)
    rows = ["candidate,fidelity,elapsed_s,size,error,latency"]
    for c in range(9):
        end, start, speed, spent = rng.uniform(0.1, 0.5), 0.9, rng.uniform(1, 4), 0.0
        for f in (0.0, 0.25, 0.5, 1.0):
            spent += 0.5 + (1 + c) * f
            error = "nan" if (c, f) == (4, 0.5) else f"{end + (start - end) * (1 - f) ** speed}"
            rows.append(f"c{c},{f},{spent},{c + 1},{error},{1 + c % 4}")
            if error == "nan":
                break
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_both_take_the_same_decisions(tmp_path: Path, name: str, workers: int) -> None:
    file = table(tmp_path / "t.csv")
    run = lamps.search(
        problem=f"replay:{file}",
        policy=name,
        backend="replay",
        workers=workers,
        store=f"sqlite:///{tmp_path / 'lamps.db'}",
        artifacts=str(tmp_path / "artifacts"),
        seed=5,
    )
    trace = simulate(policies.make(name, seed=5), recorded(read_table(file)), workers=workers)
    decided = [d.trial_index for d in run.decisions()]
    landed = {i: 0 for i in range(9)}
    for trial in trace.trial.tolist():
        landed[trial] += 1
    assert sorted(decided) == sorted(trace.trial.tolist())
    if workers == 1:
        assert decided == trace.trial.tolist()
    assert trace.decisions == len(decided)
    for i, trial in enumerate(run.trials()):
        assert len(trial.evaluations) == landed[i]
