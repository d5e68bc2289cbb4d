"""What a report tells about a run, as one JSON document."""

from __future__ import annotations

import json
import math
import platform
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from lamps.report.story import story
from lamps.runs import Run
from lamps.store import DecisionRecord, Trial
from lamps.store import Run as StoredRun
from lamps.types import Objective

DIGITS = 6
"""Significant digits of measured values; more would make the page larger, not better."""


def document(run: Run) -> dict[str, Any]:
    """Everything that the page shows.

    Args:
        run: The run; it may have no landmark yet.

    Returns:
        JSON values without NaN or infinities: what is not finite is None.
    """
    record, trials, decisions = run.record, run.trials(), run.decisions()
    front = {m.index for m in run.front()}
    return {
        "run": _about(record),
        "objectives": [_objective(o) for o in record.objectives],
        "front_objectives": list(record.front_objectives),
        "fidelities": list(record.fidelities),
        "unit": record.unit,
        "trials": [_trial(t, record, t.index in front) for t in trials],
        "progress": story(record, trials, decisions),
        "decisions": [_decision(d, record) for d in decisions],
        "failures": _failures(trials, decisions, record.fidelities),
        "models": [_model(m) for m in record.models],
        "card": plain(record.problem_card),
        "environment": {
            "lamps": str(record.settings.get("lamps", "unknown")),
            "report made with": f"Python {platform.python_version()}",
            "policy": f"{record.policy} (version {record.policy_version})",
            "backend": str(record.settings.get("backend", "unknown")),
            "workers": record.workers,
            "seed": record.seed,
            "artifacts": without_secrets(record.artifact_root),
            **{f"method {k}": f"version {v}" for k, v in sorted(record.method_versions.items())},
        },
        "command": reproduction(record),
    }


def plain(value: Any) -> Any:
    """JSON without NaN and infinities, which browsers do not read."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def without_secrets(url: str) -> str:
    """A URL without user and password."""
    return re.sub(r"(?<=://)[^/@]*@", "", url)


def rounded(value: float | None) -> float | None:
    """A number with `DIGITS` significant digits; None where there is none."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{DIGITS}g}")


def _about(record: StoredRun) -> dict[str, Any]:
    return {
        "name": record.name,
        "state": record.state,
        "note": record.note,
        "family": record.family,
        "problem": record.problem_name,
        "policy": record.policy,
        "created_at": record.created_at,
        "finished_at": record.finished_at,
        "wall_s": rounded(record.spent_wall_s),
        "cost_s": rounded(record.cost_wall_s),
        "n_trials": record.n_trials,
        "n_landmarks": record.n_evaluations,
        "counts": dict(record.counts),
    }


def _objective(objective: Objective) -> dict[str, Any]:
    return {
        "name": objective.name,
        "unit": objective.unit,
        "direction": objective.direction,
        "doc": objective.doc,
    }


def _trial(trial: Trial, record: StoredRun, on_front: bool) -> dict[str, Any]:
    names = [o.name for o in record.objectives]
    good = [e for e in trial.evaluations if e.state == "ok"]
    test = {**trial.test.values, **trial.test.signals} if trial.test else {}
    return {
        "index": trial.index,
        "label": trial.label,
        "method": trial.candidate.method,
        "params": plain(trial.candidate.params),
        "state": trial.state,
        "front": on_front,
        "finished": trial.landmark == len(record.fidelities) - 1,
        # One row a landmark: which one, seconds, then every objective in the run's order.
        "curve": [
            [
                e.landmark,
                rounded(e.cost.wall_s if e.cost else None),
                *(rounded(e.values.get(name)) for name in names),
            ]
            for e in good
        ],
        "test": {k: rounded(v) for k, v in sorted(test.items()) if isinstance(v, int | float)},
    }


def _decision(decision: DecisionRecord, record: StoredRun) -> list[Any]:
    took = None if decision.finished_at is None else decision.finished_at - decision.created_at
    return [
        decision.seq,
        decision.trial_index,
        decision.landmark,
        decision.policy,
        decision.state,
        round(decision.created_at - (record.started_at or record.created_at), 2),
        rounded(took),
        decision.note,
    ]


def _failures(
    trials: Sequence[Trial], decisions: Sequence[DecisionRecord], fidelities: Sequence[float]
) -> list[dict[str, Any]]:
    labels = {t.index: t.label for t in trials}
    return [
        {
            "seq": d.seq,
            "trial": d.trial_index,
            "label": labels[d.trial_index],
            "fidelity": fidelities[d.landmark],
            "state": d.state,
            "error": d.error or "no message",
        }
        for d in decisions
        if d.state in ("failed", "crashed")
    ]


def _model(model: Any) -> dict[str, Any]:
    return {
        "name": model.name,
        "kind": model.kind,
        "parameters": model.parameters,
        "licence": model.licence,
        "source": model.source,
        "sha256": model.sha256,
    }


def reproduction(record: StoredRun) -> str:
    """The command that makes an equal run, in the words in which it was asked for."""
    asked: Any = record.settings.get("asked")
    if asked is None:
        return f"lamps search: release {record.settings.get('lamps')} did not store what was asked"
    words = ["lamps", "search"]
    if asked["data"] is not None:
        words.append(asked["data"])
    words += _flag("problem", asked["problem"])
    for name, value in asked["options"].items():
        words += _flag(name, value)
    words += _flag("method", asked["methods"]) + _flag("model", asked["models"])
    for method, given in asked["params"].items():
        for name, value in given.items():
            words += ["--param", f"{method}.{name}={json.dumps(value)}"]
    samples = record.settings["samples"]
    words += _flag("samples", samples if samples != 1 else None)
    words += _flag("objective", record.front_objectives)
    bounds = record.budget
    words += _flag("budget", None if bounds.wall_s is None else f"{bounds.wall_s:g}s")
    words += _flag("device-budget", None if bounds.device_s is None else f"{bounds.device_s:g}s")
    words += _flag("max-landmarks", bounds.landmarks) + _flag("max-trials", bounds.trials)
    words += _flag("policy", record.settings["policy"])
    words += _flag("backend", record.settings["backend"])
    words += ["--workers", str(record.workers), "--seed", str(record.seed)]
    note = (
        "   # its candidates were listed one by one, from Python"
        if asked["own_candidates"]
        else ""
    )
    return shlex.join(words) + note


def _flag(name: str, value: Any) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if value is True:
        return [flag]
    if value is None or value is False:
        return []
    if isinstance(value, list | tuple):
        return [word for item in value for word in (flag, str(item))]
    return [flag, str(value)]
