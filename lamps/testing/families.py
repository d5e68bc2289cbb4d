"""Checks of a family's own promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lamps.errors import ConfigError, ProblemError
from lamps.method import CONTRACT_VERSION, Family


def checks_of(family: Family) -> Iterator[tuple[str, Callable[[], None]]]:
    """Name and callable of each check."""
    yield "check_contract_version", lambda: _contract(family)
    yield "check_toy_problem", lambda: _toy(family)
    yield "check_default_objectives", lambda: _objectives(family)
    for name, call, culprit in getattr(family, "bad_inputs", tuple)():
        yield f"check_refusal_{name}", lambda call=call, culprit=culprit: _refusal(call, culprit)  # type: ignore[misc]


def _contract(family: Family) -> None:
    assert family.contract == CONTRACT_VERSION
    assert family.name
    assert family.summary


def _toy(family: Family) -> None:
    """The toy problem is the same for the same seed, and its fidelities rise from 0 to 1."""
    first, second = family.toy_problem(seed=3), family.toy_problem(seed=3)
    assert first.fingerprint() == second.fingerprint(), (
        "the toy problem depends on more than the seed"
    )
    steps = first.fidelities
    assert steps[0] == 0.0
    assert steps[-1] == 1.0
    assert list(steps) == sorted(set(steps)), f"fidelities {steps} do not rise"
    assert first.card() is not None


def _objectives(family: Family) -> None:
    toy = family.toy_problem()
    for name in family.default_objectives:
        toy.objective(name)
    names = [o.name for o in toy.objectives]
    assert len(set(names)) == len(names), f"objective names repeat: {names}"


def _refusal(call: Callable[[], Any], culprit: str) -> None:
    try:
        call()
    except (ProblemError, ConfigError) as error:
        text = str(error)
        assert culprit in text, f"the message does not name {culprit!r}: {text}"
        assert "\n" not in text, f"the message has more than one line: {text!r}"
    else:
        raise AssertionError("the bad input was accepted")
