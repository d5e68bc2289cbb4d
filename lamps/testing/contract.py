"""Checks of what can be read off a method without fitting it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from lamps import space
from lamps.errors import ConfigError
from lamps.method import Method, Problem
from lamps.testing import tools

Kind = type[Method[Any, Any]]


def check_init_is_inert(method: Kind, problem: Problem) -> None:
    """The constructor only stores: it is quick, and nothing has been learned."""
    params = tools.first_candidate(method, problem).params
    started = time.perf_counter()
    made = method.from_params(params)
    assert time.perf_counter() - started < 0.5, "the constructor takes more than half a second"
    assert made.fidelity_ is None, f"an untouched method stands at fidelity {made.fidelity_}"


def check_name_is_that_of_the_file(method: Kind, problem: Problem) -> None:
    """The name of a method is that of its file, with hyphens."""
    file = getattr(sys.modules[method.__module__], "__file__", "") or ""
    assert method.name() == Path(file).stem.replace("_", "-")
    assert method.spec.family == problem.family


def check_docstring_names_the_source(method: Kind, problem: Problem) -> None:
    """The file says what the method is, and names its paper where it has one."""
    doc = sys.modules[method.__module__].__doc__ or ""
    assert len(doc.split()) >= 8, "the file's docstring does not say what the method is"
    assert method.spec.summary, "spec.summary is empty"
    paper = method.spec.paper
    if paper is not None:
        known = [k for k in (paper.arxiv, paper.title) if k]
        assert any(k in " ".join(doc.split()) for k in known), (
            f"the docstring names neither {' nor '.join(map(repr, known))}"
        )


def check_defaults_lie_in_the_space(method: Kind, problem: Problem) -> None:
    """Every field of Params is a hyperparameter with a doc, and its default lies in its range."""
    hps = space.hyperparameters(method.Params)
    defaults = space.as_json(method.Params())
    assert set(hps) == set(defaults), "every field of Params must come from lamps.space"
    for name, hp in hps.items():
        assert hp.doc, f"param {name} has no doc"
        trouble = hp.problem_with(defaults[name])
        assert trouble is None, f"default of {name}: {trouble}"


def check_params_survive_json(method: Kind, problem: Problem) -> None:
    """Params go through JSON and come back equal."""
    params = tools.make(method, problem).params
    again = space.build(method.Params, json.loads(json.dumps(space.as_json(params))))
    assert again == params, f"{again} is not {params}"


def check_unknown_params_are_refused(method: Kind, problem: Problem) -> None:
    """A param that does not exist raises a ConfigError that names it."""
    message = ""
    try:
        method.from_params({"no_such_param": 1})
    except ConfigError as error:
        message = str(error)
    assert message, "an unknown param was accepted"
    assert "no_such_param" in message, f"the message does not name the param: {message}"


def check_expected_failures_exist(method: Kind, problem: Problem) -> None:
    """Each expected failure names a check and gives a reason."""
    from lamps.testing.runner import check_names

    for name, reason in method.spec.expected_failures.items():
        assert name in check_names(), f"expected failure {name!r} is no check"
        assert reason, f"expected failure {name!r} has no reason"
