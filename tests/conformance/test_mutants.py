"""The suite itself is tested: each check must notice a method that breaks its promise."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest

from lamps.method import Method, Problem
from lamps.plugins import registry
from lamps.testing import check_method, transport
from lamps.testing.runner import check_names, checks_for, run_check

from ._mutants import METHOD, MUTANTS, write_mutants


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("mutants")
    write_mutants(root)
    return str(root)


@pytest.fixture(scope="module")
def problem(folder: str) -> Problem:
    return registry(folder).load_family("example-curve-fitting").toy_problem()


def load(folder: str, name: str) -> type[Method[Any, Any]]:
    found = registry(folder)
    return found.load_method("example-curve-fitting", name.replace("_", "-"))


def test_the_method_without_a_mutation_passes(folder: str) -> None:
    results = check_method(load(folder, METHOD))
    assert [r.name for r in results] == check_names()
    assert {r.outcome for r in results} == {"passed"}
    assert {r.outcome for r in check_method(load(folder, "nearest_neighbours"))} == {"passed"}


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_is_noticed_by_its_check(name: str, folder: str, problem: Problem) -> None:
    method = load(folder, name)
    (check,) = [c for c in checks_for(method) if c.__name__ == MUTANTS[name][0]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a mutant may warn of what it does
        result = run_check(check, method, problem)
    assert result.outcome == "failed", f"{name} got past {check.__name__}"
    assert result.detail.startswith("AssertionError"), result.detail


def test_every_check_has_a_mutant() -> None:
    without = set(check_names()) - {check for check, _ in MUTANTS.values()}
    assert without == {"check_problem_survives_pickling"}


class Forgetful:
    """Loses its last fidelity in a pickle."""

    fidelities = (0.0, 1.0)

    def fingerprint(self) -> str:
        return "same"

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.fidelities = (0.0,)  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        return {"any": 1}


def test_a_problem_that_changes_on_its_way_is_noticed(folder: str) -> None:
    bad: Any = Forgetful()
    assert pickle.loads(pickle.dumps(bad)).fidelities == (0.0,)
    with pytest.raises(AssertionError):
        transport.check_problem_survives_pickling(load(folder, METHOD), bad)


def expecting(method: type[Method[Any, Any]], check: str) -> type[Method[Any, Any]]:
    """The method with one expected failure."""
    import dataclasses

    spec = dataclasses.replace(method.spec, expected_failures={check: "known, and why"})
    return type(method.__name__, (method,), {"spec": spec, "__module__": method.__module__})


def test_an_expected_failure_is_no_failure_and_its_pass_is_one(
    folder: str, problem: Problem
) -> None:
    name = "check_saved_member_is_not_empty"
    known = expecting(load(folder, "unsaved"), name)
    (result,) = check_method(known, problem, pattern=name)
    assert (result.outcome, result.detail) == ("expected failure", "known, and why")
    healed = expecting(load(folder, METHOD), name)
    with pytest.raises(AssertionError, match="unexpected pass"):
        check_method(healed, problem, pattern=name)
    (result,) = check_method(healed, problem, pattern=name, on_failure="collect")
    assert result.outcome == "unexpected pass"


def test_the_first_failure_is_raised_or_all_are_collected(folder: str, problem: Problem) -> None:
    method = load(folder, "prints")
    with pytest.raises(
        AssertionError, match=r"prints: check_stdout_stays_silent failed: .*fitting"
    ):
        check_method(method, problem)
    outcomes = [r.outcome for r in check_method(method, problem, on_failure="collect")]
    assert outcomes.count("failed") == 1
    assert len(outcomes) == len(check_names())


def test_tags_choose_the_checks(folder: str) -> None:
    import dataclasses

    method = load(folder, METHOD)
    tags = dataclasses.replace(method.spec.tags, deterministic=False)
    noisy = type("Noisy", (method,), {"spec": dataclasses.replace(method.spec, tags=tags)})
    left = set(check_names()) - {c.__name__ for c in checks_for(noisy)}
    assert left == {
        "check_same_seed_gives_the_same_numbers",
        "check_another_process_gives_the_same_numbers",
        "check_kill_and_resume_equals_no_interruption",
    }


def test_a_folder_is_left_as_it_was_found(folder: str) -> None:
    assert {p.name for p in Path(folder).iterdir()} == {"example_curve_fitting"}
