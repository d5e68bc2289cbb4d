"""The picture of a front: one panel per pair of objectives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lamps.errors import ConfigError, MissingExtra
from lamps.front import Front, Member
from lamps.types import Objective


def plot_front(
    front: Front, everything: Sequence[Member], path: str | Path, *, title: str = ""
) -> None:
    """Draw a front into a PNG, SVG or PDF file.

    Args:
        front: The members that are drawn as the front.
        everything: All candidates, drawn in grey behind the front.
        path: File to write; its suffix is the format.
        title: Above the panels.

    Raises:
        ConfigError: The front is empty, has one objective, or the format is unknown.
        MissingExtra: matplotlib is not installed.
    """
    if len(front.objectives) < 2:
        raise ConfigError("a picture needs two objectives or more")
    if not len(front):
        raise ConfigError("the front is empty, there is nothing to draw")
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtra("drawing a front", "matplotlib", "plot") from error
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    first, *others = front.objectives
    with mpl.rc_context({"font.size": 9, "svg.fonttype": "none"}):
        figure = Figure(figsize=(5.4 * len(others), 4.2), layout="constrained")
        FigureCanvasAgg(figure)
        for number, other in enumerate(others):
            axes = figure.add_subplot(1, len(others), number + 1)
            _panel(axes, front, everything, other, first, named=number == 0)
        figure.suptitle(title, parse_math=False)
        try:
            figure.savefig(path, dpi=150)
        except (ValueError, OSError) as error:
            line = " ".join(str(error).split())
            raise ConfigError(f"cannot draw into {path}: {line}") from error


def _panel(
    axes: Any,
    front: Front,
    everything: Sequence[Member],
    x: Objective,
    y: Objective,
    *,
    named: bool,
) -> None:
    on_front = {m.index for m in front}
    pool = np.array(
        [[m.values[x.name], m.values[y.name]] for m in everything if m.index not in on_front]
    )
    if len(pool):
        axes.scatter(*pool.T, s=16, color="0.75", label="other candidates", zorder=1)
    points = np.array([[m.values[x.name], m.values[y.name]] for m in front])
    axes.scatter(*points.T, s=34, color="#c0392b", label="front", zorder=3)
    for member, (px, py) in zip(front, points, strict=True):
        axes.annotate(
            f"#{member.index}" + (f" {member.candidate.method}" if named else ""),
            (px, py),
            xytext=(4, 4),
            textcoords="offset points",
            fontsize=7,
            parse_math=False,
        )
    positive = points[:, 0] > 0
    if positive.all() and points[:, 0].max() > 20 * points[:, 0].min():
        axes.set_xscale("log")
    axes.set_xlabel(f"{x.name} [{x.unit}]", parse_math=False)
    axes.set_ylabel(f"{y.name} [{y.unit}]", parse_math=False)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
