"""What a live search was worth: times to 99 % of the optimal hypervolume, and at its own stop."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import lamps
from lamps import pareto

LEVELS = (0.99, 0.999, 1.0)


@dataclass(frozen=True, slots=True)
class Reference:
    """What the exhaustive search of a task has found.

    Args:
        home: Name of the folder of its settings.
        values: Objectives, minimised, of every candidate that was finished, by index.
        wall_s: Seconds that it took.
    """

    home: str
    values: Mapping[int, Sequence[float]]
    wall_s: float

    @classmethod
    def of(cls, run: lamps.Run, wall_s: float) -> Reference:
        """The reference that a finished exhaustive run gives."""
        names = [o.name for o in run.objectives]
        members = run.members()
        table = pareto.to_minimization(
            [[m.values[n] for n in names] for m in members], [o.direction for o in run.objectives]
        )
        return cls("", {m.index: v.tolist() for m, v in zip(members, table, strict=True)}, wall_s)

    def write(self, path: Path) -> None:
        """Keep it as JSON."""
        content = asdict(self) | {"home": path.parent.name}
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Reference:
        """What `write` kept."""
        found = json.loads(path.read_text(encoding="utf-8"))
        values = {int(k): v for k, v in found["values"].items()}
        return cls(found["home"], values, found["wall_s"])

    def share(self, finished: Collection[int]) -> float:
        """Hypervolume of finished candidates over the optimal one; exact."""
        everything = np.array(list(self.values.values()))
        bound = pareto.reference_point(everything)
        mine = [self.values[i] for i in finished if i in self.values]
        if not mine:
            return 0.0
        return pareto.hypervolume(mine, bound) / pareto.hypervolume(everything, bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One search against the reference of its task.

    Args:
        key: Settings, task and policy.
        wall_s: Seconds to 99, 99.9 and 100 %; None where not reached.
        device_s: CPU seconds to the same.
        exhaustive_wall_s: Seconds of the whole exhaustive search.
        exhaustive_device_s: Its CPU seconds; None until the exhaustive search is scored too.
        stop_s: Seconds at which the policy stopped by itself.
        stop_share: Share of the optimal hypervolume at that moment.
        stop_finished: Candidates that were finished by then.
        deciding_s: Seconds spent in the policy, and how often it had been asked for a landmark.
        landmarks: Landmarks that were run.
        failed: Landmarks that failed.
    """

    key: str
    task: str
    policy: str
    wall_s: list[float | None]
    device_s: list[float | None]
    total_wall_s: float
    total_device_s: float
    exhaustive_wall_s: float
    stop_s: float | None
    stop_share: float | None
    stop_finished: int
    deciding_s: float
    landmarks: int
    failed: int

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def score(
    task: str, policy: str, lines: Sequence[Mapping[str, Any]], reference: Reference, last: int
) -> Score:
    """The score that follows from the log of a search.

    Args:
        task: Its name.
        policy: Its name.
        lines: The log, see `live_policy.Watch`.
        reference: Of the task.
        last: Index of the last landmark.
    """
    done: set[int] = set()
    wall: list[float | None] = [None] * len(LEVELS)
    device: list[float | None] = [None] * len(LEVELS)
    stop: Mapping[str, Any] | None = None
    at_stop: tuple[float | None, int] = (None, 0)
    for line in lines:
        if line["event"] == "stop" and stop is None:
            stop, at_stop = line, (reference.share(done), len(done))
        if line["event"] == "ok" and line["landmark"] == last:
            done.add(line["trial"])
            value = reference.share(done)
            for k, level in enumerate(LEVELS):
                if wall[k] is None and value >= level - 1e-12:
                    wall[k], device[k] = line["t"], line["device_s"]
    return Score(
        key=f"{reference.home}/{policy}",
        task=task,
        policy=policy,
        wall_s=wall,
        device_s=device,
        total_wall_s=max(x["t"] for x in lines),
        total_device_s=max(x.get("device_s", 0.0) for x in lines),
        exhaustive_wall_s=reference.wall_s,
        stop_s=None if stop is None else stop["t"],
        stop_share=at_stop[0],
        stop_finished=at_stop[1],
        deciding_s=max(x["deciding_s"] for x in lines),
        landmarks=sum(x["event"] == "ok" for x in lines),
        failed=sum(x["event"] != "ok" and "trial" in x for x in lines),
    )


def show(scores: Sequence[Score]) -> None:
    """Print a table of all searches, and the means by policy, on stdout."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for column in ("task", "policy"):
        table.add_column(column)
    for column in (
        "to 99 %, s", "share of wall", "share of CPU", "at own stop", "share of wall",
        "deciding, s", "landmarks", "failed",
    ):  # fmt: skip
        table.add_column(column, justify="right")
    cpu = {s.task: s.total_device_s for s in scores if s.policy == "exhaustive"}
    shares: dict[str, list[float]] = {}
    for s in scores:
        to_99, cpu_99 = s.wall_s[0], s.device_s[0]
        if to_99 is not None:
            shares.setdefault(s.policy, []).append(to_99 / s.exhaustive_wall_s)
        of_cpu = None if cpu_99 is None or not cpu.get(s.task) else cpu_99 / cpu[s.task]
        table.add_row(
            s.task, s.policy, _number(to_99, "{:.0f}"),
            _number(to_99, "{:.1%}", s.exhaustive_wall_s), _number(of_cpu, "{:.1%}"),
            _number(s.stop_share, "{:.2%}"), _number(s.stop_s, "{:.1%}", s.exhaustive_wall_s),
            f"{s.deciding_s:.2f}", str(s.landmarks), str(s.failed),
        )  # fmt: skip
    if len({s.task for s in scores}) > 1:
        for policy, parts in shares.items():
            table.add_row("mean", policy, "", f"{math.fsum(parts) / len(parts):.1%}")
    Console(width=140).print(table)


def _number(value: float | None, form: str, whole: float = 1.0) -> str:
    return "—" if value is None else form.format(value / whole)
