"""Checks that problems and states travel between processes."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any

from lamps.method import Method, Problem
from lamps.testing import tools
from lamps.testing.other_process import measure_elsewhere

Kind = type[Method[Any, Any]]


def check_problem_survives_pickling(method: Kind, problem: Problem) -> None:
    """A problem that went through pickle has the same fingerprint and the same fidelities."""
    copy = pickle.loads(pickle.dumps(problem))
    assert copy.fingerprint() == problem.fingerprint()
    assert copy.fidelities == problem.fidelities


def check_state_survives_a_checkpoint(method: Kind, problem: Problem) -> None:
    """A method restored from the bytes of a checkpoint measures what the first one measured."""
    made = tools.fit_to(tools.make(method, problem), problem, problem.fidelities[:2])
    twin = tools.through_checkpoint(made, problem)
    assert twin.fidelity_ == made.fidelity_
    tools.assert_same(
        tools.stable(twin.evaluate(problem), problem),
        tools.stable(made.evaluate(problem), problem),
        "restored",
    )


def check_another_process_gives_the_same_numbers(method: Kind, problem: Problem) -> None:
    """A fresh interpreter that fits from scratch agrees bit for bit."""
    here = tools.stable(tools.walk(method, problem).measured[1], problem)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "problem.pickle", Path(folder) / "values.pickle"
        source.write_bytes(pickle.dumps(problem))
        measure_elsewhere(method, source, target)
        there = pickle.loads(target.read_bytes())
    tools.assert_same(there, here, "another process")
