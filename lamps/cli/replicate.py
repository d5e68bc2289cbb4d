"""``lamps replicate``: what papers claim, measured again side by side with controls."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lamps.cli.output import emit, human, output_options, store_option
from lamps.replication import PROFILES

if TYPE_CHECKING:
    from lamps.replication_results import ClaimResult

_PAGE = "RESULTS.md"


@click.command()
@click.argument("method", required=False)
@click.option(
    "--profile",
    type=click.Choice(PROFILES),
    help="quick: minutes on one core; full: the figures of the results page.  [default: quick]",
)
@click.option(
    "--seed",
    "seeds",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="A seed (repeatable).  [default: those of the replication]",
)
@click.option(
    "--claim", "claims", multiple=True, metavar="ID", help="Only this claim (repeatable)."
)
@click.option("--again", is_flag=True, help="Measure anew what is stored, in its place.")
@click.option("--list", "list_", is_flag=True, help="List the methods that can be replicated.")
@click.option("--report", is_flag=True, help="Write a page of all stored results instead.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"Page that --report writes.  [default: {_PAGE}]",
)
@click.option("--plugins", "plugin_path", metavar="DIR", help="A folder with loose plugins.")
@click.option("--quiet", "-q", is_flag=True, help="No progress on stderr.")
@store_option
@output_options
def replicate(
    method: str | None,
    profile: str | None,
    seeds: Sequence[int],
    claims: Sequence[str],
    again: bool,
    list_: bool,
    report: bool,
    out: Path | None,
    plugin_path: str | None,
    quiet: bool,
    store: str | None,
    as_json: bool,
    nl: bool,
) -> int:
    """Measure the claims about METHOD beside their controls, one row per claim.

    A claim is held or not held where its whole 95 % interval lies on one side of the threshold,
    else undecided. Controls must fail; one that holds is flagged, and the exit code is 3. Every
    measurement is stored, and not repeated: an interrupted command goes on where it was.

    \b
    Example:
      lamps replicate lora --profile quick --seed 0 --seed 1
      lamps replicate --report --out plugins/RESULTS.md
    """  # noqa: D301
    chosen = sum((method is not None, list_, report))
    if chosen != 1:
        raise click.UsageError("give one of METHOD, --list and --report")
    if out is not None and not report:
        raise click.UsageError("--out goes with --report")
    if method is None and (profile or seeds or claims or again):
        raise click.UsageError("--profile, --seed, --claim and --again go with METHOD")
    if list_:
        _list(plugin_path, as_json, nl)
        return 0
    if report:
        _report(out or Path(_PAGE), store, as_json, nl)
        return 0
    assert method is not None
    return _measure(
        method,
        {
            "profile": profile or PROFILES[0],
            "seeds": seeds,
            "claims": claims,
            "again": again,
            "plugin_path": plugin_path,
            "store": store,
        },
        quiet=quiet,
        as_json=as_json,
        nl=nl,
    )


def _measure(method: str, asked: dict[str, Any], *, quiet: bool, as_json: bool, nl: bool) -> int:
    from lamps import api

    def say(line: str) -> None:
        if not quiet:
            click.echo(line, err=True)

    try:
        # Whatever foreign code prints, stdout carries the answer alone.
        with redirect_stdout(sys.stderr):
            result = api.replicate(method, say=say, **asked)
    except KeyboardInterrupt:
        click.echo(
            "interrupted: what was measured is stored, the same command goes on (without --again)",
            err=True,
        )
        raise
    rows = [c.as_dict() for c in result.claims]
    stored = result.stored
    title = (
        f"{stored.family}/{stored.method} {stored.method_version}, profile {stored.profile}: "
        f"{result.new} new measurements"
    )
    if as_json or nl:
        emit(rows, as_json=as_json, nl=nl, document=result.as_dict())
    else:
        emit([_row(c) for c in result.claims], as_json=False, nl=False, title=title)
    for broken in result.broken:
        click.echo(
            f"control broken: {broken} holds although it must not; the measurement tells nothing "
            "apart, do not believe the claims beside it",
            err=True,
        )
    return 3 if result.broken else 0


def _row(c: ClaimResult) -> dict[str, Any]:
    v = c.verdict
    interval = "" if math.isnan(v.low) else f"[{human(v.low)}, {human(v.high)}]"
    return {
        "claim": c.claim.id,
        "statement": c.claim.statement,
        "measured": c.claim.quantity,
        "value": human(v.value),
        "95% interval": interval,
        "over": v.basis if interval else "",
        "expected": ("not " if c.claim.control else "") + c.claim.expectation,
        "seeds": v.n_seeds,
        "pairs": v.n_pairs,
        "verdict": v.word,
    }


def _list(plugin_path: str | None, as_json: bool, nl: bool) -> None:
    from lamps.plugins import registry

    found = registry(plugin_path)
    rows = [
        {"family": e.family, "method": e.name, "from": e.distribution, "version": e.version}
        for e in sorted(found.replications.values(), key=lambda e: (e.family, e.name))
    ]
    emit(rows, as_json=as_json, nl=nl)
    for trouble in found.troubles:
        click.echo(f"unusable: {trouble}", err=True)


def _report(out: Path, store: str | None, as_json: bool, nl: bool) -> None:
    from lamps import api
    from lamps.errors import ConfigError

    text = api.replication_page(store=store)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror or error}") from error
    emit([{"file": str(out), "size_bytes": out.stat().st_size}], as_json=as_json, nl=nl)
