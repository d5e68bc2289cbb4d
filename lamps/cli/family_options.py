"""Options that problem families add to ``lamps search``."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import click

from lamps import plugins
from lamps.method import ProblemOption

_KINDS: dict[str, Any] = {"str": str, "int": int, "float": float, "path": str}


def add_family_options(command: click.Command) -> None:
    """Give a command the options of all families.

    One that several families share is there once, with what each of them says about it. An option
    that would mean two things cannot be offered twice: the first keeps it, and stderr tells. Flags
    that the command has itself are never replaced; from Python such an option can still be given.
    """
    taken = {flag for p in command.params for flag in p.opts}
    shared: dict[str, list[tuple[str, ProblemOption]]] = {}
    for family, option in _declared():
        same = shared.setdefault(option.name, [])
        if same and _shape(same[0][1]) != _shape(option):
            click.echo(
                f"option --{_hyphens(option)} of family {family} is left out: that of family "
                f"{same[0][0]} takes other values",
                err=True,
            )
        elif f"--{_hyphens(option)}" not in taken:
            same.append((family, option))
    command.params += [_parameter(same) for same in shared.values() if same]


def _declared() -> Iterator[tuple[str, ProblemOption]]:
    """Family and option, in the order of the families."""
    for entry in plugins.registry().families.values():
        if not (entry.path / "_options.py").is_file():
            continue
        try:
            options = import_module(f"{entry.package}._options").OPTIONS
        except Exception as error:
            # A family whose options cannot be imported must not take the command away from the
            # others.
            click.echo(
                f"family {entry.name} is left out: {type(error).__name__}: {error}", err=True
            )
            continue
        for option in options:
            yield entry.name, option


def _shape(option: ProblemOption) -> tuple[Any, ...]:
    """What the command line must know of it."""
    return _KINDS.get(option.kind, option.kind), option.multiple, option.choices


def _hyphens(option: ProblemOption) -> str:
    return option.name.replace("_", "-")


def _parameter(same: list[tuple[str, ProblemOption]]) -> click.Option:
    option, flag = same[0][1], f"--{_hyphens(same[0][1])}"
    families: dict[str, list[str]] = {}
    for family, one in same:
        families.setdefault(one.doc, []).append(family)
    text = option.doc
    if len(families) > 1:
        text = " ".join(f"{', '.join(names)}: {doc}" for doc, names in families.items())
    if option.kind == "flag":
        return click.Option([flag], is_flag=True, default=None, help=text)
    kind = click.Choice(option.choices) if option.choices else _KINDS.get(option.kind)
    return click.Option([flag], type=kind, multiple=option.multiple, help=text)
