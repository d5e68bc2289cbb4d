"""Checks of what a method measures."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

from lamps.method import MEASURED_BY_WORKER, Method, Problem
from lamps.plugins import plugin_path_of
from lamps.scheduler.worker import LandmarkTask, run_landmark
from lamps.testing import tools

Kind = type[Method[Any, Any]]


def check_objectives_are_complete_and_finite(method: Kind, problem: Problem) -> None:
    """At every fidelity, every declared objective is measured and finite."""
    wanted = {o.name for o in problem.objectives} - set(MEASURED_BY_WORKER)
    measured = tools.walk(method, problem).measured
    for fidelity, evaluation in zip(problem.fidelities, measured, strict=True):
        values = evaluation.objectives
        assert wanted <= set(values), f"not measured: {sorted(wanted - set(values))}"
        bad = {k: v for k, v in values.items() if not math.isfinite(v)}
        assert not bad, f"not finite at fidelity {fidelity}: {bad}"


def check_evaluate_changes_nothing(method: Kind, problem: Problem) -> None:
    """Evaluating twice gives the same numbers: evaluate reads, never learns."""
    made = tools.fit_to(tools.make(method, problem), problem, problem.fidelities[:2])
    first = tools.stable(made.evaluate(problem), problem)
    tools.assert_same(first, tools.stable(made.evaluate(problem), problem), "evaluated again")


def check_cost_is_measured(method: Kind, problem: Problem) -> None:
    """A landmark reports positive seconds and bytes, and the objectives that the worker adds."""
    candidate = tools.first_candidate(method, problem)
    with tempfile.TemporaryDirectory() as folder:
        result = run_landmark(
            LandmarkTask(
                key=1,
                candidate=candidate,
                fidelity=problem.fidelities[1],
                seed=tools.SEED,
                target=f"{folder}/checkpoint.safetensors",
                plugin_path=plugin_path_of(method),
            ),
            problem,
        )
    assert result.kind == "ok", result.error
    assert result.cost is not None
    assert result.cost.wall_s > 0
    assert result.cost.peak_bytes > 0
    assert result.evaluation is not None
    assert set(result.evaluation.objectives) == {o.name for o in problem.objectives}


def check_saved_member_is_not_empty(method: Kind, problem: Problem) -> None:
    """Saving writes at least one file with content.

    And nothing outside the folder it was given.
    """
    made = tools.walk(method, problem).method
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "member"
        folder.mkdir()
        made.save(problem, folder)
        files = [p for p in folder.rglob("*") if p.is_file()]
        assert sum(p.stat().st_size for p in files) > 0, "nothing was saved"
        assert [p.name for p in Path(parent).iterdir()] == ["member"], "saved outside its folder"
