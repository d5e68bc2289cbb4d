"""``lamps method``: what can be tried, and whether it keeps its promises."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from lamps import space
from lamps.cli.output import emit, output_options
from lamps.errors import PluginError


@click.group()
def method() -> None:
    """List, show and check methods."""


@method.command(name="list")
@click.option("--family", help="Only the methods of this family.")
@click.option("--plugins", "plugin_path", metavar="DIR", help="A folder with loose plugins.")
@output_options
def list_(family: str | None, plugin_path: str | None, as_json: bool, nl: bool) -> None:
    """List all methods by name, without importing any; name unusable plugins on stderr.

    \b
    Example:
      lamps method list --family text-classification
    """  # noqa: D301
    from lamps.plugins import registry

    found = registry(plugin_path)
    if family:
        found.family_entry(family)
    rows = [
        {"family": e.family, "method": e.name, "from": e.distribution, "version": e.version}
        for e in sorted(found.methods.values(), key=lambda e: (e.family, e.name))
        if family in (None, e.family)
    ]
    troubles = [
        {"name": t.name, "from": t.distribution, "reason": t.reason} for t in found.troubles
    ]
    emit(rows, as_json=as_json, nl=nl, document={"methods": rows, "unusable": troubles})
    for trouble in found.troubles:
        click.echo(f"unusable: {trouble}", err=True)


@method.command()
@click.argument("name")
@click.option("--plugins", "plugin_path", metavar="DIR", help="A folder with loose plugins.")
@output_options
def show(name: str, plugin_path: str | None, as_json: bool, nl: bool) -> None:
    """Show what NAME does, its paper, its tags and its parameters.

    \b
    Example:
      lamps method show lora
    """  # noqa: D301
    from lamps.plugins import registry

    found = registry(plugin_path)
    entry = found.find_method(name)
    cls = found.load_method(entry.family, entry.name)
    rows = [_parameter(k, hp, cls.Params) for k, hp in space.hyperparameters(cls.Params).items()]
    tags = [f.name for f in dataclasses.fields(cls.spec.tags) if getattr(cls.spec.tags, f.name)]
    document = {
        "method": entry.name,
        "family": entry.family,
        "version": cls.spec.version,
        "summary": cls.spec.summary,
        "paper": _paper(cls.spec.paper),
        "tags": tags,
        "expected_failures": dict(cls.spec.expected_failures),
        "params": rows,
    }
    title = f"{entry.family}/{entry.name} {cls.spec.version}: {cls.spec.summary}"
    if document["paper"]:
        title += f"\npaper: {document['paper']}"
    title += f"\ntags: {', '.join(tags) or 'none'}"
    emit(rows, as_json=as_json, nl=nl, document=document, title=title)


def _paper(paper: Any) -> str | None:
    if paper is None:
        return None
    parts = [paper.title, paper.venue, f"arXiv {paper.arxiv}" if paper.arxiv else None]
    return ", ".join(p for p in parts if p)


def _parameter(name: str, hp: space.Hyperparameter, params: type) -> dict[str, Any]:
    if hp.kind in ("real", "integer"):
        values = f"[{hp.low:g}, {hp.high:g}]{' log' if hp.log else ''}"
    else:
        values = ", ".join(map(str, hp.choices or hp.accepts))
    return {
        "param": name,
        "kind": hp.kind,
        "default": getattr(params(), name),
        "values": values,
        "doc": hp.doc,
    }


@method.command()
@click.argument("name")
@click.option("-k", "pattern", default="", help="Only checks whose name contains this.")
@click.option("--plugins", "plugin_path", metavar="DIR", help="A folder with loose plugins.")
@output_options
def check(name: str, pattern: str, plugin_path: str | None, as_json: bool, nl: bool) -> None:
    """Run the conformance suite on NAME, on its family's toy problem.

    \b
    Example:
      lamps method check curve-replay
    """  # noqa: D301
    from lamps.plugins import registry
    from lamps.testing import check_method

    found = registry(plugin_path)
    entry = found.find_method(name)
    cls = found.load_method(entry.family, entry.name)
    results = check_method(cls, on_failure="collect", pattern=pattern)
    rows = [{"check": r.name, "outcome": r.outcome, "detail": r.detail} for r in results]
    emit(rows, as_json=as_json, nl=nl)
    bad = [r for r in results if r.outcome in ("failed", "unexpected pass")]
    if bad:
        raise PluginError(
            f"{name}: {len(bad)} of {len(results)} checks failed: {bad[0].name}: {bad[0].detail}"
        )
