"""``lamps export`` and ``lamps predict``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from lamps.cli.output import emit, output_options, store_option
from lamps.errors import ProblemError


@click.command()
@click.argument("run")
@click.argument("candidate", type=int)
@click.argument("directory", type=click.Path(file_okay=False))
@click.option("--overwrite", is_flag=True, help="Replace a folder that has content.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@store_option
def export(
    run: str, candidate: int, directory: str, overwrite: bool, as_json: bool, store: str | None
) -> None:
    """Write CANDIDATE (its number on the front) of RUN into DIRECTORY.

    \b
    Example:
      lamps export reviews 7 best-model
    """  # noqa: D301
    import lamps

    with lamps.open_store(store, create=False) as opened:
        path = opened.run(run).export(candidate, directory, overwrite=overwrite)
    files = sorted(p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file())
    if as_json:
        click.echo(json.dumps({"directory": str(path), "files": files}, indent=2))
    else:
        click.echo(str(path))


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("data", type=click.Path(path_type=Path))
@click.option(
    "--text", help="Column that holds the input.  [default: as in training, else detected]"
)
@output_options
def predict(directory: Path, data: Path, text: str | None, as_json: bool, nl: bool) -> None:
    """Answer each row of DATA with the member that was exported to DIRECTORY.

    \b
    Example:
      lamps predict best-model new.csv --nl
    """  # noqa: D301
    from lamps.plugins import registry

    card = directory / "lamps.json"
    try:
        family = json.loads(card.read_text(encoding="utf-8"))["family"]
    except (OSError, ValueError, KeyError) as error:
        raise ProblemError(
            f"{directory} is no exported member ({card.name}: {error}); make one with: "
            "lamps export RUN N DIR"
        ) from error
    options: dict[str, Any] = {"text": text} if text else {}
    rows = list(registry().load_family(family).predict(directory, data, options))
    table = [{k: v for k, v in row.items() if not isinstance(v, dict)} for row in rows]
    emit(table if not (as_json or nl) else rows, as_json=as_json, nl=nl)
