"""Members of made-up fronts."""

from __future__ import annotations

from lamps.front import Member
from lamps.types import Candidate, Objective

ERROR = Objective("val_error")
LATENCY = Objective("latency_ms", "ms")
ACCURACY = Objective("accuracy", "1", "maximize")


def member(index: int, test: dict[str, float] | None = None, **values: float) -> Member:
    candidate = Candidate("f", "m", {"i": index})
    return Member(
        index=index,
        candidate=candidate,
        label=candidate.label,
        fidelity=1.0,
        values=values,
        test=test or {},
    )


def pool() -> list[Member]:
    """The front over error and latency is 0, 1, 2, 4; 4 repeats 1."""
    return [
        member(0, val_error=0.3, latency_ms=1.0, accuracy=0.7),
        member(1, val_error=0.2, latency_ms=2.0, accuracy=0.8),
        member(2, val_error=0.1, latency_ms=9.0, accuracy=0.9, test={"test_error": 0.15}),
        member(3, val_error=0.3, latency_ms=5.0, accuracy=0.7),
        member(4, val_error=0.2, latency_ms=2.0, accuracy=0.8),
    ]
