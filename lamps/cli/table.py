"""``lamps table``: landmark tables, from which policies learn and on which they are judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from lamps.cli.output import emit, maximize_option, output_options, store_option
from lamps.config import load_settings
from lamps.errors import ConfigError, LampsError, ProblemError, UnknownMethod, did_you_mean
from lamps.tables import BadRow, Imported, Importer, LandmarkTable, check_table, read_tables

Command = TypeVar("Command", bound=Callable[..., Any])
LONG = "long"


def tables_option(command: Command) -> Command:
    """``--tables DIR``."""
    return click.option(
        "--tables",
        metavar="DIR",
        help="Folder of tables.  [default: $LAMPS_TABLES or ~/.local/share/lamps/tables]",
    )(command)


def _folder(tables: str | None) -> Any:
    from lamps.tables.folder import TableFolder

    return TableFolder(load_settings({"tables": tables}).tables_folder())


def importers() -> dict[str, Importer]:
    """All importers that plugins registered, by the name of their format."""
    from lamps.plugins import hooks

    found: dict[str, Importer] = {}
    for some in hooks().hook.lamps_register_table_importers():
        found |= {name: importer for name, importer in some.items() if name not in found}
    return found


@click.group()
def table() -> None:
    """List, show, import, export and check landmark tables."""


def _row(file: Path, table: LandmarkTable) -> dict[str, Any]:
    return {
        "table": table.name,
        "family": table.family,
        "candidates": len(table.candidates),
        "landmarks": len(table.fidelities),
        "objectives": [f"{o.name} ({o.direction})" for o in table.objectives],
        "failed": int(table.failed.any(axis=1).sum()),
        "censored": int(table.censored.sum()),
        "file": file.name,
    }


@table.command(name="list")
@tables_option
@output_options
def list_(tables: str | None, as_json: bool, nl: bool) -> None:
    """List all tables of the folder.

    \b
    Example:
      lamps table list --tables curves/
    """  # noqa: D301
    folder = _folder(tables)
    rows = [_row(file, table) for file, table in folder.tables()]
    title = None if rows else f"no tables in {folder.path}; see lamps table import --help"
    emit(rows, as_json=as_json, nl=nl, title=title)


@table.command()
@click.argument("name")
@tables_option
@output_options
def show(name: str, tables: str | None, as_json: bool, nl: bool) -> None:
    """Show table NAME: its card, and every candidate at its last landmark.

    \b
    Example:
      lamps table show pythia/arc_easy
    """  # noqa: D301
    from lamps.tables.summary import candidate_rows, card_of

    file, found = _folder(tables).find(name)
    card = {**card_of(found), "file": str(file)}
    rows = candidate_rows(found)
    title = "\n".join(f"{key}: {_text(value)}" for key, value in card.items() if value != "")
    emit(rows, as_json=as_json, nl=nl, document={**card, "rows": rows}, title=title)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_text(v) for v in value)
    if isinstance(value, dict):
        return " ".join(_text(v) for v in value.values())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@table.command()
@output_options
def formats(as_json: bool, nl: bool) -> None:
    """List the layouts that can be imported.

    \b
    Example:
      lamps table formats
    """  # noqa: D301
    rows = [{"format": LONG, "reads": "the long form", "expects": ".csv, .csv.gz, .parquet"}]
    rows += [
        {"format": name, "reads": importer.summary, "expects": importer.expects}
        for name, importer in sorted(importers().items())
    ]
    emit(rows, as_json=as_json, nl=nl)


@table.command(name="import")
@click.argument("source", metavar="FILE_OR_DIR", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "layout",
    default=LONG,
    show_default=True,
    metavar="NAME",
    help="Layout of the source; lamps table formats lists them.",
)
@maximize_option
@click.option("--family", metavar="NAME", help="Family of the problems.")
@click.option("--name", metavar="NAME", help="Name of the file that is written.")
@click.option("--replace", "replace_", is_flag=True, help="Replace other tables of that name.")
@tables_option
@output_options
def import_(
    source: Path,
    layout: str,
    maximize: Sequence[str],
    family: str | None,
    name: str | None,
    replace_: bool,
    tables: str | None,
    as_json: bool,
    nl: bool,
) -> None:
    """Import landmark tables from FILE_OR_DIR into the folder of tables.

    The layout "long" is CSV, CSV.gz or Parquet with one row per candidate and landmark: columns
    problem (else the file's name), candidate, fidelity, elapsed_s (seconds of this candidate up to
    and including the landmark), then one column per objective, minimised unless named with
    --maximize. Optional: family, seed, size, unit, peak_bytes, state (ok or failed).

    Bad rows are listed with their lines and left out with what depends on them; the rest is
    imported. Importing the same again changes nothing.

    \b
    Example:
      lamps table import curves.csv --maximize accuracy --family vision
    """  # noqa: D301
    known = {LONG: None, **importers()}
    if layout not in known:
        raise UnknownMethod(f"no table format {layout!r}. {did_you_mean(layout, known)}")
    if not source.exists():
        raise ProblemError(f"no file or folder {str(source)!r} to import")
    imported = _read(source, layout, known[layout], maximize)
    for bad in imported.bad:
        click.echo(f"left out: {f'{bad.file}: ' if bad.file else ''}{bad}", err=True)
    for note in imported.notes:
        click.echo(f"note: {note}", err=True)
    if not imported.tables:
        raise ProblemError(f"nothing was imported: {len(imported.bad)} bad rows, no good table")
    found = [replace(t, family=family or t.family) for t in imported.tables]
    target = name or (_stem(source) if layout == LONG else layout)
    folder = _folder(tables)
    state = folder.add(target, found, {"imported_as": layout}, replace=replace_)
    file = folder.path / f"{target}.parquet"
    rows = [_row(file, t) for t in found]
    document = {
        "state": state,
        "file": str(file),
        "tables": rows,
        "bad_rows": [_bad(b) for b in imported.bad],
        "notes": imported.notes,
    }
    emit(
        rows,
        as_json=as_json,
        nl=nl,
        document=document,
        title=f"{state}: {len(found)} tables, {len(imported.bad)} bad rows, {file}",
    )


def _read(
    source: Path, layout: str, importer: Importer | None, maximize: Sequence[str]
) -> Imported:
    if importer is None:
        found, bad = read_tables(source, maximize=maximize, on_bad="list")
        origin = f"imported from {source.name}"
        return Imported([replace(t, source=t.source or origin) for t in found], bad)
    if maximize:
        raise ConfigError(
            f"--maximize is for --format {LONG}; {layout!r} knows its directions by itself"
        )
    return importer.read(source)


def _stem(source: Path) -> str:
    name = source.resolve().name if source.is_dir() else source.name
    return name.removesuffix(".gz").removesuffix(".csv").removesuffix(".parquet")


def _bad(bad: BadRow) -> dict[str, Any]:
    return {
        "file": bad.file,
        "line": bad.line,
        "problem": bad.problem,
        "candidate": bad.candidate,
        "reason": bad.reason,
    }


@table.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.argument("out", metavar="OUT.parquet", type=click.Path(dir_okay=False, path_type=Path))
@store_option
@output_options
def export(runs: Sequence[str], out: Path, store: str | None, as_json: bool, nl: bool) -> None:
    """Write the landmarks of stored RUNs as tables, from which a policy can be trained.

    Candidates that were stopped early are kept as censored curves, failed ones as failed.

    \b
    Example:
      lamps table export reviews tweets searches.parquet
    """  # noqa: D301
    import lamps
    from lamps.tables import write_tables

    twice = [r for r in runs if runs.count(r) > 1]
    if twice:
        raise ConfigError(f"run {twice[0]!r} was named twice; each can be exported once")
    with lamps.open_store(store, create=False) as opened:
        found = [opened.run(name).landmark_table() for name in runs]
    write_tables(out, found, {"exported_from": "stored runs"})
    rows = [_row(out, t) for t in found]
    document = {"file": str(out), "tables": rows}
    emit(rows, as_json=as_json, nl=nl, document=document, title=f"wrote {out}")


@table.command()
@click.argument("source", metavar="FILE_OR_NAME")
@maximize_option
@tables_option
@output_options
def check(
    source: str, maximize: Sequence[str], tables: str | None, as_json: bool, nl: bool
) -> None:
    """Say everything that is odd about tables: a file, a folder, or a table of the folder.

    \b
    Example:
      lamps table check curves.csv --maximize accuracy
    """  # noqa: D301
    rows: list[dict[str, Any]] = []
    if Path(source).exists():
        found, bad = read_tables(source, maximize=maximize, on_bad="list")
        for row in bad:
            where = f"{row.file} line {row.line}"
            rows.append(
                {"level": "error", "table": row.problem, "finding": f"{where}: {row.reason}"}
            )
    else:
        found = [_folder(tables).find(source)[1]]
    for table in found:
        for finding in check_table(table):
            rows.append({"level": finding.level, "table": finding.table, "finding": finding.text})
    errors = sum(row["level"] == "error" for row in rows)
    title = f"{len(found)} tables, {len(rows)} findings, {errors} errors"
    document = {"tables": [t.name for t in found], "errors": errors, "findings": rows}
    emit(rows, as_json=as_json, nl=nl, document=document, title=title)
    if errors or not found:
        raise _failed(source, errors)


def _failed(source: str, errors: int) -> LampsError:
    return ProblemError(f"{source}: {errors} errors, see above")
