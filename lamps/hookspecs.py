"""Hooks of lamps, called through pluggy.

A *family* needs no hook: its entry point in the group ``lamps`` names a package, and the package's
files are its methods. Hooks are for the rest. A distribution registers an object or module with
hook implementations under an entry point of the group ``lamps.hooks``::

    from lamps.hookspecs import hookimpl

    @hookimpl
    def lamps_register_commands(cli):
        cli.add_command(my_command)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    import click

    from lamps.tables import Importer, LandmarkTable
    from lamps.types import Candidate, Evaluation

PROJECT = "lamps"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def lamps_register_commands(cli: click.Group) -> None:
    """Add commands to the command line; called once, before it is parsed."""


@hookspec
def lamps_register_policies() -> dict[str, Any]:
    """More allocation policies.

    Class by name. Each is a subclass of `lamps.policy.base.Policy`.
    """
    raise NotImplementedError


@hookspec
def lamps_report_landmark(
    run: str, candidate: Candidate, fidelity: float, evaluation: Evaluation | None, state: str
) -> None:
    """A landmark was committed to the store; ``evaluation`` is None where it failed."""


@hookspec
def lamps_register_table_importers() -> dict[str, Importer]:
    """More formats of landmark tables for ``lamps table import --format NAME``.

    Importer by name of the format; see `lamps.tables.Importer`.
    """
    raise NotImplementedError


@hookspec
def lamps_provide_tables(held_out: bool | None) -> list[LandmarkTable]:
    """Landmark tables that come with a package, for training and judging policies.

    ``held_out`` asks for those that are kept for the last evaluation (True), for all but those
    (False), or for all (None).
    """
    raise NotImplementedError
