"""Search spaces: what a sampler draws, what JSON keeps, what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import (
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
    json_to_distribution,
)

from lamps import space as hp
from lamps.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    model: str = hp.model(accepts=("encoder", "static"), doc="Which model.")
    rate: float = hp.real(1e-3, low=1e-5, high=1e-1, log=True, doc="Step size.")
    shift: float = hp.real(0.0, low=-2.0, high=2.0, doc="Shift.")
    rank: int = hp.integer(8, low=1, high=64, log=True, doc="Rank.")
    kind: str | None = hp.choice("a", ("a", "b", None, 3), doc="Kind.")
    path: str = hp.fixed("", doc="Path.")


INSIDE = st.fixed_dictionaries(
    {},
    optional={
        "model": st.text(),
        "rate": st.floats(1e-5, 1e-1),
        "shift": st.floats(-2, 2),
        "rank": st.integers(1, 64),
        "kind": st.sampled_from(["a", "b", None, 3]),
        "path": st.text() | st.integers() | st.lists(st.integers()),
    },
)


@given(INSIDE)
def test_values_inside_survive_json(values: dict[str, Any]) -> None:
    params = hp.build(Params, values)
    again = hp.build(Params, json.loads(json.dumps(hp.as_json(params))))
    assert again == params
    assert all(getattr(params, k) == v for k, v in values.items())


@given(st.floats(), st.floats())
def test_a_range_accepts_what_it_holds(value: float, width: float) -> None:
    low, high = -1.0, -1.0 + min(abs(width), 1e9) if math.isfinite(width) else 5.0
    hyper = hp.Hyperparameter("real", low=low, high=high)
    assert (hyper.problem_with(value) is None) == (low <= value <= high)


def test_distributions_hold_only_what_is_searched() -> None:
    found = hp.distributions(Params)
    assert found == {
        "rate": FloatDistribution(1e-5, 1e-1, log=True),
        "shift": FloatDistribution(-2.0, 2.0),
        "rank": IntDistribution(1, 64, log=True),
        "kind": CategoricalDistribution(("a", "b", None, 3)),
    }
    for name, distribution in found.items():
        assert json_to_distribution(distribution_to_json(distribution)) == distribution, name


@pytest.mark.parametrize("seed", range(3))
def test_whatever_a_sampler_draws_is_accepted(seed: int) -> None:
    import optuna

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    for _ in range(20):
        drawn = study.ask(hp.distributions(Params)).params
        params = hp.build(Params, drawn)
        assert isinstance(params.rank, int)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"rnk": 3}, "has no parameter 'rnk'.*Did you mean 'rank'"),
        ({"rank": 0}, r"rank=0, expected a value in \[1, 64\]"),
        ({"rank": 65}, "rank=65"),
        ({"rank": 1.5}, "rank=1.5, expected an integer"),
        ({"rank": math.nan}, "rank=nan, expected an integer"),
        ({"rank": math.inf}, "rank=inf, expected an integer"),
        ({"rank": True}, "rank=True, expected a number"),
        ({"rank": "8"}, "rank='8', expected a number"),
        ({"rate": math.nan}, "rate=nan"),
        ({"rate": 0}, "rate=0"),
        ({"rate": None}, "rate=None, expected a number"),
        ({"kind": "c"}, r"kind='c', expected one of \['a', 'b', None, 3\]"),
        ({"kind": ["a"]}, "kind="),
        ({"model": 3}, "model=3, expected the name"),
    ],
)
def test_values_outside_are_refused_by_name(values: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=f"^method 'x'.*{text}") as caught:
        hp.build(Params, values, where="method 'x'")
    assert "\n" not in str(caught.value)


def test_a_choice_tells_true_from_one() -> None:
    hyper = hp.Hyperparameter("choice", choices=(1, 2))
    assert hyper.problem_with(True) is not None
    assert hp.Hyperparameter("choice", choices=(True, False)).problem_with(1) is not None


def test_integers_come_as_integers() -> None:
    """A float that is whole, as JSON of other languages writes it, becomes an int."""
    params = hp.build(Params, {"rank": 4.0})
    assert params.rank == 4
    assert isinstance(params.rank, int)


def test_docs_and_kinds_can_be_read_off() -> None:
    found = hp.hyperparameters(Params)
    assert [h.kind for h in found.values()] == [
        "model",
        "real",
        "real",
        "integer",
        "choice",
        "fixed",
    ]
    assert found["model"].accepts == ("encoder", "static")
    assert all(h.doc for h in found.values())
    assert hp.as_json(Params())["rate"] == 1e-3
