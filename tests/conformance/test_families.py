"""Every family that is installed keeps its own promises: its toy problem, its refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lamps.errors import ProblemError
from lamps.method import Family
from lamps.plugins import registry
from lamps.testing import check_family
from lamps.testing.families import checks_of

FAMILIES = sorted(registry("").families)
PAIRS = [
    (family, name)
    for family in FAMILIES
    for name, _ in checks_of(registry("").load_family(family))
]


@pytest.mark.parametrize(("family", "name"), PAIRS, ids=[f"{f}-{n}" for f, n in PAIRS])
def test_family(family: str, name: str) -> None:
    dict(checks_of(registry("").load_family(family)))[name]()


def outcomes(**changes: Any) -> dict[str, str]:
    """What the suite says of the replay family with some of it replaced."""
    original = type(registry("").load_family("replay"))
    family: Family = type("Changed", (original,), changes)()
    return {r.name: r.detail for r in check_family(family) if r.outcome == "failed"}


def bad_inputs(call: Callable[[], object]) -> Callable[[Family], Iterator[Any]]:
    return lambda self: iter([("made_up", call, "culprit")])


def refuse(text: str, error: type[Exception] = ProblemError) -> object:
    raise error(text)


def test_the_suite_passes_a_good_family() -> None:
    assert outcomes() == {}
    assert outcomes(bad_inputs=bad_inputs(lambda: refuse("the culprit is named"))) == {}


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"contract": 0}, "check_contract_version"),
        ({"summary": ""}, "check_contract_version"),
        ({"default_objectives": ("no_such",)}, "check_default_objectives"),
        ({"bad_inputs": bad_inputs(lambda: None)}, "check_refusal_made_up"),
        ({"bad_inputs": bad_inputs(lambda: refuse("anonymous"))}, "check_refusal_made_up"),
        ({"bad_inputs": bad_inputs(lambda: refuse("culprit\nand more"))}, "check_refusal_made_up"),
        ({"bad_inputs": bad_inputs(lambda: refuse("culprit", KeyError))}, "check_refusal_made_up"),
    ],
)
def test_a_family_that_breaks_a_promise_is_found(changes: dict[str, Any], check: str) -> None:
    assert list(outcomes(**changes)) == [check]


def test_a_toy_problem_that_changes_is_found() -> None:
    original = registry("").load_family("replay")
    seeds = iter(range(100))

    def toy_problem(self: Family, *, seed: int = 0) -> object:
        return original.toy_problem(seed=next(seeds))

    failed = outcomes(toy_problem=toy_problem)
    assert "more than the seed" in failed["check_toy_problem"]
