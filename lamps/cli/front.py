"""``lamps front``: show, filter, pick from, plot."""

from __future__ import annotations

from collections.abc import Sequence

import click

from lamps.cli.output import emit, floor_of, front_rows, output_options, store_option


@click.command()
@click.argument("run")
@click.option("--objective", "objectives", multiple=True, help="Draw it over these instead.")
@click.option(
    "--where", multiple=True, metavar="CONDITION", help="Such as 'latency_ms<5' (repeatable)."
)
@click.option("--pick", metavar="WEIGHTS", help="One member, such as 'val_error:2,latency_ms:1'.")
@click.option("--unfinished", is_flag=True, help="Let candidates count that stopped early.")
@click.option(
    "--plot",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Draw it into FILE (png, svg, pdf).",
)
@store_option
@output_options
def front(
    run: str,
    objectives: Sequence[str],
    where: Sequence[str],
    pick: str | None,
    unfinished: bool,
    plot: str | None,
    store: str | None,
    as_json: bool,
    nl: bool,
) -> None:
    """Show the Pareto front of RUN.

    \b
    Example:
      lamps front reviews --where 'latency_ms<5' --pick val_error:2,latency_ms:1
    """  # noqa: D301
    import lamps

    with lamps.open_store(store, create=False) as opened:
        found = opened.run(run)
        drawn = found.front(*objectives, where=list(where) or None, unfinished=unfinished)
        if plot:
            from lamps.plot import plot_front

            plot_front(drawn, found.members(unfinished=True), plot, title=run)
            click.echo(f"wrote {plot}", err=True)
        if pick is not None:
            member = drawn.pick(pick)
            rows = [r for r in front_rows(drawn) if r["#"] == str(member.index)]
            emit(
                [member.as_dict()] if nl else rows,
                as_json=as_json,
                nl=nl,
                document=member.as_dict(),
            )
            return
        rows = [m.as_dict() for m in drawn] if nl else front_rows(drawn)
        title = drawn.explain()
        if floor := floor_of(drawn):
            listed = ", ".join(f"{k} {v:.3f}" for k, v in floor.items())
            title += f"\nan answer that ignores the input has: {listed}"
        emit(rows, as_json=as_json, nl=nl, document=drawn.as_dict(), title=title)
