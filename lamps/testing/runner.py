"""Runs conformance checks on a method: all at once, through pytest, or from the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lamps.method import Family, Method, Problem
from lamps.testing import contract, isolation, numerics, steps, tools, transport

Check = Callable[[type[Method[Any, Any]], Problem], None]
Outcome = Literal["passed", "failed", "expected failure", "unexpected pass"]


@dataclass(frozen=True, slots=True)
class Result:
    """What one check said of one method."""

    name: str
    outcome: Outcome
    detail: str = ""


_ALWAYS: tuple[Check, ...] = (
    contract.check_init_is_inert,
    contract.check_name_is_that_of_the_file,
    contract.check_docstring_names_the_source,
    contract.check_defaults_lie_in_the_space,
    contract.check_params_survive_json,
    contract.check_unknown_params_are_refused,
    contract.check_expected_failures_exist,
    numerics.check_objectives_are_complete_and_finite,
    numerics.check_evaluate_changes_nothing,
    numerics.check_cost_is_measured,
    numerics.check_saved_member_is_not_empty,
    steps.check_same_fidelity_is_a_no_op,
    steps.check_fit_equals_partial_fits,
    isolation.check_problem_is_untouched,
    isolation.check_test_split_stays_closed,
    isolation.check_global_seeds_are_untouched,
    isolation.check_stdout_stays_silent,
    transport.check_problem_survives_pickling,
    transport.check_state_survives_a_checkpoint,
)
_DETERMINISTIC: tuple[Check, ...] = (
    steps.check_same_seed_gives_the_same_numbers,
    transport.check_another_process_gives_the_same_numbers,
)
_RESUMABLE: tuple[Check, ...] = (steps.check_kill_and_resume_equals_no_interruption,)


def checks_for(method: type[Method[Any, Any]]) -> Iterator[Check]:
    """The checks that the method's tags call for."""
    yield from _ALWAYS
    if method.spec.tags.deterministic:
        yield from _DETERMINISTIC
        if method.spec.tags.resumable:
            yield from _RESUMABLE


def check_names() -> list[str]:
    """Names of all checks."""
    return [c.__name__ for c in (*_ALWAYS, *_DETERMINISTIC, *_RESUMABLE)]


def run_check(check: Check, method: type[Method[Any, Any]], problem: Problem) -> Result:
    """Run one check; an expected failure that passes is a failure of its own."""
    reason = method.spec.expected_failures.get(check.__name__)
    try:
        check(method, problem)
    except Exception as error:
        # A check fails by whatever the method raises; the point is to tell, not to stop.
        text = f"{type(error).__name__}: {error}"
        if reason is not None:
            return Result(check.__name__, "expected failure", reason)
        return Result(check.__name__, "failed", " ".join(text.split())[:500])
    if reason is not None:
        return Result(check.__name__, "unexpected pass", f"was expected to fail: {reason}")
    return Result(check.__name__, "passed")


def check_method(
    method: type[Method[Any, Any]],
    problem: Problem | None = None,
    *,
    on_failure: Literal["raise", "collect"] = "raise",
    pattern: str = "",
) -> list[Result]:
    """Check that a method keeps the promises of `lamps.method`.

    Args:
        method: The class.
        problem: An instance to try it on; the family's toy problem if None.
        on_failure: ``raise`` an AssertionError at the first failure, or ``collect`` all results.
        pattern: Only checks whose name contains this.

    Returns:
        One result per check.

    Raises:
        AssertionError: A check failed, or an expected failure passed.

    Example:
        >>> from lamps.plugins import registry
        >>> cls = registry().load_method("replay", "curve-replay")
        >>> {r.outcome for r in check_method(cls, pattern="params")}
        {'passed'}
    """
    family = method.spec.family
    instance = problem or tools.found_with(method).load_family(family).toy_for(method)
    results = []
    for check in checks_for(method):
        if pattern not in check.__name__:
            continue
        result = run_check(check, method, instance)
        results.append(result)
        if on_failure == "raise" and result.outcome in ("failed", "unexpected pass"):
            raise AssertionError(
                f"{method.name()}: {result.name} {result.outcome}: {result.detail}"
            )
    return results


def parametrize_with_checks(methods: Sequence[type[Method[Any, Any]]]) -> Any:
    """A pytest decorator: one test item per method and check, named after both.

    The decorated function takes ``method`` and ``check`` and calls ``check(method, problem)``; see
    `run_check` for expected failures.
    """
    import pytest

    pairs = [(m, c) for m in methods for c in checks_for(m)]
    return pytest.mark.parametrize(
        ("method", "check"),
        pairs,
        ids=[f"{m.spec.family}/{m.name()}-{c.__name__}" for m, c in pairs],
    )


def check_family(family: Family) -> list[Result]:
    """Check a family's own promises: its toy problem, its reference, and each of its refusals.

    A family may offer ``bad_inputs()``, which yields a name, a callable that must raise a
    ProblemError or ConfigError, and a text that the message must contain.
    """
    from lamps.testing import families

    results = []
    for name, check in families.checks_of(family):
        try:
            check()
        except Exception as error:
            # As above: a check fails by whatever is raised.
            results.append(Result(name, "failed", f"{type(error).__name__}: {error}"[:500]))
        else:
            results.append(Result(name, "passed"))
    return results
