r"""What SQL columns cannot hold alike on both databases, and how it is written instead.

- Objective values of one evaluation are one blob of little-endian float64 in the order of the
  run's objectives. NaN, infinities and denormals come back bit for bit, and a front over many
  evaluations is read without an object a row.
- JSON is text. A float that is not finite becomes ``{"$float": "nan"}``; NUL and lone surrogates
  are ``\u`` escapes.
- Names (runs, policies, owners, ...) with NUL or lone surrogates are refused; prose (errors,
  notes, labels) shows them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Dialect, Double, String, Text
from sqlalchemy.types import TypeDecorator

from lamps.errors import StoreError

_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def pack(values: Sequence[float]) -> bytes:
    """Objective values as little-endian float64.

    Example:
        >>> unpack(pack([0.5, float("inf")]))
        (0.5, inf)
    """
    return np.asarray(values, dtype="<f8").tobytes()


def unpack(blob: bytes) -> tuple[float, ...]:
    """The inverse of `pack`."""
    return tuple(np.frombuffer(blob, dtype="<f8").tolist())


def encode(value: Any) -> Any:
    """A JSON value in which every float is finite.

    Raises:
        StoreError: Something that is not JSON, such as a path or an object.

    Example:
        >>> encode({"loss": float("nan"), "steps": (1, 2)})
        {'loss': {'$float': 'nan'}, 'steps': [1, 2]}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise StoreError(f"JSON key {key!r} is {type(key).__name__}, expected text")
        if any(key.startswith("$") for key in value):
            # A user's own key that looks like ours is kept apart from it.
            return {"$map": [[key, encode(item)] for key, item in value.items()]}
        return {key: encode(item) for key, item in value.items()}
    raise StoreError(
        f"cannot store {type(value).__name__} {value!r:.60} as JSON; "
        "expected None, bool, int, float, text, list or dict"
    )


def decode(value: Any) -> Any:
    """The inverse of `encode`; tuples come back as lists."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if isinstance(value, dict):
        if "$float" in value:
            return _NON_FINITE[value["$float"]]
        if "$map" in value:
            return {key: decode(item) for key, item in value["$map"]}
        return {key: decode(item) for key, item in value.items()}
    return value


def name_text(value: str, what: str, *, limit: int = 500) -> str:
    """A name that both databases can hold.

    Args:
        value: The name.
        what: What it names, for the message.
        limit: Largest number of characters.

    Raises:
        StoreError: Empty, too long, or with characters that PostgreSQL cannot hold.
    """
    if not isinstance(value, str) or not value.strip():
        raise StoreError(f"{what} is {value!r}, expected a name that is not empty")
    if len(value) > limit:
        raise StoreError(f"{what} has {len(value)} characters, expected at most {limit}")
    if value != prose(value):
        raise StoreError(
            f"{what} {value!r:.80} holds NUL or lone surrogate characters, which PostgreSQL "
            "cannot store; leave them out"
        )
    return value


def prose(value: str) -> str:
    r"""Free text for people, with NUL and lone surrogates made visible.

    Example:
        >>> print(prose("a\x00b\udcffc"))
        a␀b\udcffc
    """
    return value.replace("\x00", "␀").encode("utf-8", "backslashreplace").decode("utf-8")


class JsonText(TypeDecorator[Any]):
    """JSON in a text column, read back equal on both databases."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Python to SQL."""
        return None if value is None else json.dumps(encode(value), allow_nan=False)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """SQL to Python."""
        return None if value is None else load_json(value)


def load_json(text: str) -> Any:
    """The value of a `JsonText` column read without SQLAlchemy's result types."""
    value = json.loads(text)
    return decode(value) if '"$' in text else value


class Real(TypeDecorator[float]):
    """A float64 whose NaN is NULL, because SQLite knows no NaN."""

    impl = Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:
        """Python to SQL."""
        return None if value is None or math.isnan(value) else float(value)

    def process_result_value(self, value: float | None, dialect: Dialect) -> float:
        """SQL to Python."""
        return math.nan if value is None else float(value)


class Seed(TypeDecorator[int]):
    """An integer of any size as decimal text; seeds are often wider than 64 bits."""

    impl = String(80)
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> str | None:
        """Python to SQL."""
        return None if value is None else str(int(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> int | None:
        """SQL to Python."""
        return None if value is None else int(value)
