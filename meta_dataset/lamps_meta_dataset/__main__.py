"""``python -m lamps_meta_dataset``: tasks as CSV, and the measurement of the meta-dataset."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import click

from lamps.errors import LampsError
from lamps_meta_dataset.tasks import TASKS, write_task


class _TaskFirst(click.Group):
    """Takes ``TASK FILE.csv`` as short for ``task TASK FILE.csv``."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in TASKS:
            args = ["task", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=_TaskFirst, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Real text classification tasks, and landmark tables measured on them."""


@main.command("list")
def list_tasks() -> None:
    """Every task with its package and licence."""
    for task in TASKS.values():
        mark = "held out" if task.held_out else ""
        click.echo(
            f"{task.name:20} {task.language:5} {task.what:10} {task.package:32} {mark:9} "
            f"{task.licence}"
        )


@main.command("task")
@click.argument("name", metavar="TASK")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.csv")
def write(name: str, file: Path) -> None:
    """Write all rows of TASK as FILE.csv with the columns text and label."""
    count = write_task(name, file)
    click.echo(f"{file}: {count} rows (licence: {TASKS[name].licence})", err=True)


_folder = click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path),
    default=Path("build/meta_dataset"), show_default=True,
    help="Where samples, caches and the database lie.",
)  # fmt: skip
_store = click.option("--store", default="", help="SQLAlchemy URL instead of a file in there.")


@main.command("build")
@click.option("--tasks", default="", help="Names with commas between; all by default.")
@_folder
@_store
def build_all(tasks: str, folder: Path, store: str) -> None:
    """Measure every candidate on every task; a second call goes on where the first ended."""
    from lamps_meta_dataset import build

    left = build.build([t for t in tasks.split(",") if t], build.Place(folder=folder, store=store))
    if left:
        raise LampsError(f"not finished: {', '.join(left)}; call build again, or see above why")


@main.command("measure")
@click.argument("name", metavar="TASK")
@_folder
@_store
def measure_one(name: str, folder: Path, store: str) -> None:
    """Measure one TASK in this process; `build` calls it."""
    from lamps_meta_dataset import build

    build.check_names([name])
    build.measure(name, build.Place(folder=folder, store=store))


@main.command("export")
@_folder
@_store
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), default=None,
    help="Another Parquet file than the one that ships.",
)  # fmt: skip
@click.option(
    "--clock", type=click.Choice(["wall", "cpu"]), default="wall", show_default=True,
    help="Whose seconds are the cost; those of the other are an objective.",
)  # fmt: skip
def export_all(folder: Path, store: str, out: Path | None, clock: Literal["wall", "cpu"]) -> None:
    """Write the tables of all finished tasks, and their card."""
    from lamps_meta_dataset import build, export
    from lamps_meta_dataset.data import FILE

    target = out or FILE
    place = build.Place(folder=folder, store=store)
    missing = export.export(place, target, clock=clock)
    click.echo(f"{target}: written" + (f"; not finished: {', '.join(missing)}" if missing else ""))


def entry() -> int:
    """Run the command line; errors of ours are one line and exit code 1."""
    try:
        main.main(prog_name="python -m lamps_meta_dataset", standalone_mode=False)
    except LampsError as error:
        click.echo(f"{type(error).__name__}: {error}", err=True)
        return 1
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(entry())
