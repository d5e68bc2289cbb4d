"""Small runs for the store's tests."""

from __future__ import annotations

from typing import Any

from lamps.method import ModelInfo
from lamps.store import Decision, Run, RunSpec, Store
from lamps.types import Budget, Candidate, Cost, Objective

OBJECTIVES = (
    Objective("val_error"),
    Objective("latency_ms", "ms"),
    Objective("gain", "1", "maximize"),
)
FIDELITIES = (0.0, 0.25, 0.5, 1.0)
COST = Cost(wall_s=1.5, device_s=1.25, peak_bytes=2**33, checkpoint_bytes=17)
MODEL = ModelInfo(
    name="tiny", kind="encoder", path="/models/tiny", parameters=10**10, size_bytes=2 * 10**10,
    licence="MIT", source="tests", sha256="0" * 64, n_layers=3,
)  # fmt: skip


def candidates(n: int = 3) -> list[Candidate]:
    return [
        Candidate("replay", "curve-replay", {"curve": f"c{i}", "scale": i / 7}) for i in range(n)
    ]


def spec(name: str = "first", **changes: Any) -> RunSpec:
    values: dict[str, Any] = {
        "name": name,
        "family": "replay",
        "problem_name": "toy",
        "problem_reference": {"file": "toy.csv"},
        "problem_fingerprint": "f00d",
        "problem_card": {"rows": 12, "language": "de"},
        "objectives": OBJECTIVES,
        "front_objectives": ("val_error", "latency_ms"),
        "fidelities": FIDELITIES,
        "unit": "examples",
        "settings": {"workers": 1},
        "seed": 2**100 + 1,
        "budget": Budget(wall_s=60.0, landmarks=12),
        "policy": "round-robin",
        "method_versions": {"curve-replay": "3"},
        "models": (MODEL,),
    }
    return RunSpec(**(values | changes))


def started(store: Store, name: str = "first", n: int = 3, **changes: Any) -> Run:
    run = store.create_run(spec(name, **changes), candidates(n))
    store.set_run_state(run.id, "running")
    return run


def decide(store: Store, run: Run, trial: int, landmark: int, **changes: Any) -> Decision:
    values: dict[str, Any] = {"policy": "round-robin", "features_hash": "abc", "seed": 7}
    return store.decide(run.id, trial, landmark, **(values | changes))


def complete(store: Store, decision: Decision, *numbers: float, **changes: Any) -> str | None:
    numbers = numbers or (0.5, 2.0, 1.0)
    values = dict(zip([o.name for o in OBJECTIVES], numbers, strict=True))
    outcome: dict[str, Any] = {"values": values, "signals": {}, "cost": COST}
    return store.complete(decision.id, **(outcome | changes))
