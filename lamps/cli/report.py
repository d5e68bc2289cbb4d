"""``lamps report``: one HTML file about a run."""

from __future__ import annotations

import click

from lamps.cli.output import emit, output_options, store_option


@click.command()
@click.argument("run")
@click.argument("out", type=click.Path(dir_okay=False))
@click.option("--overwrite", is_flag=True, help="Replace OUT if it is there.")
@store_option
@output_options
def report(
    run: str, out: str, overwrite: bool, store: str | None, as_json: bool, nl: bool
) -> None:
    """Write what happened in RUN into the self-contained HTML file OUT.

    It opens offline in any browser: the front for each pair of objectives, hypervolume over cost,
    landmark curves, decisions, failures, data, models, and the command to run it again.

    \b
    Example:
      lamps report reviews reviews.html
    """  # noqa: D301
    import lamps
    from lamps.report import write_report

    with lamps.open_store(store, create=False) as opened:
        path = write_report(opened.run(run), out, overwrite=overwrite)
    row = {"run": run, "file": str(path), "size_bytes": path.stat().st_size}
    emit([row], as_json=as_json, nl=nl, document=row)
