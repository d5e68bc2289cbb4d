"""One figure of the bench table, and how it is printed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value against what was promised.

    Args:
        what: In words.
        value: Median.
        unit: Of value and goal.
        goal: The promise.
        at_least: Whether the value must reach the goal rather than stay below it.
        spread: Least and greatest repetition.
    """

    what: str
    value: float
    unit: str
    goal: float
    at_least: bool = False
    spread: tuple[float, float] = (float("nan"), float("nan"))
    note: str = ""

    @property
    def met(self) -> bool:
        """Whether the promise is kept."""
        return self.value >= self.goal if self.at_least else self.value <= self.goal

    def as_dict(self) -> dict[str, Any]:
        """The figure as JSON."""
        return asdict(self) | {"met": self.met}


def figure(what: str, values: Sequence[float], unit: str, goal: float, **more: Any) -> Figure:
    """The median of repetitions as a figure."""
    middle = statistics.median(values)
    return Figure(what, middle, unit, goal, spread=(min(values), max(values)), **more)


def timed(call: Callable[[], Any]) -> float:
    """Seconds of one call."""
    start = perf_counter()
    call()
    return perf_counter() - start


def show(figures: Sequence[Figure]) -> None:
    """Print the table on stdout."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for column in ("figure", "median", "least", "greatest", "goal", "met", "note"):
        table.add_column(column, justify="left" if column in ("figure", "note") else "right")
    for f in figures:
        sign = ">=" if f.at_least else "<="
        table.add_row(
            f.what,
            f"{f.value:.3g} {f.unit}",
            f"{f.spread[0]:.3g}",
            f"{f.spread[1]:.3g}",
            f"{sign} {f.goal:g} {f.unit}",
            "yes" if f.met else "NO",
            f.note,
        )
    Console(width=150).print(table)
