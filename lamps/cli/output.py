"""What every command shares: options for store and output, tables, numbers for people."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def store_option(command: Command) -> Command:
    """``--store URL``."""
    return click.option(
        "--store",
        metavar="URL",
        help="Database, as an SQLAlchemy URL.  [default: $LAMPS_STORE or sqlite:///lamps.db]",
    )(command)


def maximize_option(command: Command) -> Command:
    """``--maximize NAME``, repeatable."""
    return click.option(
        "--maximize",
        multiple=True,
        metavar="NAME",
        help="An objective of which more is better (repeatable).",
    )(command)


def output_options(command: Command) -> Command:
    """``--json`` and ``--nl``: one document, or one object per line, instead of a table."""
    command = click.option(
        "--nl", "nl", is_flag=True, callback=_one_of_two, help="Print one JSON object per line."
    )(command)
    return click.option(
        "--json", "as_json", is_flag=True, callback=_one_of_two, help="Print one JSON document."
    )(command)


def _one_of_two(context: click.Context, option: click.Parameter, value: bool) -> bool:
    """The flag, unless the other one was given as well."""
    other = {"nl": "as_json", "as_json": "nl"}[str(option.name)]
    if value and context.params.get(other):
        raise click.UsageError("--json and --nl were both given; take one of them")
    return value


def emit(
    rows: Sequence[Mapping[str, Any]],
    *,
    as_json: bool,
    nl: bool,
    document: Any = None,
    columns: Sequence[str] | None = None,
    title: str | None = None,
) -> None:
    """Print the answer on stdout.

    Args:
        rows: The answer as rows.
        as_json: Print ``document`` (the rows if None) as one JSON document.
        nl: Print one JSON object per row.
        document: The whole answer.
        columns: Columns of the table and their order; those of the first row if None.
        title: Printed above the table.
    """
    if as_json:
        click.echo(dump(list(rows) if document is None else document, indent=2))
        return
    if nl:
        for row in rows:
            click.echo(dump(row))
        return
    table(rows, columns=columns, title=title)


def dump(value: Any, indent: int | None = None) -> str:
    """JSON in which a number that is not finite is null.

    The document stays valid for every parser, and readable where stdout takes more than ASCII.
    """
    readable = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    return json.dumps(_plain(value), ensure_ascii=not readable, indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def silence(stream: TextIO) -> None:
    """Send what is written to a stream from now on to nobody; its reader has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def table(
    rows: Sequence[Mapping[str, Any]],
    *,
    columns: Sequence[str] | None = None,
    title: str | None = None,
) -> None:
    """A table on stdout; labels and names are printed as they are, never read as markup."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    names = list(columns or (rows[0] if rows else ()))
    width = None if sys.stdout.isatty() else 200
    grid = Table(box=box.SIMPLE_HEAD)
    for name in names:
        numeric = any(isinstance(r.get(name), (int, float)) for r in rows)
        grid.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(human(row.get(n), n)) for n in names))

    class Screen(Console):
        """A console that lets its caller decide what a closed pipe means."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    screen = Screen(width=width, highlight=False)
    if title or not names:
        # Not as the title of the table, which would be folded to the table's width.
        screen.print(Text(title or "nothing"), soft_wrap=True)
    if names:
        screen.print(grid)


def human(value: Any, name: str = "") -> str:
    """A value for people: bytes as KB and MB by the name of the column, numbers to four digits.

    Example:
        >>> human(23_400_000, "size_bytes"), human(0.123456), human(None)
        ('23.4 MB', '0.1235', '')
    """
    if value is None:
        return ""
    if isinstance(value, bool):  # a label among others, and printed as the data has it
        return str(value)
    if isinstance(value, (int, float)) and name.endswith("bytes"):
        return _bytes(float(value))
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(human(v) for v in value)
    return str(value)


def _bytes(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    for unit in ("B", "KB", "MB", "GB"):
        if abs(value) < 1000 or unit == "GB":
            return f"{value:.3g} {unit}"
        value /= 1000
    raise AssertionError("unreachable")


def floor_of(front: Any) -> dict[str, float]:
    """Test scores of the best answer that ignores the input, such as the majority class."""
    for member in front:
        found = {
            k.removeprefix("floor_"): v for k, v in member.test.items() if k.startswith("floor_")
        }
        if found:
            return found
    return {}


def front_rows(front: Any, *, test: bool = True) -> list[dict[str, Any]]:
    """Rows of a front for a table: index, method, objectives, test error with its interval."""
    rows = []
    for member in front:
        row: dict[str, Any] = {"#": str(member.index), "candidate": member.label}
        row |= {o.name: member.values[o.name] for o in front.objectives}
        row["fidelity"] = member.fidelity
        if test:
            for name, value in member.test.items():
                low, high = member.test.get(f"{name}_low"), member.test.get(f"{name}_high")
                if low is not None and high is not None:
                    row[name] = f"{value:.3f} [{low:.3f}, {high:.3f}]"
        rows.append(row)
    return rows
