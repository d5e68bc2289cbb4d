"""Checks that a method touches nothing that is not its own."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from lamps.method import Method, Problem
from lamps.testing import tools

Kind = type[Method[Any, Any]]


def check_problem_is_untouched(method: Kind, problem: Problem) -> None:
    """Data and splits hash to the same value after a full fit as before."""
    before = problem.fingerprint()
    tools.fit_to(tools.make(method, problem), problem, problem.fidelities).evaluate(problem)
    assert problem.fingerprint() == before, "the problem was changed"


def check_test_split_stays_closed(method: Kind, problem: Problem) -> None:
    """Fitting and validating never read the test split, where the problem can tell."""
    copy = pickle.loads(pickle.dumps(problem))
    opened = getattr(copy, "test_opened", 0)
    made = tools.make(method, problem)
    candidate = tools.first_candidate(method, problem)
    from lamps.scheduler.worker import trial_stream

    for fidelity in problem.fidelities:
        made.partial_fit(copy, fidelity, rng=trial_stream(tools.SEED, candidate))
    made.evaluate(copy)
    assert getattr(copy, "test_opened", 0) == opened, "the test split was opened before the end"


def check_global_seeds_are_untouched(method: Kind, problem: Problem) -> None:
    """The global generators of random, NumPy and torch stand where they stood."""
    before = _global_states()
    tools.fit_to(tools.make(method, problem), problem, problem.fidelities[:2]).evaluate(problem)
    for name, state in _global_states().items():
        if name in before:
            assert state == before[name], f"the global generator of {name} was used"


def _global_states() -> dict[str, Any]:
    state: dict[str, Any] = {
        "random": random.getstate(),
        "numpy": pickle.dumps(np.random.get_state()),  # noqa: NPY002
    }
    if "torch" in sys.modules:
        state["torch"] = sys.modules["torch"].get_rng_state().tolist()
    return state


def check_stdout_stays_silent(method: Kind, problem: Problem) -> None:
    """Nothing is printed on stdout: it belongs to the answer."""
    with _captured() as read:
        tools.fit_to(tools.make(method, problem), problem, problem.fidelities[:2]).evaluate(
            problem
        )
        sys.stdout.flush()
        text = read()
    assert not text, f"printed on stdout: {text[:200]!r}"


@contextlib.contextmanager
def _captured() -> Iterator[Any]:
    """File descriptor 1 goes to a file meanwhile, so that native code is seen too."""
    sys.stdout.flush()
    saved = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)

        def read() -> str:
            file.seek(0)
            return file.read().decode(errors="replace")

        try:
            yield read
        finally:
            os.dup2(saved, 1)
            os.close(saved)
