"""``lamps model``: the pretrained models that families know."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from lamps.cli.output import emit, output_options
from lamps.errors import UnknownMethod


@click.group()
def model() -> None:
    """List, show and add pretrained models."""


def _catalogues(family: str | None) -> dict[str, Any]:
    from lamps.plugins import registry

    found = registry()
    names = [family] if family else sorted(found.families)
    catalogues = {name: found.load_family(name).models() for name in names}
    kept = {name: c for name, c in catalogues.items() if c is not None}
    if not kept:
        raise UnknownMethod("no installed family has a catalogue of models")
    return kept


def _row(family: str, info: Any) -> dict[str, Any]:
    return {"family": family, **dataclasses.asdict(info)}


@model.command(name="list")
@click.option("--family", help="Only the models of this family.")
@output_options
def list_(family: str | None, as_json: bool, nl: bool) -> None:
    """List all known models and whether they are at hand.

    \b
    Example:
      lamps model list
    """  # noqa: D301
    rows = [_row(name, info) for name, c in _catalogues(family).items() for info in c.list()]
    emit(
        rows,
        as_json=as_json,
        nl=nl,
        columns=[
            "name",
            "kind",
            "state",
            "parameters",
            "size_bytes",
            "n_layers",
            "licence",
            "source",
        ],
    )


@model.command()
@click.argument("name")
@click.option("--family", help="The family whose catalogue is meant.")
@output_options
def show(name: str, family: str | None, as_json: bool, nl: bool) -> None:
    """Show one model by NAME, folder or hub id.

    \b
    Example:
      lamps model show all-MiniLM-L6-v2
    """  # noqa: D301
    _print(name, family, as_json, nl)


@model.command()
@click.argument("name")
@click.option("--family", help="The family whose catalogue is meant.")
@output_options
def add(name: str, family: str | None, as_json: bool, nl: bool) -> None:
    """Convert the model NAME into the cache, from its installed package or the hub.

    \b
    Example:
      lamps model add bge-small-en-v1.5
    """  # noqa: D301
    _print(name, family, as_json, nl)


def _print(name: str, family: str | None, as_json: bool, nl: bool) -> None:
    catalogues = _catalogues(family)
    owner = next(
        (f for f, c in catalogues.items() if name in {i.name for i in c.list()}),
        next(iter(catalogues)),
    )
    row = _row(owner, catalogues[owner].resolve(name))
    if as_json or nl:
        emit([row], as_json=as_json, nl=nl, document=row)
    else:
        emit([{"field": k, "value": str(v)} for k, v in row.items()], as_json=False, nl=False)
