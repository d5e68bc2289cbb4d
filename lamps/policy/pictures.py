"""Figures of an evaluation: times with intervals, hypervolume over cost, ratios to the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lamps.errors import MissingExtra
from lamps.policy.summaries import grouped, summarise

if TYPE_CHECKING:
    from lamps.policy.results import Results

_COLOURS = {"lamps": "#c0392b", "oracle": "#222222", "exhaustive": "#999999"}
_OTHERS = ("#2e86c1", "#28a08a", "#d68910", "#7d5ba6", "#5d8a3a", "#a04000", "#5b6f7d")


def draw(found: Sequence[Results], folder: Path) -> list[Path]:
    """Draw all figures as PNG.

    Args:
        found: The evaluations.
        folder: Made if it is missing.

    Returns:
        The files; those for which there is nothing to draw are not among them.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtra("drawing a report", "matplotlib", "plot") from error
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with mpl.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        for name, paint in (
            ("time-to-99", _times),
            ("hypervolume-over-cost", _curves),
            ("ratio-to-oracle", _ratios),
        ):
            figure = paint(found)
            if figure is not None:
                file = folder / f"{name}.png"
                figure.savefig(file, dpi=110, metadata={"Software": None})
                written.append(file)
    return written


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _colour(policy: str, index: int) -> str:
    return _COLOURS.get(policy, _OTHERS[index % len(_OTHERS)])


def _times(found: Sequence[Results]) -> Any:
    """Mean time to 99 % with its interval, per policy and evaluation."""
    lines = [summarise(r.serial()) for r in found]
    height = 0.6 + 0.2 * max(map(len, lines))
    figure = _figure(4.6 * len(found), height)
    for number, (results, some) in enumerate(zip(found, lines, strict=True)):
        axes = figure.add_subplot(1, len(found), number + 1)
        some = sorted(some, key=lambda s: -s.mean["time_99"])
        mean = np.array([100 * s.mean["time_99"] for s in some])
        low, high = (100 * np.array([s.interval[i] for s in some]) for i in (0, 1))
        error = np.maximum([mean - low, high - mean], 0)
        colours = [_colour(s.policy.split(", ")[0], 0) for s in some]
        axes.barh(range(len(some)), mean, xerr=error, color=colours, alpha=0.85, height=0.7,
                  error_kw={"elinewidth": 0.8})  # fmt: skip
        axes.set_yticks(range(len(some)), [s.policy for s in some])
        axes.set_xlim(0, 100)
        axes.set_xlabel("mean time to 99 % of the optimum [% of exhaustive]")
        axes.set_title(results.title, fontsize=9)
    return figure


def _curves(found: Sequence[Results]) -> Any:
    """Share of the optimum over the exhaustive time, a panel per table."""
    curves = next((r.curves for r in found if r.curves), [])
    if not curves:
        return None
    tables = list(dict.fromkeys(c["table"] for c in curves))
    columns = min(3, len(tables))
    rows = -(-len(tables) // columns)
    figure = _figure(3.1 * columns, 2.3 * rows + 0.3)
    policies = list(dict.fromkeys(c["policy"] for c in curves))
    for number, name in enumerate(tables):
        axes = figure.add_subplot(rows, columns, number + 1)
        for curve in (c for c in curves if c["table"] == name):
            share = 100 * np.array(curve["share"])
            policy = curve["policy"]
            axes.plot(
                np.linspace(0, 100, len(share)), share, drawstyle="steps-post", label=policy,
                color=_colour(policy, policies.index(policy)),
                linewidth=1.8 if policy == "lamps" else 1.0,
                linestyle="--" if policy == "oracle" else "-",
            )  # fmt: skip
        axes.set_title(name, fontsize=8, parse_math=False)
        axes.set_ylim(50, 101)
        axes.set_xlabel("% of exhaustive time")
        axes.set_ylabel("% of best hypervolume")
        if number == 0:
            axes.legend(fontsize=6, frameon=False)
    return figure


def _ratios(found: Sequence[Results]) -> Any:
    """Per table, the time to 99 % over the oracle's; a dot each, the bar is the median."""
    results = next((r for r in found if r.kind == "task"), found[0])
    rows = grouped(results.serial(), lambda s: s.table)
    policies = [
        p
        for p in dict.fromkeys(s.policy for s in results.serial())
        if ", " not in p and p != "oracle"
    ]
    ratios = {
        p: [
            row[p] / max(row["oracle"], 1e-3) for row in rows.values() if {p, "oracle"} <= set(row)
        ]
        for p in policies
    }
    ratios = {p: r for p, r in ratios.items() if r}
    if not ratios:
        return None
    figure = _figure(0.55 * len(ratios) + 1.2, 3.0)
    axes = figure.add_subplot()
    rng = np.random.default_rng(0)  # spreads the dots sideways
    for number, (policy, some) in enumerate(ratios.items()):
        x = number + rng.uniform(-0.25, 0.25, len(some))
        axes.scatter(x, some, s=7, alpha=0.6, color=_colour(policy, 0), linewidths=0)
        axes.plot([number - 0.35, number + 0.35], [np.median(some)] * 2, color="black", lw=1.2)
    axes.axhline(1, color="0.6", lw=0.8, ls="--")
    axes.set_yscale("log")
    axes.set_ylabel("time to 99 % over the oracle's")
    axes.set_xticks(range(len(ratios)), list(ratios), rotation=45, ha="right")
    axes.set_title(results.title, fontsize=9)
    return figure
