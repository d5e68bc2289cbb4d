"""Call the command line in this process, as a shell would see it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from lamps.cli.main import cli, entry

PROGRAM = [sys.executable, "-m", "lamps"]


@dataclass(frozen=True, slots=True)
class Answer:
    """Exit code, stdout and stderr of one call."""

    code: int
    out: str
    err: str

    def document(self) -> Any:
        """The whole of stdout as one strict JSON document."""
        return strict_json(self.out)

    def lines(self) -> list[dict[str, Any]]:
        """Each line of stdout as one strict JSON object."""
        rows = [strict_json(line) for line in self.out.splitlines()]
        assert all(isinstance(row, dict) for row in rows)
        return rows


@dataclass(frozen=True, slots=True)
class Searched:
    """A store with two runs over one table: ``über`` (one of four candidates fails), ``rest``."""

    store: str
    curves: Path
    name: str = "über"


def strict_json(text: str) -> Any:
    """JSON as every parser understands it: without NaN and Infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def run(*arguments: str) -> Answer:
    """Run one command; what escapes as an exception is a bug and fails the test."""
    out, err = io.StringIO(), io.StringIO()
    code: Any = None
    with redirect_stdout(out), redirect_stderr(err):
        try:
            entry(list(arguments))
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int)
    return Answer(code, out.getvalue(), err.getvalue())


def process(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run one command as a real process."""
    return subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        check=False,
        **options,
    )


def commands(
    group: click.Group = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command and group below ``lamps``, with its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
