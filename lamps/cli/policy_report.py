"""``lamps policy report``: evaluations as one page with figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from lamps.cli.output import emit, output_options


@click.command()
@click.argument(
    "results", nargs=-1, required=True, metavar="DIR_OR_JSON...", type=click.Path(path_type=Path)
)
@click.option(
    "--out",
    default="RESULTS.md",
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Page to write; its figures go into the folder figures beside it.",
)
@click.option(
    "--live",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Results of make bench-live, for a table of real searches.",
)
@output_options
def report(results: Sequence[Path], out: Path, live: Path | None, as_json: bool, nl: bool) -> None:
    """Write a page of tables and figures from the results of lamps policy evaluate.

    \b
    Example:
      lamps policy report build/results --out RESULTS.md
    """  # noqa: D301
    from lamps.policy.live_page import load_live
    from lamps.policy.results import load_results, write_report

    found = [one for path in results for one in load_results(path)]
    written = write_report(found, out, live=load_live(live) if live else ())
    rows = [{"file": str(path), "size_bytes": path.stat().st_size} for path in written]
    emit(rows, as_json=as_json, nl=nl)
