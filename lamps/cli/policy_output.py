"""Tables of ``lamps policy``: percentages for people, one line per policy and workers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lamps.policy.summaries import Summary


def percent(value: float) -> str:
    """A share in percent; empty where there is none.

    Example:
        >>> percent(0.2345), percent(float("nan"))
        ('23.4', '')
    """
    return "" if math.isnan(value) else f"{100 * value:.1f}"


def summary_rows(found: Iterable[Summary]) -> list[dict[str, Any]]:
    """One line per policy and workers: times in percent of the exhaustive time."""
    return [
        {
            "policy": s.policy,
            "workers": s.workers,
            "cases": s.cases,
            "99%": percent(s.mean["time_99"]),
            "median": percent(s.median["time_99"]),
            "worst": percent(s.worst["time_99"]),
            "99.9%": percent(s.mean["time_999"]),
            "100%": percent(s.mean["time_100"]),
            "zero 99%": percent(s.mean["zero_99"]),
            "area": percent(s.mean["area"]),
            "stop value": percent(s.mean["stop_value"]),
            "least": percent(s.worst["stop_value"]),
            "stop time": percent(s.mean["stop_time"]),
            "x oracle": _ratio(s.to_oracle),
            "x best rule": _ratio(s.to_best_simple),
            ">1.1": s.worse_by,
            "ms": f"{s.mean['decision_ms']:.2f}",
            "worst table": s.worst_table,
        }
        for s in found
    ]


def _ratio(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2f}"
