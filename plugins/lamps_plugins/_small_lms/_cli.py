"""``lamps small-lms``: train the small language models of built-in problems, and list them."""

from __future__ import annotations

import json

import click

from lamps_plugins._small_lms._specs import SPECS


@click.group(name="small-lms")
def small_lms() -> None:
    """Small language models that built-in problems of decoding and attention use.

    \b
    Example:
      lamps small-lms build stdlib
      lamps small-lms list --json
    """  # noqa: D301


@small_lms.command()
@click.argument("name", type=click.Choice(sorted(SPECS)))
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="Stop after so many.")
@click.option("--resume/--no-resume", default=True, show_default=True,
              help="Go on from what a stopped build left.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def build(name: str, minutes: float | None, resume: bool, as_json: bool) -> None:
    """Train a model; stopped, the same command goes on.

    \b
    Example:
      lamps small-lms build recall --minutes 10
    """  # noqa: D301
    from lamps_plugins._small_lms import _build

    place = _build.build(name, minutes=minutes, resume=resume)
    if as_json:
        click.echo(json.dumps({"name": name, "folder": place and str(place)}))
    elif place is None:
        click.echo(f"{name} is not ready yet; the same command goes on")
    else:
        click.echo(str(place))


@small_lms.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_(as_json: bool) -> None:
    """The models, whether they are built, and how good they are.

    \b
    Example:
      lamps small-lms list
    """  # noqa: D301
    from lamps_plugins._small_lms import _build

    rows = list(_build.listing())
    if as_json:
        click.echo(json.dumps({"models": rows}, indent=2))
        return
    for row in rows:
        click.echo(
            f"{row['name']:<14}{row['state']:<11}{row['steps']!s:>6} steps  {row['folder']}"
        )
