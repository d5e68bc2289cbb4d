"""The live view of a search on stderr: a bar on a terminal, one line per landmark elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from lamps.cli.output import silence
from lamps.scheduler.progress import Listener, Progress
from lamps.types import Budget


def describe(progress: Progress) -> str:
    """The state of the search in one line."""
    counts = progress.counts
    text = (
        f"{counts.get('complete', 0)} finished, {counts.get('running', 0)} running, "
        f"{counts.get('paused', 0)} paused, {counts.get('waiting', 0)} waiting"
    )
    if counts.get("failed"):
        text += f", {counts['failed']} failed"
    text += f" · front {progress.front_size} · hv {progress.hypervolume:.4g}"
    return text + f" · {progress.spent.landmarks} landmarks, {progress.spent.wall_s:.0f} s"


@contextmanager
def live_view(budget: Budget, *, quiet: bool) -> Iterator[Listener | None]:
    """A listener that shows progress while the context is open; None when quiet."""
    if quiet:
        yield None
        return
    with _log_on_stderr():
        if sys.stderr.isatty():
            yield from _bar(budget)
        else:
            yield _lines()


@contextmanager
def _log_on_stderr() -> Iterator[None]:
    """What lamps says about the data, one line per sentence."""
    log, handler = logging.getLogger("lamps"), logging.StreamHandler()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def _lines() -> Listener:
    started = time.monotonic()

    def show(progress: Progress) -> None:
        if progress.event in ("decide", "start"):
            return
        head = f"[{time.monotonic() - started:6.1f} s] {progress.event}"
        if progress.trial >= 0:
            head += f" #{progress.trial}"
        if progress.landmark >= 0:
            head += f" landmark {progress.landmark}"
        if progress.error:
            head += f" ({progress.error})"
        try:
            print(f"{head} · {describe(progress)}", file=sys.stderr, flush=True)
        except BrokenPipeError:
            # Whoever watched has left; that is no reason to give the search up.
            silence(sys.stderr)

    return show


def _bar(budget: Budget) -> Iterator[Listener]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar
    from rich.text import Text

    console = Console(stderr=True)
    bounded = any(v is not None for v in budget.as_dict().values())
    with Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} % of budget" if bounded else ""),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task("starting", total=1.0 if bounded else None)

        def show(progress: Progress) -> None:
            bar.update(
                task, description=describe(progress), completed=min(progress.budget_used, 1.0)
            )
            if progress.event in ("failed", "crashed"):
                console.print(Text(f"#{progress.trial} {progress.event}: {progress.error}"))

        yield show
