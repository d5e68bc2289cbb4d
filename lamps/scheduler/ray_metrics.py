"""What a search tells Ray's metrics: gauges and counters beside Ray's own, on the metrics port.

Ray puts ``ray_`` before each name and exports it from the node of the process that runs the
search, ten seconds late. Exact values are in the store; these are for watching.

Gauges, all with the tag ``run``: ``lamps_hypervolume`` (of the finished front up to the run's
reference point), ``lamps_front_size``, ``lamps_trials`` (also by ``state``),
``lamps_budget_used_ratio`` (largest used share of any bound), ``lamps_decision_ms`` (of the last
decision). Counters: ``lamps_landmarks_total`` (by ``outcome``), ``lamps_landmark_seconds_total``,
``lamps_failures_total`` (by ``error``, the class of what was raised).
"""

from __future__ import annotations

import re
from typing import Any

from lamps.scheduler.progress import Progress

GAUGES = {
    "lamps_hypervolume": "Volume of the finished front up to the reference point of the run.",
    "lamps_front_size": "Finished trials on the front.",
    "lamps_trials": "Trials by state.",
    "lamps_budget_used_ratio": "Largest used share of any bound of the budget, 0 to 1.",
    "lamps_decision_ms": "Milliseconds that the policy took for the last decision.",
}
COUNTERS = {
    "lamps_landmarks_total": "Landmarks that have ended, by outcome.",
    "lamps_landmark_seconds_total": "Seconds that landmarks have run.",
    "lamps_failures_total": "Landmarks that failed or crashed, by class of error.",
}
TAGS = {
    "lamps_trials": "state",
    "lamps_landmarks_total": "outcome",
    "lamps_failures_total": "error",
}
_CLASS = re.compile(r"([A-Z]\w*)(?=:|$)")


def error_class(line: str) -> str:
    """The class in the first line of an error, ``other`` where it names none.

    Example:
        >>> error_class("ValueError: k is 3"), error_class("in the worker: gone")
        ('ValueError', 'other')
    """
    found = _CLASS.match(line.strip())
    return found.group(1) if found else "other"


class RayMeter:
    """A listener that sets Ray's metrics; to be made when Ray is connected.

    Args:
        run: Name of the run, the tag ``run`` of every metric.
    """

    def __init__(self, run: str) -> None:
        from ray.util.metrics import Counter, Gauge

        self.run = run
        self._metrics: dict[str, Any] = {}
        for kind, names in ((Gauge, GAUGES), (Counter, COUNTERS)):
            for name, text in names.items():
                tags = ("run", TAGS[name]) if name in TAGS else ("run",)
                self._metrics[name] = kind(name, description=text, tag_keys=tags)

    def __call__(self, progress: Progress) -> None:
        """Take note of one change."""
        self._set("lamps_hypervolume", progress.hypervolume)
        self._set("lamps_front_size", progress.front_size)
        self._set("lamps_budget_used_ratio", progress.budget_used)
        for state, count in progress.counts.items():
            self._set("lamps_trials", count, state)
        if progress.event == "decide":
            self._set("lamps_decision_ms", progress.decision_s * 1000)
        if progress.event in ("ok", "failed", "crashed"):
            self._add("lamps_landmarks_total", 1.0, progress.event)
            if progress.landmark_s > 0:
                self._add("lamps_landmark_seconds_total", progress.landmark_s)
        if progress.event in ("failed", "crashed"):
            self._add("lamps_failures_total", 1.0, error_class(progress.error))

    def _tags(self, name: str, value: str) -> dict[str, str]:
        return {"run": self.run} | ({TAGS[name]: value} if name in TAGS else {})

    def _set(self, name: str, value: float, tag: str = "") -> None:
        self._metrics[name].set(float(value), tags=self._tags(name, tag))

    def _add(self, name: str, value: float, tag: str = "") -> None:
        self._metrics[name].inc(value, tags=self._tags(name, tag))
