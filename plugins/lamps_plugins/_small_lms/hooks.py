"""What the small models add to lamps through hooks: the command ``lamps small-lms``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    import click

hookimpl = pluggy.HookimplMarker("lamps")


@hookimpl
def lamps_register_commands(cli: click.Group) -> None:
    """``lamps small-lms build`` and ``lamps small-lms list``."""
    from lamps_plugins._small_lms._cli import small_lms

    cli.add_command(small_lms)
