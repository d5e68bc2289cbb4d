"""``lamps policy``: who decides what runs next."""

from __future__ import annotations

import click

from lamps.cli.output import emit, output_options


@click.group()
def policy() -> None:
    """List allocation policies."""


@policy.command(name="list")
@output_options
def list_(as_json: bool, nl: bool) -> None:
    """List all policies; the default is marked.

    \b
    Example:
      lamps policy list
    """  # noqa: D301
    from lamps import policy as policies

    rows = []
    for name in policies.names():
        cls = policies.load(name)
        rows.append(
            {
                "policy": name,
                "version": cls.version,
                "default": name == policies.DEFAULT,
                "summary": cls.summary,
            }
        )
    emit(rows, as_json=as_json, nl=nl)
