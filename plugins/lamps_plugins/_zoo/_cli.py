"""``lamps zoo``: build the experts of built-in merging problems ahead of time, and list them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from lamps.types import Json

KINDS = ("full", "lora", "oft")
PROFILES = ("quick", "full", "toy")
COLUMNS = (
    "task", "kind", "profile", "seed", "steps", "seconds", "val_accuracy", "base_val_accuracy",
    "size_bytes",
)  # fmt: skip
"""What a table shows of an expert."""


@click.group()
def zoo() -> None:
    """Experts that the built-in merging problems consist of.

    \b
    Example:
      lamps zoo build --experts lora --tasks 4
      lamps zoo list --json
    """  # noqa: D301


@zoo.command()
@click.option(
    "--experts", type=click.Choice(KINDS), default="full", show_default=True,
    help="All weights, LoRA or OFT.",
)  # fmt: skip
@click.option(
    "--tasks", type=click.IntRange(2, 8), default=8, show_default=True, help="How many tasks."
)
@click.option(
    "--zoo-seed", type=click.IntRange(0), default=0, show_default=True, help="Of the training."
)
@click.option(
    "--profile", type=click.Choice(PROFILES), default="quick", show_default=True,
    help="How long experts are trained; toy makes tiny ones in seconds.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def build(experts: str, tasks: int, zoo_seed: int, profile: str, as_json: bool) -> None:
    """Train what is missing; interrupted, the same command goes on.

    \b
    Example:
      lamps zoo build --profile quick
    """  # noqa: D301
    from lamps_plugins._zoo import _build

    spec = _build.ZooSpec(kind=experts, n_tasks=tasks, seed=zoo_seed, profile=profile)
    made = _build.build(spec)
    places = {str(folder) for folder in made.experts.values()}
    rows = [row for row in _build.listing() if row["folder"] in places]
    _emit(rows, as_json=as_json, document={"base": str(made.base), "experts": rows})


@zoo.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_(as_json: bool) -> None:
    """The experts that are built, with their accuracy beside that of the base under their head.

    \b
    Example:
      lamps zoo list
    """  # noqa: D301
    from lamps_plugins._zoo import _build

    rows = list(_build.listing())
    _emit(rows, as_json=as_json, document={"experts": rows})


def _emit(rows: Sequence[dict[str, Json]], *, as_json: bool, document: Any) -> None:
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    table = [[name.replace("_", " ") for name in COLUMNS]]
    table += [[_shown(row.get(name)) for name in COLUMNS] for row in rows]
    widths = [max(len(line[i]) for line in table) for i in range(len(COLUMNS))]
    for line in table:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _shown(value: Json) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
