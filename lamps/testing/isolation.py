"""Checks that a method touches nothing that is not its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from lamps.method import Method, Problem
from lamps.testing import tools

Kind = type[Method[Any, Any]]


def check_problem_is_untouched(method: Kind, problem: Problem) -> None:
    """Data and splits are after a full fit what they were before."""
    used = tools.walk(method, problem).problem
    assert used.fingerprint() == problem.fingerprint(), "the problem was changed"
    # A fingerprint may be remembered, so the data itself is compared too.
    changed = _changed(problem, used, "problem", set())
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
    opened = getattr(tools.walk(method, problem).problem, "test_opened", 0)
    assert opened == getattr(problem, "test_opened", 0), "the test split was opened before the end"


def check_global_seeds_are_untouched(method: Kind, problem: Problem) -> None:
    """The global generators of random, NumPy and torch stand where they stood."""
    states = tools.walk(method, problem).generators
    for before, after in itertools.pairwise(states):
        for name, state in before.items():
            assert state == after[name], f"the global generator of {name} was used"


def check_stdout_stays_silent(method: Kind, problem: Problem) -> None:
    """Nothing is printed on stdout: it belongs to the answer."""
    text = tools.walk(method, problem).printed
    assert not text, f"printed on stdout: {text[:200]!r}"
