"""Labels keep their value and type from the file to the last prediction.

Text labels of a CSV become ints, floats or bools only where writing them back gives the same text
for every label of the column: ``1`` is an int, ``01`` stays text, and so do ``NA``, ``null`` and
``None``, which are class names like any other. Only an empty cell is a missing label.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamps.errors import ProblemError
from lamps.types import Json

__all__ = [
    "Label",
    "LabelReader",
    "decode_labels",
    "detect_separator",
    "encode_labels",
    "infer_labels",
    "targets_of",
]

Label = str | int | float | bool
_TYPES: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}
_MOST_LABELS = 10_000
_SEPARATORS = "|;,"


class LabelReader:
    """Turns cells of the target column into tuples of raw labels, one each unless multi-label.

    Args:
        column: Name of the target column, for messages.
        separator: Character between labels of one cell; None for one label a cell.
    """

    def __init__(self, column: str, separator: str | None) -> None:
        self.column = column
        self.separator = separator
        self.saw_list = False
        self.saw_scalar = False
        self.counts: Counter[Label] = Counter()
        self._types: dict[type, Label] = {}

    def read(self, cell: Any, where: str) -> tuple[Label, ...] | None:
        """The labels of a cell; None where it is missing.

        Raises:
            ProblemError: The cell holds something that is no label.
        """
        if isinstance(cell, list | tuple):
            self.saw_list = True
            found = tuple(dict.fromkeys(self._scalar(v, where) for v in cell if not _missing(v)))
        elif _missing(cell):
            return None
        elif self.separator is not None and isinstance(cell, str):
            self.saw_list = True
            parts = (part.strip() for part in cell.split(self.separator))
            found = tuple(dict.fromkeys(self._scalar(p, where) for p in parts if p))
        else:
            self.saw_scalar = True
            found = (self._scalar(cell, where),)
        for label in found:
            self.counts[label] += 1
        if len(self.counts) > _MOST_LABELS:
            raise ProblemError(
                f"{where}: column {self.column!r} has more than {_MOST_LABELS} different values; "
                "it looks like an id, a free text or a number to regress on. Name the label "
                "column with --target"
            )
        if self.saw_list and self.saw_scalar:
            raise ProblemError(
                f"{where}: column {self.column!r} holds lists in some rows and single labels in "
                "others; write all of them as lists"
            )
        return found

    def _scalar(self, value: Any, where: str) -> Label:
        kind = type(value)
        if kind not in (str, int, float, bool):
            raise ProblemError(
                f"{where}: label {str(value)[:60]!r} of column {self.column!r} is a "
                f"{kind.__name__}; expected text, a whole number, a number or true/false"
            )
        if kind is float and not math.isfinite(value):
            raise ProblemError(f"{where}: label {value} of column {self.column!r} is not finite")
        if kind not in self._types:
            self._types[kind] = value
            kinds = set(self._types)
            # JSON writes 1.0 as 1, so whole and broken numbers may mix; True == 1 must not.
            if len(kinds) > 1 and kinds != {int, float}:
                shown = ", ".join(f"{v!r} ({t.__name__})" for t, v in self._types.items())
                raise ProblemError(
                    f"{where}: column {self.column!r} mixes types: {shown}. Write all labels alike"
                )
        return value  # type: ignore[no-any-return]


def _missing(cell: Any) -> bool:
    return (
        cell is None
        or (isinstance(cell, str) and not cell.strip())
        or (isinstance(cell, float) and math.isnan(cell))
    )


def detect_separator(cells: Iterable[str]) -> str | None:
    """The separator of ``| ; ,`` that stands in most cells; None where none does."""
    counts = Counter(sep for cell in cells for sep in _SEPARATORS if sep in cell)
    return max(_SEPARATORS, key=lambda sep: counts[sep]) if counts else None


def infer_labels(counts: Mapping[Label, int], *, typed: bool) -> dict[Label, Label]:
    """Final label of each raw one, in the order of the classes.

    Args:
        counts: Raw labels, text from a CSV or values from a typed file.
        typed: Whether raw labels have their own types already.

    Example:
        >>> infer_labels({"2": 5, "10": 3}, typed=False)
        {'2': 2, '10': 10}
        >>> infer_labels({"2": 5, "01": 3}, typed=False)
        {'01': '01', '2': '2'}
    """
    raw = list(counts)
    final: dict[Label, Label]
    if typed:
        whole = all(type(v) is not float for v in raw)
        final = {v: v if whole else float(v) for v in raw}
    else:
        final = {v: v for v in raw}
        for convert in (_as_bool, int, float):
            if all(_survives(str(v), convert) for v in raw):
                final = {v: convert(str(v)) for v in raw}
                break
    return dict(sorted(final.items(), key=lambda pair: pair[1]))


def _as_bool(text: str) -> bool:
    return {"True": True, "False": False}[text]


def _survives(text: str, convert: Any) -> bool:
    try:
        value = convert(text)
    except (ValueError, KeyError, OverflowError):
        return False
    return str(value) == text and math.isfinite(value)


def targets_of(
    rows: Sequence[Sequence[Label]], order: Mapping[Label, int], *, multi_label: bool
) -> NDArray[np.int64] | NDArray[np.float32]:
    """Class indices ``[n] int64``, or indicators ``[n, n_labels] float32`` for multi-label rows.

    Args:
        rows: Raw labels of each row.
        order: Index of each raw label.
        multi_label: Which of the two forms.
    """
    if not multi_label:
        return np.fromiter((order[row[0]] for row in rows), dtype=np.int64, count=len(rows))
    targets = np.zeros((len(rows), len(set(order.values()))), dtype=np.float32)
    for i, row in enumerate(rows):
        for label in row:
            targets[i, order[label]] = 1.0
    return targets


def encode_labels(labels: Sequence[Label]) -> dict[str, Json]:
    """Labels as JSON with their type, read back by `decode_labels`.

    Example:
        >>> encode_labels((False, True))
        {'dtype': 'bool', 'values': [False, True]}
    """
    kinds = {type(label).__name__ for label in labels}
    if len(kinds) != 1 or not kinds <= set(_TYPES):
        raise ProblemError(f"labels of types {sorted(kinds)}; expected one of {sorted(_TYPES)}")
    values: list[Any] = list(labels)
    return {"dtype": kinds.pop(), "values": values}


def decode_labels(encoded: Mapping[str, Any]) -> tuple[Label, ...]:
    """The inverse of `encode_labels`, after any trip through JSON text."""
    kind = _TYPES.get(str(encoded.get("dtype")))
    if kind is None or not isinstance(encoded.get("values"), list):
        raise ProblemError(
            f"labels are stored as {json.dumps(dict(encoded))[:80]}; expected dtype and values"
        )
    return tuple(kind(value) for value in encoded["values"])
