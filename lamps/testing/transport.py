"""Checks that problems and states travel between processes."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from lamps.method import Method, Problem
from lamps.plugins import plugin_path_of
from lamps.testing import tools

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


def _environment(method: Kind) -> dict[str, str]:
    path = plugin_path_of(method)
    return os.environ | ({"LAMPS_PLUGIN_PATH": path} if path else {})


_SCRIPT = """
import pickle, sys
from lamps.plugins import registry
from lamps.testing import tools
family, name, source, target = sys.argv[1:]
method = registry().load_method(family, name)
with open(source, "rb") as file:
    problem = pickle.load(file)
made = tools.fit_to(tools.make(method, problem), problem, problem.fidelities[:2])
with open(target, "wb") as file:
    pickle.dump(tools.stable(made.evaluate(problem), problem), file)
"""


def check_another_process_gives_the_same_numbers(method: Kind, problem: Problem) -> None:
    """A fresh interpreter that fits from scratch agrees bit for bit."""
    here = tools.stable(tools.walk(method, problem).measured[1], problem)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "problem.pickle", Path(folder) / "values.pickle"
        source.write_bytes(pickle.dumps(problem))
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT, method.spec.family, method.name(), source, target],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            env=_environment(method),
        )
        assert done.returncode == 0, f"the other process failed: {done.stderr[-400:]}"
        there = pickle.loads(target.read_bytes())
    tools.assert_same(there, here, "another process")
