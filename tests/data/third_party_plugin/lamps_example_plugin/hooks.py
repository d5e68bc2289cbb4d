"""Hooks: a policy and a command."""

from __future__ import annotations

import click
import numpy as np
from numpy.typing import NDArray

from lamps.hookspecs import hookimpl
from lamps.policy.base import Action, Observation, Policy, nothing_left


class CheapestFirst(Policy):
    """Whoever has cost the least so far is next; every candidate to the end."""

    name = "cheapest-first"
    summary = "whoever has cost the least so far is next"

    def propose(self, observation: Observation, mask: NDArray[np.bool_]) -> Action:
        """The trial with the least seconds, then the smallest."""
        ready = np.flatnonzero(mask)
        if not len(ready):
            return nothing_left(observation)
        spent = np.nansum(observation.cost_s, axis=1)[ready]
        return int(ready[np.lexsort((observation.size_hint[ready], spent))[0]])


@hookimpl
def lamps_register_policies() -> dict[str, type[Policy]]:
    """One more policy."""
    return {CheapestFirst.name: CheapestFirst}


@click.command()
@click.option("--name", default="world", show_default=True, help="Whom to greet.")
def example(name: str) -> None:
    """Show that a plugin can add a command."""
    click.echo(f"hello {name}, from the example plugin")


@hookimpl
def lamps_register_commands(cli: click.Group) -> None:
    """One more command."""
    cli.add_command(example)
