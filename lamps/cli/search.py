"""``lamps search`` and ``lamps resume``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import click

from lamps.cli.family_options import add_family_options
from lamps.cli.output import emit, floor_of, front_rows, output_options, store_option
from lamps.cli.progress import live_view
from lamps.config import parse_duration
from lamps.errors import ConfigError, LampsError
from lamps.policy import DEFAULT
from lamps.types import Budget


def budget_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The four bounds of a budget."""
    for flag, kind, text in (
        ("--max-trials", int, "Start at most this many candidates."),
        ("--max-landmarks", int, "Run at most this many landmarks."),
        ("--device-budget", str, "Spend at most this much CPU or GPU time, such as 2h."),
        ("--budget", str, "Spend at most this much time, such as 30m."),
    ):
        command = click.option(flag, type=kind, help=text)(command)
    return command


def make_budget(
    budget: str | None,
    device_budget: str | None,
    max_landmarks: int | None,
    max_trials: int | None,
) -> Budget | None:
    """The budget of the four flags; None if none was given."""
    if all(v is None for v in (budget, device_budget, max_landmarks, max_trials)):
        return None
    return Budget(
        wall_s=parse_duration(budget) if budget else None,
        device_s=parse_duration(device_budget) if device_budget else None,
        landmarks=max_landmarks,
        trials=max_trials,
    )


def parse_params(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """``METHOD.NAME=VALUE`` settings; values are JSON where they parse as such.

    Example:
        >>> parse_params(["lora.rank=16", "lora.model=bge"])
        {'lora': {'rank': 16, 'model': 'bge'}}
    """
    result: dict[str, dict[str, Any]] = {}
    for text in texts:
        target, equals, value = text.partition("=")
        method, dot, name = target.rpartition(".")
        if not (equals and dot and method and name):
            raise ConfigError(f"{text!r} is not of the form METHOD.NAME=VALUE")
        try:
            parsed = json.loads(value)
        except ValueError:
            parsed = value
        result.setdefault(method, {})[name] = parsed
    return result


@click.command(name="search")
@click.argument("data", required=False)
@click.option("--problem", metavar="FAMILY:NAME", help="A problem of another family.")
@click.option("--method", "methods", multiple=True, help="Only these methods (repeatable).")
@click.option(
    "--model", "models", multiple=True, help="Only these models: name, folder or hub id."
)
@click.option(
    "--param", "params", multiple=True, metavar="METHOD.NAME=VALUE", help="Fix a parameter."
)
@click.option(
    "--samples", type=int, default=1, show_default=True, help="Settings per method and model."
)
@click.option("--objective", "objectives", multiple=True, help="What the front is drawn over.")
@budget_options
@click.option("--policy", default=DEFAULT, show_default=True, help="Who decides what runs next.")
@click.option(
    "--backend",
    type=click.Choice(["ray", "local", "replay"]),
    default="ray",
    show_default=True,
    help="Where landmarks run: Ray tasks, this process, or a table in simulated time.",
)
@click.option(
    "--workers",
    type=int,
    help="Landmarks at once.  [default: one per core, here or of the cluster]",
)
@click.option("--address", help="A running Ray cluster: host:port, ray://..., or auto.")
@click.option(
    "--dashboard",
    is_flag=True,
    help="Serve Ray's dashboard on this machine; its address is printed.",
)
@click.option("--cpus", type=float, help="CPUs per landmark.  [default: as the method asks]")
@click.option("--gpus", type=float, help="GPUs per landmark; may be a fraction.")
@click.option("--memory", metavar="SIZE", help="Memory per landmark, such as 4GB.")
@click.option("--artifacts", metavar="URL", help="Where checkpoints go (any fsspec URL).")
@click.option("--plugins", "plugin_path", metavar="DIR", help="A folder with loose plugins.")
@click.option("--name", help="Name of the run.")
@click.option(
    "--or-resume",
    is_flag=True,
    help="Go on with the run of that name if there is one, asked for in the same words; budget, "
    "workers, backend and address may differ.",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Root of all randomness of the run."
)
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
@store_option
@output_options
def _search(
    data: str | None,
    params: Sequence[str],
    budget: str | None,
    device_budget: str | None,
    max_landmarks: int | None,
    max_trials: int | None,
    quiet: bool,
    as_json: bool,
    nl: bool,
    **given: Any,
) -> int:
    """Search the catalogue for the Pareto front of DATA or of --problem.

    \b
    Example:
      lamps search reviews.csv --target label --budget 10m --name reviews
    """  # noqa: D301
    import lamps

    if given["or_resume"] and not given["name"]:
        raise click.UsageError("--or-resume goes on with a run, so it needs --name")
    bounds = make_budget(budget, device_budget, max_landmarks, max_trials)
    options = {k: v for k, v in given.items() if v is not None and v != ()}
    with live_view(bounds or Budget(), quiet=quiet) as listener:
        run = lamps.search(
            data, params=parse_params(params), budget=bounds, listener=listener, **options
        )
    with run:
        return conclude(run, as_json=as_json, nl=nl, quiet=quiet)


class _Search(click.Command):
    """The search command, which learns the families' options when it is first used."""

    def _complete(self) -> None:
        if not getattr(self, "_completed", False):
            add_family_options(self)
            self._completed = True

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Our options and those of the families."""
        self._complete()
        return super().get_params(ctx)


search = _search
search.__class__ = _Search


@click.command()
@click.argument("run")
@budget_options
@click.option("--workers", type=int, help="Another number of landmarks at once.")
@click.option("--backend", type=click.Choice(["ray", "local", "replay"]), help="Another backend.")
@click.option("--address", help="Another Ray cluster.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
@store_option
@output_options
def resume(
    run: str,
    budget: str | None,
    device_budget: str | None,
    max_landmarks: int | None,
    max_trials: int | None,
    quiet: bool,
    as_json: bool,
    nl: bool,
    **given: Any,
) -> int:
    """Go on with RUN, which was interrupted, killed, or ended by its budget.

    A new budget counts from the beginning of the run, so it must exceed what was spent.

    \b
    Example:
      lamps resume reviews --budget 30m
    """  # noqa: D301
    import lamps

    bounds = make_budget(budget, device_budget, max_landmarks, max_trials)
    with live_view(bounds or Budget(), quiet=quiet) as listener:
        found = lamps.resume(run, budget=bounds, listener=listener, **given)
    with found:
        return conclude(found, as_json=as_json, nl=nl, quiet=quiet)


def conclude(run: Any, *, as_json: bool, nl: bool, quiet: bool) -> int:
    """Print the front of a run that has just ended, and give the exit code."""
    from lamps.scheduler.progress import all_failed_message

    outcome = run.outcome
    front = run.front()
    partial = not len(front)
    if partial:
        front = run.front(unfinished=True)
    record = run.record
    quoted = shlex.quote(run.name)
    document = {
        "run": run.name,
        "state": record.state,
        "reason": outcome.reason,
        "finished": outcome.n_complete,
        "failed": outcome.n_failed,
        "floor": floor_of(front),
        "front": front.as_dict(),
    }
    rows = [m.as_dict() for m in front] if nl else front_rows(front)
    title = f"{run.name}: {outcome.reason}\n{front!r}"
    if floor := floor_of(front):
        listed = ", ".join(f"{k} {v:.3f}" for k, v in floor.items())
        title += f"\nan answer that ignores the input has: {listed}"
    if partial and len(front):
        title += "\nno candidate was finished; these are the values of their last landmarks"
    emit(rows, as_json=as_json, nl=nl, document=document, title=title)
    if not quiet:
        click.echo(f"see: lamps front {quoted} · lamps status {quoted}", err=True)
    if outcome.ending == "interrupted":
        click.echo(f"interrupted; go on with: lamps resume {quoted}", err=True)
        return 130
    if outcome.n_failed and not len(run.front(unfinished=True)):
        raise LampsError(all_failed_message(run.trials()))
    return 3 if outcome.n_failed else 0
