"""Checks that a method touches nothing that is not its own."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from lamps.method import Method, Problem
from lamps.testing import tools

Kind = type[Method[Any, Any]]


def check_problem_is_untouched(method: Kind, problem: Problem) -> None:
    """Data and splits are after a full fit what they were before."""
    before, fingerprint = pickle.loads(pickle.dumps(problem)), problem.fingerprint()
    tools.fit_to(tools.make(method, problem), problem, problem.fidelities).evaluate(problem)
    assert problem.fingerprint() == fingerprint, "the problem was changed"
    # A fingerprint may be remembered, so the data itself is compared too.
    changed = _changed(before, problem, "problem", set())
    assert changed is None, f"{changed} was changed"


def _changed(before: Any, after: Any, where: str, seen: set[int]) -> str | None:
    """Where two object graphs differ; None where they do not.

    What was empty before may have been filled since: problems remember what they computed.
    """
    if id(before) in seen:
        return None
    pairs: Iterable[tuple[str, Any, Any]]
    if isinstance(before, (str, bytes, bool, int, float)):
        return where if before and before != after and before == before else None
    seen.add(id(before))
    if isinstance(before, np.ndarray) and not before.dtype.hasobject:
        return None if before.tobytes() == np.asarray(after).tobytes() else where
    if callable(getattr(before, "equals", None)):  # a table of pandas or Arrow
        return None if before.equals(after) else where
    if isinstance(before, Mapping):
        pairs = ((f"{where}[{k!r}]", v, after.get(k)) for k, v in before.items())
    elif isinstance(before, (list, tuple, np.ndarray)):
        if len(before) != len(after):
            return where
        pairs = ((f"{where}[{i}]", *p) for i, p in enumerate(zip(before, after, strict=True)))
    else:
        names = [*getattr(before, "__dict__", ()), *getattr(type(before), "__slots__", ())]
        pairs = (
            (f"{where}.{n}", getattr(before, n), getattr(after, n, None))
            for n in names
            if hasattr(before, n)
        )
    found = (_changed(a, b, name, seen) for name, a, b in pairs)
    return next((where for where in found if where), None)


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
    """File descriptor 1 and ``sys.stdout`` go to a file meanwhile: native code is seen too."""
    sys.stdout.flush()
    saved = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)

        def read() -> str:
            file.seek(0)
            return file.read().decode(errors="replace")

        # ``sys.stdout`` need not be descriptor 1: a notebook or a test runner has put its own there.
        writer = os.fdopen(os.dup(1), "w", buffering=1)
        try:
            with contextlib.redirect_stdout(writer):
                yield read
        finally:
            writer.close()
            os.dup2(saved, 1)
            os.close(saved)
