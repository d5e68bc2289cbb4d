"""Search spaces as dataclass fields that carry a range, a doc and an Optuna distribution.

Example:
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, slots=True, kw_only=True)
    ... class Params:
    ...     rank: int = integer(8, low=1, high=64, log=True, doc="Rank of the update.")
    >>> sorted(distributions(Params))
    ['rank']
    >>> Params().rank
    8
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lamps.errors import ConfigError, did_you_mean
from lamps.types import Json

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_KEY = "lamps.hp"


@dataclasses.dataclass(frozen=True, slots=True)
class Hyperparameter:
    """Range and meaning of one field of a ``Params`` dataclass.

    Args:
        kind: ``real``, ``integer``, ``choice``, ``model`` (filled from the pool of models of a
            run), ``fixed`` (never searched, settable by the user).
        low: Smallest value, for numbers.
        high: Largest value, for numbers.
        log: Whether the range is searched on a log scale.
        choices: The values of a choice.
        accepts: For ``model``: the kinds of models that this method can use.
        doc: One sentence with the unit.
    """

    kind: str
    low: float | None = None
    high: float | None = None
    log: bool = False
    choices: tuple[Json, ...] = ()
    accepts: tuple[str, ...] = ()
    doc: str = ""

    def distribution(self) -> BaseDistribution | None:
        """The Optuna distribution, or None where the field is not searched."""
        from optuna.distributions import (
            CategoricalDistribution,
            FloatDistribution,
            IntDistribution,
        )

        if self.kind == "real":
            assert self.low is not None
            assert self.high is not None
            return FloatDistribution(self.low, self.high, log=self.log)
        if self.kind == "integer":
            assert self.low is not None
            assert self.high is not None
            return IntDistribution(int(self.low), int(self.high), log=self.log)
        if self.kind == "choice":
            return CategoricalDistribution(self.choices)  # type: ignore[arg-type]
        return None

    def problem_with(self, value: Any) -> str | None:
        """What is wrong with a value, in words; None where it lies in the range."""
        if self.kind == "choice":
            # True is not 1, although Python says they are equal.
            known = any(type(value) is type(c) and value == c for c in self.choices)
            return None if known else f"expected one of {list(self.choices)}"
        if self.kind in ("real", "integer"):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                return "expected a number"
            if self.kind == "integer" and not (math.isfinite(value) and int(value) == value):
                return "expected an integer"
            assert self.low is not None
            assert self.high is not None
            if not (math.isfinite(value) and self.low <= value <= self.high):
                return f"expected a value in [{self.low}, {self.high}]"
        if self.kind == "model" and not isinstance(value, str):
            return "expected the name, path or hub id of a model"
        return None


def _field(default: Any, hp: Hyperparameter) -> Any:
    return dataclasses.field(default=default, metadata={_KEY: hp})


def real(default: float, *, low: float, high: float, log: bool = False, doc: str) -> Any:
    """A float field searched in ``[low, high]``."""
    return _field(default, Hyperparameter("real", low=low, high=high, log=log, doc=doc))


def integer(default: int, *, low: int, high: int, log: bool = False, doc: str) -> Any:
    """An int field searched in ``[low, high]``."""
    return _field(default, Hyperparameter("integer", low=low, high=high, log=log, doc=doc))


def choice(default: Json, choices: Sequence[Json], *, doc: str) -> Any:
    """A field that takes one of a few values."""
    return _field(default, Hyperparameter("choice", choices=tuple(choices), doc=doc))


def model(*, accepts: Sequence[str], doc: str) -> Any:
    """A field that names a model of the run's pool; ``accepts`` lists the kinds that fit."""
    return _field("", Hyperparameter("model", accepts=tuple(accepts), doc=doc))


def fixed(default: Json, *, doc: str) -> Any:
    """A field that a user may set and that no sampler touches."""
    return _field(default, Hyperparameter("fixed", doc=doc))


def hyperparameters(params: type) -> dict[str, Hyperparameter]:
    """The hyperparameters of a ``Params`` dataclass by field name."""
    return {f.name: f.metadata[_KEY] for f in dataclasses.fields(params) if _KEY in f.metadata}


def distributions(params: type) -> dict[str, BaseDistribution]:
    """The Optuna search space of a ``Params`` dataclass: only what is searched."""
    found = {name: hp.distribution() for name, hp in hyperparameters(params).items()}
    return {name: d for name, d in found.items() if d is not None}


def build(params: type, values: Mapping[str, Any], *, where: str = "params") -> Any:
    """An instance of a ``Params`` dataclass from JSON values, with every value checked.

    Raises:
        ConfigError: A name is unknown, or a value lies outside its range.
    """
    known = hyperparameters(params)
    given = dict(values)
    for name, value in values.items():
        if name not in known:
            raise ConfigError(f"{where} has no parameter {name!r}. {did_you_mean(name, known)}")
        trouble = known[name].problem_with(value)
        if trouble:
            raise ConfigError(f"{where}: {name}={value!r}, {trouble}")
        if known[name].kind == "integer":
            given[name] = int(value)  # JSON of other languages writes 4 as 4.0
    return params(**given)


def as_json(params: Any) -> dict[str, Json]:
    """The values of a ``Params`` instance by field name."""
    return {f.name: getattr(params, f.name) for f in dataclasses.fields(params)}
