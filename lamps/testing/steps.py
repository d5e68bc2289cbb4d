"""Checks of fitting in steps: stopping and resuming must not show in the numbers."""

from __future__ import annotations

from typing import Any

from lamps.method import Method, Problem
from lamps.scheduler.worker import trial_stream
from lamps.testing import tools

Kind = type[Method[Any, Any]]


def check_same_fidelity_is_a_no_op(method: Kind, problem: Problem) -> None:
    """Fitting to a fidelity that is reached changes nothing."""
    target = problem.fidelities[1]
    made = tools.fit_to(tools.make(method, problem), problem, [target])
    before = tools.stable(made.evaluate(problem), problem)
    tools.fit_to(made, problem, [target])
    assert made.fidelity_ == target, f"stands at {made.fidelity_}, was fitted to {target}"
    tools.assert_same(before, tools.stable(made.evaluate(problem), problem), "fitted again")


def check_fit_equals_partial_fits(method: Kind, problem: Problem) -> None:
    """``fit``, all partial fits in turn, and one leap to the end give the same numbers."""
    candidate = tools.first_candidate(method, problem)
    fitted = tools.make(method, problem).fit(problem, rng=trial_stream(tools.SEED, candidate))
    leaped = tools.fit_to(tools.make(method, problem), problem, problem.fidelities[-1:])
    want = tools.stable(tools.walk(method, problem).measured[-1], problem)
    tools.assert_same(tools.stable(fitted.evaluate(problem), problem), want, "fit against steps")
    tools.assert_same(tools.stable(leaped.evaluate(problem), problem), want, "leap against steps")


def check_kill_and_resume_equals_no_interruption(method: Kind, problem: Problem) -> None:
    """A new object from the checkpoint of each landmark ends like one that lived on."""
    lived = tools.walk(method, problem).measured
    killed = tools.make(method, problem)
    for fidelity in problem.fidelities:
        tools.fit_to(killed, problem, [fidelity])
        killed = tools.through_checkpoint(killed, problem)
    tools.assert_same(
        tools.stable(killed.evaluate(problem), problem),
        tools.stable(lived[-1], problem),
        "resumed after every landmark",
    )


def check_same_seed_gives_the_same_numbers(method: Kind, problem: Problem) -> None:
    """Two objects with the same params and stream agree bit for bit."""
    second = tools.fit_to(tools.make(method, problem), problem, problem.fidelities[:2])
    tools.assert_same(
        tools.stable(tools.walk(method, problem).measured[1], problem),
        tools.stable(second.evaluate(problem), problem),
        "same seed",
    )
