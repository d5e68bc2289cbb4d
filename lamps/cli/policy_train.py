"""``lamps policy train``: the learned policy from landmark tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from lamps.cli.output import emit, maximize_option, output_options
from lamps.errors import ConfigError


@click.command()
@click.option(
    "--tables",
    multiple=True,
    metavar="DIR",
    help="More landmark tables than our own: a folder or file in long form (repeatable).",
)
@maximize_option
@click.option(
    "--out",
    default="lamps-policy.safetensors",
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File of weights to write.",
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where checkpoints lie.  [default: OUT with -training at its end]",
)
@click.option("--seed", default=0, show_default=True, help="Root of all randomness.")
@click.option("--iterations", type=int, help="Rollouts, each followed by its updates.")
@click.option("--synthetic", type=float, metavar="SHARE", help="Of made-up episodes, 0 to 1.")
@click.option(
    "--without",
    type=click.Choice(["extrapolation"]),
    help="Features that the network never sees.",
)
@click.option("--store", metavar="URL", help="Database in which the policy is registered.")
@output_options
def train(
    tables: Sequence[str],
    maximize: Sequence[str],
    out: Path,
    folder: Path | None,
    seed: int,
    iterations: int | None,
    synthetic: float | None,
    without: str | None,
    store: str | None,
    as_json: bool,
    nl: bool,
) -> None:
    """Train the learned policy on our own landmark tables and on those of --tables.

    Tables whose card keeps them out of training are left out. A training that was interrupted
    goes on from its last checkpoint when the same command is given again; the same seed, tables
    and versions give the same weights.

    \b
    Example:
      lamps policy train --tables curves/ --out mine.safetensors
    """  # noqa: D301
    from lamps.policy import material
    from lamps.policy.features import EXTRAPOLATION
    from lamps.policy.training import iterations_done, settings_of, train_weights

    if synthetic is not None and not 0 <= synthetic <= 1:
        raise ConfigError(f"--synthetic is {synthetic}, expected 0 to 1")
    if iterations is not None and iterations < 1:
        raise ConfigError(f"--iterations is {iterations}, expected 1 or more")
    settings = settings_of(
        seed=seed,
        iterations=iterations,
        synthetic=synthetic,
        blind=tuple(EXTRAPOLATION) if without else None,
    )
    found = material.gather(tables, maximize)
    found.extend(material.shipped(held_out=False))
    for line in found.left_out:
        click.echo(f"left out: {line}", err=True)
    usable = []
    for table in found.tables:
        if table.name in found.held_out:
            click.echo(f"left out: {table.name} is kept for the last evaluation", err=True)
        elif reason := material.unusable(table):
            click.echo(f"left out: {table.name}: {reason}", err=True)
        else:
            usable.append(table)
    place = folder or out.with_name(f"{out.stem}-training")
    done = iterations_done(place)
    click.echo(
        f"{len(usable)} tables of {len({t.family for t in usable})} families, "
        f"{settings.iterations} iterations"
        + (f", going on after {done} ({place})" if done else f", checkpoints in {place}"),
        err=True,
    )
    try:
        weights = train_weights(
            usable, settings, out, folder=place, say=lambda line: click.echo(line, err=True)
        )
    except KeyboardInterrupt:
        click.echo(
            f"interrupted; the checkpoint in {place} holds {iterations_done(place)} of "
            f"{settings.iterations} iterations, the same command goes on from there",
            err=True,
        )
        raise
    said = weights.metadata
    version = weights.sha256[:12]
    if store is not None:
        _register(store, version, weights.sha256, list(said["tables"]), said["training_score"])
    row = {
        "file": str(out),
        "version": version,
        "tables": len(usable),
        "parameters": sum(int(t.size) for t in weights.tensors.values()),
        "size_bytes": out.stat().st_size,
        "doubt": said["doubt"],
        **said["training_score"],
    }
    emit([row], as_json=as_json, nl=nl, document={**row, "metadata": dict(said)})


def _register(
    store: str, version: str, sha256: str, tables: list[dict[str, str]], score: dict[str, float]
) -> None:
    from lamps.store import Store

    with Store.open(store) as opened:
        if any((p.name, p.version) == ("lamps", version) for p in opened.policies()):
            return  # the same weights were registered before
        opened.add_policy(
            "lamps",
            version,
            weights_sha256=sha256,
            training_tables=[dict(t) for t in tables],
            score=score["time_to_99"],
        )
