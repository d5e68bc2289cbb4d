"""The values that everything else passes around: frozen, small, picklable, and free of behaviour.

Shapes and words follow one convention: ``n`` trials, ``K`` landmarks a trial, ``m`` objectives.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from lamps.errors import ConfigError

Direction = Literal["minimize", "maximize"]
Split = Literal["train", "val", "test"]
Json = None | bool | int | float | str | list[Any] | dict[str, Any]


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text, so it can be hashed.

    Example:
        >>> canonical_json({"b": 1, "a": (1.5, None)})
        '{"a":[1.5,null],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: Any, *, length: int = 16) -> str:
    """First ``length`` hex digits of the SHA-256 of a JSON value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]


@dataclass(frozen=True, slots=True)
class Objective:
    """A measured number that a front may be drawn over.

    Args:
        name: Key in `Evaluation.objectives`, snake case, with the unit as suffix where it has one.
        unit: What one means: ``"1"`` for a share, ``"ms"``, ``"bytes"``, ``"s"``.
        direction: Whether less or more is better.
        doc: One sentence for help pages.
        noisy: Whether measuring again gives another value (times, memory).

    Example:
        >>> Objective("latency_ms", "ms").direction
        'minimize'
    """

    name: str
    unit: str = "1"
    direction: Direction = "minimize"
    doc: str = ""
    noisy: bool = False

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ConfigError(
                f"objective name {self.name!r} is not an identifier such as 'val_error'"
            )
        if self.direction not in ("minimize", "maximize"):
            raise ConfigError(
                f"objective {self.name!r} has direction {self.direction!r}, "
                "expected 'minimize' or 'maximize'"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one landmark spent; never mixed into an objective silently.

    Args:
        wall_s: Elapsed seconds of partial_fit, evaluate and checkpoint together.
        device_s: CPU seconds of the process (or GPU seconds where the backend knows them).
        peak_bytes: Largest resident memory of the worker while it ran.
        checkpoint_bytes: Size of the checkpoint that was written.
    """

    wall_s: float
    device_s: float = 0.0
    peak_bytes: int = 0
    checkpoint_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a method is worth at one fidelity: objectives to be compared, signals to be looked at.

    Args:
        objectives: Value per declared objective, in its unit.
        signals: Diagnostic numbers that never enter a front.
    """

    objectives: Mapping[str, float]
    signals: Mapping[str, float] = field(default_factory=dict)

    def is_finite(self) -> bool:
        """Whether every objective is a finite number."""
        return all(
            isinstance(v, (int, float)) and math.isfinite(v) for v in self.objectives.values()
        )


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something that may be chosen: a method of a family with its params.

    Args:
        family: Name of the problem family.
        method: Name of the method inside the family.
        params: JSON values by parameter name; a model, where there is one, is the param ``model``.

    Example:
        >>> Candidate("replay", "curve-replay", {"curve": "a"}).label
        'curve-replay(curve=a)'
    """

    family: str
    method: str
    params: Mapping[str, Json] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Candidate, (self.family, self.method, dict(self.params)))

    @property
    def key(self) -> str:
        """A hash that is equal for equal candidates, on every machine."""
        return digest([self.family, self.method, dict(self.params)])

    @property
    def label(self) -> str:
        """Method and params in one line, for people.

        Example:
            >>> Candidate("replay", "curve-replay").label
            'curve-replay'
        """
        if not self.params:
            return self.method
        inside = ", ".join(f"{k}={_short(v)}" for k, v in sorted(self.params.items()))
        return f"{self.method}({inside})"


def _short(value: Json) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    text = str(value)
    return text if len(text) <= 40 else f"…{text[-39:]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a run may spend; None means without bound.

    Args:
        wall_s: Elapsed seconds since the start, over all resumes.
        device_s: Sum of device seconds of all landmarks.
        landmarks: Number of landmarks.
        trials: Number of trials that may be started.
    """

    wall_s: float | None = None
    device_s: float | None = None
    landmarks: int | None = None
    trials: int | None = None

    def __post_init__(self) -> None:
        for name in ("wall_s", "device_s", "landmarks", "trials"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ConfigError(f"budget {name} is {value}, expected a positive finite number")

    def as_dict(self) -> dict[str, float | int | None]:
        """The four bounds as JSON."""
        return {k: getattr(self, k) for k in ("wall_s", "device_s", "landmarks", "trials")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a landmark occupies on a node while it runs, in Ray's terms."""

    cpus: float = 1.0
    gpus: float = 0.0
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("cpus", "gpus", "memory_bytes"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"{name} is {value}, expected a finite number of 0 or more")

    def as_dict(self) -> dict[str, float | int | None]:
        """The three amounts as JSON."""
        return {"cpus": self.cpus, "gpus": self.gpus, "memory_bytes": self.memory_bytes}


def frozen(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    """A read-only copy of a mapping."""
    return MappingProxyType(dict(mapping))
