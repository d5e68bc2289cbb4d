"""What the checks share: fitting a method step by step and comparing what it measured."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import pickle
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from lamps.artifacts import decode_state, encode_state
from lamps.method import MEASURED_BY_WORKER, Method, Problem
from lamps.plugins import Registry, plugin_path_of, registry
from lamps.scheduler.worker import trial_stream
from lamps.types import Candidate, Evaluation

SEED = 7


def make(method: type[Method[Any, Any]], problem: Problem) -> Method[Any, Any]:
    """An untouched method with the params of the first candidate that its family would offer."""
    return method.from_params(first_candidate(method, problem).params)


def first_candidate(method: type[Method[Any, Any]], problem: Problem) -> Candidate:
    """The first candidate of the method on this problem."""
    return _first(method, problem.family, _Identity(problem))


def found_with(method: type[Method[Any, Any]]) -> Registry:
    """The plugins among which a method was found, loose folders included."""
    return registry(plugin_path_of(method) or None)


class _Identity:
    """Lets a cache tell problems apart by identity."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.problem is self.problem

    def __hash__(self) -> int:
        return id(self.problem)


@functools.cache
def _first(method: type[Method[Any, Any]], family: str, problem: _Identity) -> Candidate:
    owner = found_with(method).load_family(family)
    pool = owner.candidates(
        problem.problem,
        {method.name(): method},
        owner.default_models(problem.problem),
        given={},
        per_method=1,
        seed=SEED,
    )
    if not pool:
        raise AssertionError(
            f"{family} offers no candidate of {method.name()}: are its models installed?"
        )
    return min(pool, key=lambda c: _size(problem.problem, c))


def _size(problem: Problem, candidate: Candidate) -> float:
    hint = problem.size_hint(candidate)
    return hint if math.isfinite(hint) else math.inf


def fit_to(
    method: Method[Any, Any], problem: Problem, fidelities: Sequence[float]
) -> Method[Any, Any]:
    """Bring a method through these fidelities, each call with the stream in its start state."""
    candidate = first_candidate(type(method), problem)
    for fidelity in fidelities:
        method.partial_fit(problem, fidelity, rng=trial_stream(SEED, candidate))
    return method


@dataclass(frozen=True, slots=True)
class Walk:
    """A method that was taken through all fidelities as a search would, and what was seen.

    Args:
        method: At the last fidelity; not to be fitted further.
        problem: The copy of the problem that it was given.
        measured: Its evaluation at each fidelity.
        printed: What came out on stdout meanwhile.
        generators: States of the global generators before, and after each fidelity.
    """

    method: Method[Any, Any]
    problem: Problem
    measured: tuple[Evaluation, ...]
    printed: str
    generators: tuple[dict[str, Any], ...]


def walk(method: type[Method[Any, Any]], problem: Problem) -> Walk:
    """The walk of a method: made once, shared by the checks that look at it."""
    return _walk(method, _Identity(problem))


@functools.lru_cache(maxsize=2)
def _walk(method: type[Method[Any, Any]], identity: _Identity) -> Walk:
    problem: Problem = pickle.loads(pickle.dumps(identity.problem))
    candidate = first_candidate(method, identity.problem)
    made = make(method, identity.problem)
    # rich draws a number when it is imported, and scikit-learn imports it: no draw of the method.
    import_module("rich.style")
    measured, generators = [], [global_generators()]
    with captured_stdout() as read:
        for fidelity in problem.fidelities:
            made.partial_fit(problem, fidelity, rng=trial_stream(SEED, candidate))
            measured.append(made.evaluate(problem))
            generators.append(global_generators())
        sys.stdout.flush()
        printed = read()
    return Walk(made, problem, tuple(measured), printed, tuple(generators))


def global_generators() -> dict[str, Any]:
    """States of the global generators of random, NumPy and, where it is loaded, torch."""
    state: dict[str, Any] = {
        "random": random.getstate(),
        "numpy": pickle.dumps(np.random.get_state()),  # noqa: NPY002
    }
    if "torch" in sys.modules:
        state["torch"] = sys.modules["torch"].get_rng_state().tolist()
    return state


@contextlib.contextmanager
def captured_stdout() -> Iterator[Callable[[], str]]:
    """File descriptor 1 and ``sys.stdout`` go to a file meanwhile: native code is seen too."""
    sys.stdout.flush()
    saved = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)

        def read() -> str:
            file.seek(0)
            return file.read().decode(errors="replace")

        # ``sys.stdout`` need not be descriptor 1: a notebook or a test runner has its own there.
        writer = os.fdopen(os.dup(1), "w", buffering=1)
        try:
            with contextlib.redirect_stdout(writer):
                yield read
        finally:
            writer.close()
            os.dup2(saved, 1)
            os.close(saved)


def stable(evaluation: Evaluation, problem: Problem) -> dict[str, float]:
    """The objectives that do not change when they are measured again."""
    noisy = {o.name for o in problem.objectives if o.noisy}
    return {
        k: float(v)
        for k, v in evaluation.objectives.items()
        if k not in noisy and k not in MEASURED_BY_WORKER
    }


def assert_same(a: dict[str, float], b: dict[str, float], what: str) -> None:
    """Equal names and values, bit for bit."""
    if a != b:
        raise AssertionError(f"{what}: {a} is not {b}")


def through_checkpoint(method: Method[Any, Any], problem: Problem) -> Method[Any, Any]:
    """A new method that stands where the old one stands, by way of the bytes of a checkpoint."""
    twin = type(method)(method.params)
    twin.load_state_dict(decode_state(encode_state(method.state_dict())), problem)
    return twin
