"""What the zoo adds to lamps through hooks: the command ``lamps zoo``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    import click

hookimpl = pluggy.HookimplMarker("lamps")


@hookimpl
def lamps_register_commands(cli: click.Group) -> None:
    """``lamps zoo build`` and ``lamps zoo list``."""
    from lamps_plugins._zoo._cli import zoo

    cli.add_command(zoo)
