"""The Pareto front of a run as a value: filter it, pick from it, measure it, print it."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lamps import pareto
from lamps.errors import ConfigError, did_you_mean
from lamps.types import Candidate, Objective

if TYPE_CHECKING:
    import pandas as pd

_CONDITION = re.compile(r"\s*(\w+)\s*(<=|>=|<|>)\s*([-+0-9.eE]+|inf)\s*")
_NO_WEIGHTS = "no weights were given; write for example 'val_error:2,latency_ms:1'"
_OPERATORS = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One candidate at the fidelity it has reached.

    Args:
        index: Its number in the run; what ``lamps export`` takes.
        candidate: Method and params.
        label: The same in one line.
        fidelity: Share of the full effort behind the values.
        values: Every measured objective by name, in its unit.
        test: Scores on the test split with interval ends, for final members; empty otherwise.
    """

    index: int
    candidate: Candidate
    label: str
    fidelity: float
    values: Mapping[str, float]
    test: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        """The member as JSON."""
        return {
            "index": self.index,
            "method": self.candidate.method,
            "params": dict(self.candidate.params),
            "label": self.label,
            "fidelity": self.fidelity,
            "values": dict(self.values),
            "test": dict(self.test),
        }


class Front(Sequence[Member]):
    """The non-dominated members of a pool, best first objective first; duplicates are kept.

    Args:
        members: The members of the front.
        objectives: The objectives that it is drawn over.
        pool: Everything that was compared, front members included; bounds the default reference
            point.
        n_trials: Size of the run's pool.
    """

    def __init__(
        self,
        members: Sequence[Member],
        objectives: Sequence[Objective],
        pool: Sequence[Member],
        n_trials: int,
    ) -> None:
        self.objectives = tuple(objectives)
        first = self.objectives[0]
        sign = -1.0 if first.direction == "maximize" else 1.0
        self.members = tuple(sorted(members, key=lambda m: (sign * m.values[first.name], m.index)))
        self.pool = tuple(pool)
        self.n_trials = n_trials

    @classmethod
    def of(
        cls,
        pool: Sequence[Member],
        objectives: Sequence[Objective],
        *,
        where: str | Mapping[str, str] | Sequence[str] | None = None,
        n_trials: int | None = None,
    ) -> Front:
        """The front of those members of a pool that meet all conditions.

        Args:
            pool: Members to compare.
            objectives: What to compare them by.
            where: Conditions such as ``"latency_ms<5"``, several of them, or ``{"latency_ms":
                "<5"}``; they may name any measured objective.
            n_trials: Size of the run's pool, for the repr.

        Raises:
            ConfigError: A condition cannot be read, or names something that was not measured.
        """
        conditions = _conditions(where)
        kept = [m for m in pool if _meets(m, conditions)]
        if not kept:
            return cls((), objectives, kept, n_trials or len(pool))
        values = _values(kept, objectives)
        mask = pareto.is_nondominated(values)
        members = [m for m, on in zip(kept, mask, strict=True) if on]
        return cls(members, objectives, kept, n_trials or len(pool))

    def __len__(self) -> int:
        return len(self.members)

    def __getitem__(self, index: Any) -> Any:
        return self.members[index]

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members)

    @property
    def reference_point(self) -> dict[str, float]:
        """Worst value of the pool plus 10 % of its range.

        Per objective and in its own direction.
        """
        point = pareto.reference_point(_values(self.pool, self.objectives))
        return {
            o.name: float(-v if o.direction == "maximize" else v)
            for o, v in zip(self.objectives, point, strict=True)
        }

    def hypervolume(self, reference: Mapping[str, float] | None = None) -> float:
        """Volume that the front dominates up to a reference point (default: `reference_point`)."""
        at = self.reference_point if reference is None else reference
        missing = [o.name for o in self.objectives if o.name not in at]
        if missing:
            raise ConfigError(f"the reference point lacks {', '.join(missing)}")
        directions = [o.direction for o in self.objectives]
        point = pareto.to_minimization([[at[o.name] for o in self.objectives]], directions)[0]
        return pareto.hypervolume(_values(self.members, self.objectives), point)

    def pick(self, weights: str | Mapping[str, float]) -> Member:
        """The member with the least weighted sum of objectives, each scaled to [0, 1].

        Args:
            weights: ``"val_error:2,latency_ms:1"`` or a mapping; only ratios matter.

        Raises:
            ConfigError: The front is empty, a weight is negative or not a number, or a name is
                unknown.
        """
        given = _parse_weights(weights) if isinstance(weights, str) else dict(weights)
        known = {o.name: o for o in self.objectives}
        for name, weight in given.items():
            if name not in known:
                raise ConfigError(
                    f"no objective {name!r} on this front. {did_you_mean(name, known)}"
                )
            if not (_is_number(weight) and math.isfinite(weight) and weight >= 0):
                raise ConfigError(f"weight of {name} is {weight!r}, expected 0 or more")
        if not given:
            raise ConfigError(_NO_WEIGHTS)
        if not any(given.values()):
            raise ConfigError("all weights are 0, expected one at least that is more")
        if not self.members:
            raise ConfigError("the front is empty, there is nothing to pick from")
        values = _values(self.members, self.objectives)
        scaled = pareto.normalized(values, values.min(axis=0), values.max(axis=0))
        total = scaled @ np.array([given.get(o.name, 0.0) for o in self.objectives])
        return self.members[int(np.argmin(total))]

    def explain(self) -> str:
        """What the front says, in sentences: its ends, and what each step costs."""
        if not self.members:
            return "The front is empty: no candidate has been finished that meets the conditions."
        lines = [repr(self)]
        for objective in self.objectives:
            sign = -1.0 if objective.direction == "maximize" else 1.0
            best = min(self.members, key=lambda m: sign * m.values[objective.name])
            unit = "" if objective.unit == "1" else f" {objective.unit}"
            lines.append(
                f"best {objective.name}: {best.values[objective.name]:.4g}{unit} "
                f"by #{best.index} {best.label}"
            )
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The front as JSON."""
        return {
            "objectives": [
                {"name": o.name, "unit": o.unit, "direction": o.direction} for o in self.objectives
            ],
            "reference_point": self.reference_point if self.pool else None,
            "hypervolume": self.hypervolume() if self.pool else 0.0,
            "n_trials": self.n_trials,
            "members": [m.as_dict() for m in self.members],
        }

    def to_pandas(self) -> pd.DataFrame:
        """One row per member."""
        import pandas as pd

        return pd.DataFrame(
            [
                {"index": m.index, "label": m.label, "fidelity": m.fidelity, **m.values, **m.test}
                for m in self
            ]
        )

    def __repr__(self) -> str:
        names = ", ".join(o.name for o in self.objectives)
        if not self.pool:
            return f"Front(0 of {self.n_trials} trials over {names})"
        point = ", ".join(f"{v:.4g}" for v in self.reference_point.values())
        return (
            f"Front({len(self)} of {self.n_trials} trials over {names}, "
            f"hv={self.hypervolume():.4g} @ ref=({point}))"
        )


def _values(members: Sequence[Member], objectives: Sequence[Objective]) -> pareto.Floats:
    rows = [[m.values[o.name] for o in objectives] for m in members]
    array = pareto.as_values(rows, len(objectives))
    return pareto.to_minimization(array, [o.direction for o in objectives])


Condition = tuple[str, str, float]


def _conditions(where: str | Mapping[str, str] | Sequence[str] | None) -> list[Condition]:
    """Name, operator and bound of each condition."""
    if where is None:
        return []
    if isinstance(where, Mapping):
        texts = [f"{k}{v}" for k, v in where.items()]
    else:
        texts = [where] if isinstance(where, str) else list(where)
    found = []
    for part in (part for text in texts for part in text.split(",")):
        match = _CONDITION.fullmatch(part)
        if not match:
            raise ConfigError(f"{part.strip()!r} is not a condition such as 'latency_ms<5'")
        name, operator, bound = match.groups()
        try:
            found.append((name, operator, float(bound)))
        except ValueError as error:
            raise ConfigError(f"{bound!r} in {part.strip()!r} is not a number") from error
    return found


def _meets(member: Member, conditions: Sequence[Condition]) -> bool:
    for name, _, _ in conditions:
        if name not in member.values:
            raise ConfigError(f"no objective {name!r}. {did_you_mean(name, member.values)}")
    return all(_OPERATORS[how](member.values[name], bound) for name, how, bound in conditions)


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _parse_weights(text: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    for part in filter(str.strip, text.split(",")):
        name, colon, number = part.partition(":")
        try:
            weights[name.strip()] = float(number) if colon else 1.0
        except ValueError as error:
            raise ConfigError(f"{part.strip()!r} is not a weight such as 'val_error:2'") from error
    if not weights:
        raise ConfigError(_NO_WEIGHTS)
    return weights
