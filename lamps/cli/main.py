"""The command ``lamps``: subcommands load when used, errors become one line and an exit code.

Exit codes: 0 done, 1 a `LampsError`, 2 wrong usage, 3 finished with failed trials, 130 interrupted
and resumable.
"""

from __future__ import annotations

import functools
import io
import sys
import warnings
from importlib import import_module
from typing import Any

import click

from lamps import __version__
from lamps.errors import LampsError, LampsWarning, ProblemError
from lamps.scheduler.signals import terminated_like_interrupted

_COMMANDS = {
    "search": ("search:search", "Search a catalogue for the Pareto front of a problem."),
    "resume": ("search:resume", "Go on with an interrupted search."),
    "status": ("status:status", "List runs, or show how far one is."),
    "front": ("front:front", "Show, filter, pick from or plot the Pareto front of a run."),
    "report": ("report:report", "Write one HTML file about a run."),
    "compare": ("compare:compare", "Compare the fronts of two runs of one problem."),
    "export": ("export:export", "Write a fitted candidate where plain libraries can load it."),
    "predict": ("export:predict", "Answers of an exported candidate for new data."),
    "replicate": ("replicate:replicate", "Measure what a paper claims about a method."),
    "method": ("method:method", "List, show and check methods."),
    "kernel": ("kernel:kernel", "List and check kernels."),
    "model": ("model:model", "List, show and add pretrained models."),
    "policy": ("policy:policy", "List, train, compare and show allocation policies."),
    "table": ("table:table", "List, show, import, export and check landmark tables."),
    "store": ("store:store", "Upgrade and check a database."),
    "cluster": (
        "cluster:cluster",
        "Start nodes, run searches as jobs, and look whether all is well.",
    ),
}


class ReaderGone(Exception):
    """Nobody reads our output any more, as in ``lamps ... | head -1``."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, so that help is quick."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """The context of a call; ``--help`` prints here."""
        try:
            return super().make_context(*args, **kwargs)
        except BrokenPipeError as error:
            # click would end the process with exit code 1.
            raise ReaderGone from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was called."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderGone from error
        except EOFError as error:
            # click would take it for Ctrl-D at a prompt, and end with 130: interrupted.
            raise ProblemError(f"a file ends too early: {error}") from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Our commands in the order of a user's work, then those of plugins."""
        _with_plugins()
        return [*_COMMANDS, *sorted(set(self.commands) - set(_COMMANDS))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now."""
        if cmd_name in _COMMANDS:
            module, attribute = _COMMANDS[cmd_name][0].split(":")
            command = getattr(import_module(f"lamps.cli.{module}"), attribute)
            assert isinstance(command, click.Command)
            return command
        _with_plugins()
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One line per command, importing none of ours."""
        _with_plugins()
        rows = [(name, text) for name, (_, text) in _COMMANDS.items()]
        rows += [
            (name, command.get_short_help_str())
            for name, command in sorted(self.commands.items())
            if name not in _COMMANDS
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that was called, with a suggestion where there is none of that name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from lamps.errors import did_you_mean

            if args and not args[0].startswith("-"):
                names = self.list_commands(ctx)
                raise click.UsageError(
                    f"no command {args[0]!r}. {did_you_mean(args[0], names)}", ctx
                ) from error
            raise


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="lamps")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks.")
@click.pass_context
def cli(ctx: click.Context, verbose: bool) -> None:
    """Find the Pareto front of models and methods while training a small part of the catalogue.

    \b
    Example:
      lamps search reviews.csv --target label --budget 10m --name reviews
      lamps front reviews --pick val_error:2,latency_ms:1
    """  # noqa: D301
    ctx.obj = {"verbose": verbose}


@functools.cache
def _with_plugins() -> None:
    """Let hooks add commands, once, and only where the commands of plugins are asked for."""
    from lamps.plugins import hooks

    hooks().hook.lamps_register_commands(cli=cli)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Ours in one line on stderr; others' only where Python is asked to show them."""
    if issubclass(category, LampsWarning):
        click.echo(f"warning: {message}", err=True)


def entry(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    warnings.showwarning = _show_warning
    verbose = "-v" in (arguments or sys.argv) or "--verbose" in (arguments or sys.argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a name gets an escape in its place, as on stderr.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with terminated_like_interrupted():
            result = cli.main(args=arguments, prog_name="lamps", standalone_mode=False)
        code = result if isinstance(result, int) else 0
        sys.stdout.flush()
    except click.exceptions.Abort:
        code = 130
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except LampsError as error:
        if verbose:
            raise
        click.echo(f"{type(error).__name__}: {' '.join(str(error).split())}", err=True)
        code = 1
    except (ReaderGone, BrokenPipeError):
        from lamps.cli.output import silence

        silence(sys.stdout)
        code = 0
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
