"""Real searches in the page of results: the table of ``make bench-live``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lamps.errors import ConfigError

REFERENCE = "exhaustive"
_NEEDED = (
    "key", "task", "policy", "wall_s", "device_s", "total_device_s", "exhaustive_wall_s", "stop_s",
    "stop_share", "landmarks", "failed",
)  # fmt: skip


def load_live(path: Path) -> list[dict[str, Any]]:
    """The scores that ``make bench-live`` has written, one a search.

    Raises:
        ConfigError: The file is not there, or is something else.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is no result of make bench-live: {error}") from error
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and all(name in row for name in _NEEDED) for row in rows
    ):
        raise ConfigError(f"{path} is no result of make bench-live; expected a list of scores")
    return rows


def live_rows(scores: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], list[list[str]]]:
    """Head and rows of the table, in percent of the exhaustive search of the same task.

    Mean rows stand last, over tasks whose reference has been run under the same settings.
    """
    head = (
        "settings", "task", "policy", "to 99 %, wall", "to 99 %, CPU", "found at own stop",
        "stops at, wall", "landmarks", "failed",
    )  # fmt: skip
    cpu = {_setting(s): s["total_device_s"] for s in scores if s["policy"] == REFERENCE}
    rows, shares = [], dict[tuple[str, str], list[float]]()
    for s in sorted(scores, key=lambda s: (_kind(s), s["task"])):
        wall, device, whole = s["wall_s"][0], s["device_s"][0], s["exhaustive_wall_s"]
        if wall is not None:
            shares.setdefault((_kind(s), s["policy"]), []).append(wall / whole)
        all_cpu = cpu.get(_setting(s))
        rows.append(
            [
                _kind(s),
                s["task"],
                s["policy"],
                _percent(wall, whole),
                _percent(device, all_cpu),
                _percent(s["stop_share"], 1.0),
                _percent(s["stop_s"], whole),
                str(s["landmarks"]),
                str(s["failed"]),
            ]
        )
    for (kind, policy), parts in shares.items():
        mean = math.fsum(parts) / len(parts)
        rows.append([kind, f"mean of {len(parts)}", policy, f"{100 * mean:.1f}", *[""] * 5])
    return head, rows


def _setting(score: Mapping[str, Any]) -> str:
    """Task and settings of a search: what it shares with its reference."""
    return Path(str(score["key"])).parent.name


def _kind(score: Mapping[str, Any]) -> str:
    return _setting(score).removeprefix(f"{score['task']}-")


def _percent(value: float | None, whole: float | None) -> str:
    return "-" if value is None or not whole else f"{100 * value / whole:.1f}"
