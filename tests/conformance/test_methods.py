"""Every installed method keeps the promises of the contract, on its family's toy problem."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from lamps import space
from lamps.method import Method, Problem
from lamps.plugins import registry
from lamps.testing import parametrize_with_checks
from lamps.testing.runner import Check, run_check

METHODS = [registry("").load_method(family, name) for family, name in sorted(registry("").methods)]


@functools.cache
def toy(method: type[Method[Any, Any]]) -> Problem:
    return registry("").load_family(method.spec.family).toy_for(method)


@functools.cache
def lacking(method: type[Method[Any, Any]]) -> str:
    """Why a method has no candidate here; empty where it has one."""
    family = registry("").load_family(method.spec.family)
    hps = space.hyperparameters(method.Params)
    models = list(family.default_models(toy(method)))
    if not any(hp.kind == "model" for hp in hps.values()):
        return ""
    kinds = {kind for hp in hps.values() for kind in hp.accepts}
    catalogue = family.models()
    assert catalogue is not None
    if any(catalogue.resolve(m).kind in kinds for m in models):
        return ""
    return f"no model of the kinds {sorted(kinds)} is installed; see zoo-packages.txt"


@parametrize_with_checks(METHODS)
def test_method(method: type[Method[Any, Any]], check: Check) -> None:
    if reason := lacking(method):
        pytest.skip(reason)
    result = run_check(check, method, toy(method))
    assert result.outcome in ("passed", "expected failure"), result.detail


def test_methods_are_found() -> None:
    names = {f"{m.spec.family}/{m.name()}" for m in METHODS}
    assert {"replay/curve-replay", "text-classification/tfidf-logreg"} <= names
