"""Value objects: equal values have equal keys, bad ones are refused, all of them travel."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamps.errors import ConfigError
from lamps.types import (
    Budget,
    Candidate,
    Cost,
    Evaluation,
    Objective,
    Resources,
    canonical_json,
    digest,
    frozen,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
PARAMS = st.dictionaries(st.text(min_size=1, max_size=8), JSON, max_size=5)


@given(JSON)
def test_canonical_json_is_json(value: Any) -> None:
    assert json.loads(canonical_json(value)) == value


@given(PARAMS)
def test_a_candidate_is_its_values_in_any_order(params: dict[str, Any]) -> None:
    turned = dict(reversed(list(params.items())))
    one, other = Candidate("f", "m", params), Candidate("f", "m", turned)
    assert one.key == other.key
    assert one.label == other.label
    twin = pickle.loads(pickle.dumps(Candidate("f", "m", frozen(params))))
    assert twin == one
    assert twin.key == one.key
    assert "\n" not in one.label or any("\n" in f"{k}{v}" for k, v in params.items())


@given(PARAMS, PARAMS)
def test_other_params_are_another_candidate(a: dict[str, Any], b: dict[str, Any]) -> None:
    same = canonical_json(a) == canonical_json(b)
    assert (Candidate("f", "m", a).key == Candidate("f", "m", b).key) == same


def test_keys_are_the_same_on_every_machine() -> None:
    """Stored runs are resumed by these keys: a change here breaks them."""
    candidate = Candidate("replay", "curve-replay", {"curve": "ä", "sleep_s": 0.5, "k": None})
    assert candidate.key == "f6cdcbebed079cb8"
    assert len(digest([1, 2], length=8)) == 8


def test_long_params_keep_their_end_in_the_label() -> None:
    label = Candidate("f", "m", {"model": "/very/long/" * 20 + "bge-small", "lr": 0.00012345})
    assert label.label.endswith("bge-small)")
    assert "lr=0.000123" in label.label
    assert len(label.label) < 80


@pytest.mark.parametrize("name", ["", "val error", "1st", "a-b", "a:b"])
def test_objective_names_are_identifiers(name: str) -> None:
    with pytest.raises(ConfigError, match="identifier"):
        Objective(name)


def test_directions_are_two() -> None:
    with pytest.raises(ConfigError, match="'up', expected 'minimize' or 'maximize'"):
        Objective("a", direction="up")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
@pytest.mark.parametrize("name", ["wall_s", "device_s", "landmarks", "trials"])
def test_budgets_are_positive(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"budget {name} is"):
        Budget(**{name: value})  # type: ignore[arg-type]


def test_budget_and_resources_as_json() -> None:
    assert Budget(wall_s=5).as_dict() == {
        "wall_s": 5,
        "device_s": None,
        "landmarks": None,
        "trials": None,
    }
    assert Resources(gpus=1).as_dict() == {"cpus": 1.0, "gpus": 1, "memory_bytes": None}
    assert len({Resources(), Resources(cpus=1.0), Resources(cpus=2.0)}) == 2


@pytest.mark.parametrize(
    ("values", "finite"),
    [
        ({}, True),
        ({"a": 1, "b": 1e308}, True),
        ({"a": 1.0, "b": math.nan}, False),
        ({"a": -math.inf}, False),
        ({"a": "n/a"}, False),
        ({"a": None}, False),
    ],
)
def test_finite_evaluations(values: dict[str, Any], finite: bool) -> None:
    assert Evaluation(values).is_finite() is finite


def test_values_travel_and_cannot_be_written_to() -> None:
    for value in (
        Objective("a", "ms", "maximize", noisy=True),
        Cost(wall_s=1.0),
        Budget(trials=3),
        Resources(memory_bytes=5),
        Evaluation({"a": 1.0}, {"s": 2.0}),
    ):
        assert pickle.loads(pickle.dumps(value)) == value
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, dataclasses.fields(value)[0].name, "b")
    source = {"a": 1}
    view = frozen(source)
    source["a"] = 2
    assert view == {"a": 1}
    with pytest.raises(TypeError):
        view["a"] = 3  # type: ignore[index]
