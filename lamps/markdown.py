"""Tables of generated pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], *, left: int = 1) -> str:
    r"""A Markdown table whose first ``left`` columns are text; the others stand right.

    Example:
        >>> print(table(("a", "b"), [("x|y", 1)]))
        | a | b |
        | --- | ---: |
        | x\|y | 1 |
    """
    lines = [
        "| " + " | ".join(head) + " |",
        "|" + " --- |" * left + " ---: |" * (len(head) - left),
    ]
    lines += ["| " + " | ".join(cell(c) for c in row) + " |" for row in rows]
    return "\n".join(lines)


def cell(value: Any) -> str:
    """A value as text that cannot break out of its cell or line."""
    return str(value).replace("|", "\\|").replace("\n", " ")
