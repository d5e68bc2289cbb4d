"""``lamps store``: the database itself."""

from __future__ import annotations

import json

import click

from lamps.cli.output import store_option
from lamps.config import load_settings
from lamps.errors import StoreError


@click.group()
def store() -> None:
    """Upgrade and check a database."""


@store.command()
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def upgrade(store: str | None, as_json: bool) -> None:
    """Bring the schema of the database to this release.

    \b
    Example:
      lamps store upgrade --store sqlite:///lamps.db
    """  # noqa: D301
    from lamps.store import Store

    before, after = Store.upgrade(load_settings({"store": store}).store)
    if as_json:
        click.echo(json.dumps({"before": before, "after": after}))
    elif before == after:
        click.echo(f"already at schema {after}")
    else:
        click.echo(f"upgraded from schema {before or 'nothing'} to {after}")


@store.command()
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def check(store: str | None, as_json: bool) -> None:
    """Look for damage: broken files, orphan rows, trials in impossible states.

    \b
    Example:
      lamps store check
    """  # noqa: D301
    from lamps.store import Store

    with Store.open(load_settings({"store": store}).store) as opened:
        found = opened.check()
    if as_json:
        click.echo(json.dumps({"problems": found}, ensure_ascii=False, indent=2))
    elif not found:
        click.echo("no problems found")
    if found:
        raise StoreError(f"{len(found)} problems: " + "; ".join(found))
