"""Fronts as values: filtered, picked from, measured, printed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamps import pareto
from lamps.errors import ConfigError
from lamps.front import Front

from ._members import ACCURACY, ERROR, LATENCY, member, pool

TWO = (ERROR, LATENCY)


def indices(front: Front) -> list[int]:
    return [m.index for m in front]


POOLS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=8)


@given(POOLS)
def test_a_front_is_that_of_its_values(rows: list[tuple[int, int]]) -> None:
    members = [member(i, val_error=float(a), latency_ms=float(b)) for i, (a, b) in enumerate(rows)]
    front = Front.of(members, TWO)
    mask = pareto.is_nondominated(pareto.as_values([list(map(float, r)) for r in rows], 2))
    assert sorted(indices(front)) == [i for i, on in enumerate(mask) if on]
    firsts = [m.values["val_error"] for m in front]
    assert firsts == sorted(firsts)
    assert json.dumps(front.as_dict(), allow_nan=False)


@given(POOLS)
def test_minimising_an_error_is_maximising_an_accuracy(rows: list[tuple[int, int]]) -> None:
    members = [
        member(i, val_error=float(a), accuracy=-float(a), latency_ms=float(b))
        for i, (a, b) in enumerate(rows)
    ]
    one, other = Front.of(members, TWO), Front.of(members, (ACCURACY, LATENCY))
    assert indices(one) == indices(other)
    assert one.hypervolume() == pytest.approx(other.hypervolume())
    if len(one):
        assert one.reference_point["val_error"] == pytest.approx(
            -other.reference_point["accuracy"]
        )
        weights = {"val_error": 2.0, "latency_ms": 1.0}
        turned = {"accuracy": 2.0, "latency_ms": 1.0}
        assert one.pick(weights).index == other.pick(turned).index


@given(POOLS.filter(bool), st.floats(0, 5), st.floats(0.001, 5))
def test_a_pick_is_on_the_front_and_only_ratios_matter(
    rows: list[tuple[int, int]], a: float, b: float
) -> None:
    members = [member(i, val_error=float(x), latency_ms=float(y)) for i, (x, y) in enumerate(rows)]
    front = Front.of(members, TWO)
    picked = front.pick({"val_error": a, "latency_ms": b})
    assert picked in list(front)
    assert front.pick({"val_error": 4 * a, "latency_ms": 4 * b}) == picked


def test_order_length_and_indexing() -> None:
    front = Front.of(pool(), TWO)
    assert indices(front) == [2, 1, 4, 0]
    assert len(front) == 4
    assert front[0].index == 2
    assert [m.index for m in front[1:3]] == [1, 4]
    assert front.members[-1] in front
    assert bool(front)
    assert not Front.of([], TWO)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("latency_ms<5", [1, 4, 0]),
        ("latency_ms<=2", [1, 4, 0]),
        ("latency_ms<2", [0]),
        (" latency_ms >= 5 , val_error < 0.3", [2]),
        (["latency_ms>1", "val_error>0.1"], [1, 4]),
        ({"latency_ms": "<= 2", "accuracy": ">0.75"}, [1, 4]),
        ("val_error<1e-9", []),
        ("val_error<inf", [2, 1, 4, 0]),
        ("val_error>-1", [2, 1, 4, 0]),
        (None, [2, 1, 4, 0]),
    ],
)
def test_where(where: str | Mapping[str, str] | Sequence[str] | None, expected: list[int]) -> None:
    assert indices(Front.of(pool(), TWO, where=where)) == expected


def test_where_lets_dominated_members_move_up() -> None:
    front = Front.of(pool(), TWO, where="latency_ms>2")
    assert indices(front) == [2, 3]
    assert front.reference_point["latency_ms"] == pytest.approx(9.4)


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("latency", "'latency' is not a condition such as"),
        ("latency_ms=5", "is not a condition"),
        ("latency_ms<", "is not a condition"),
        ("latency_ms<5 val_error<1", "is not a condition"),
        ("latency_ms<1e", "'1e'"),
        ("latency<5", "no objective 'latency'.*Did you mean 'latency_ms'"),
        ("val_error<0,latency<5", "no objective 'latency'"),
        ("val_error<0,nonsense", "'nonsense' is not a condition"),
        ("", "'' is not a condition"),
    ],
)
def test_bad_conditions_are_refused(where: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        Front.of(pool(), TWO, where=where)
    assert "\n" not in str(caught.value)


def test_conditions_are_read_even_where_nothing_is_left_to_filter() -> None:
    with pytest.raises(ConfigError, match="is not a condition"):
        Front.of([], TWO, where="nonsense")


def test_values_that_are_not_finite_are_never_on_a_front() -> None:
    members = [*pool(), member(5, val_error=math.nan, latency_ms=0.1, accuracy=0.0)]
    front = Front.of(members, TWO)
    assert indices(front) == [2, 1, 4, 0]
    assert front.n_trials == 6


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ("val_error", 2),
        ("latency_ms", 0),
        ("val_error:1,latency_ms:1", 1),
        (" val_error : 9 , latency_ms : 1 ", 2),
        ({"val_error": 0, "latency_ms": 3}, 0),
        ("val_error:1e300,latency_ms:1e300", 1),
    ],
)
def test_pick(weights: str | dict[str, float], expected: int) -> None:
    assert Front.of(pool(), TWO).pick(weights).index == expected


def test_ties_go_to_the_best_in_the_first_objective_then_to_the_first() -> None:
    front = Front.of(pool()[:3], TWO)
    tied = [member(7, val_error=0.0, latency_ms=1.0), member(8, val_error=1.0, latency_ms=0.0)]
    assert Front.of(tied, TWO).pick("val_error:1,latency_ms:1").index == 7
    assert Front.of(tied, (LATENCY, ERROR)).pick("val_error:1,latency_ms:1").index == 8
    doubled = Front.of([pool()[4], pool()[1]], TWO)
    assert doubled.pick("val_error").index == 1
    assert front.pick("val_error").index == 2


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        ("", "no weights were given"),
        ("val_error:x", "'val_error:x' is not a weight"),
        ("val_error:", "is not a weight"),
        ("val_error:-1", "weight of val_error is -1.0, expected 0 or more"),
        ("val_error:nan", "weight of val_error is nan"),
        ("val_error:inf", "weight of val_error is inf"),
        ("val_errr:1", "no objective 'val_errr' on this front.*Did you mean 'val_error'"),
        ("accuracy:1", "no objective 'accuracy'"),
        ({}, "no weights were given"),
        ({"val_error": 0.0}, "all weights are 0"),
        ({"val_error": "much"}, "weight of val_error is 'much'"),
        ({"val_error": None}, "weight of val_error is None"),
    ],
)
def test_bad_weights_are_refused(weights: str | dict[str, float], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Front.of(pool(), TWO).pick(weights)


def test_hypervolume_by_hand_and_up_to_another_point() -> None:
    front = Front.of(pool(), TWO)
    assert front.reference_point == pytest.approx({"val_error": 0.32, "latency_ms": 9.8})
    reference = {"val_error": 0.4, "latency_ms": 10.0}
    assert front.hypervolume(reference) == pytest.approx(0.1 * 9 + 0.1 * 8 + 0.1 * 1)
    assert front.hypervolume({"val_error": 0.0, "latency_ms": 0.0}) == 0.0
    accuracy = Front.of(pool(), (ACCURACY,))
    assert accuracy.hypervolume({"accuracy": 0.5}) == pytest.approx(0.4)
    with pytest.raises(ConfigError, match="lacks latency_ms"):
        front.hypervolume({"val_error": 1.0})


def test_an_empty_front_is_a_value_like_any_other() -> None:
    front = Front.of([], TWO, n_trials=7)
    assert list(front) == []
    assert front.hypervolume() == 0.0
    assert repr(front) == "Front(0 of 7 trials over val_error, latency_ms)"
    assert "empty" in front.explain()
    assert front.to_pandas().empty
    assert front.as_dict()["reference_point"] is None
    assert front.as_dict()["members"] == []
    with pytest.raises(ConfigError, match="empty, there is nothing to pick from"):
        front.pick("val_error")


def test_the_largest_values_can_be_printed_and_picked() -> None:
    front = Front.of(
        [
            member(0, val_error=-1e308, latency_ms=1e308),
            member(1, val_error=1e308, latency_ms=-1e308),
        ],
        TWO,
    )
    assert "hv=inf" in repr(front)
    assert front.pick("latency_ms").index == 1


def test_explain_names_the_best_of_each_objective() -> None:
    text = Front.of(pool(), (ACCURACY, LATENCY), n_trials=9).explain()
    assert text.splitlines() == [
        "Front(4 of 9 trials over accuracy, latency_ms, hv=1.036 @ ref=(0.68, 9.8))",
        "best accuracy: 0.9 by #2 m(i=2)",
        "best latency_ms: 1 ms by #0 m(i=0)",
    ]


def test_as_pandas_and_as_json() -> None:
    front = Front.of(pool(), TWO)
    table = front.to_pandas()
    assert table["index"].tolist() == [2, 1, 4, 0]
    assert table["test_error"].iloc[0] == 0.15
    assert table["test_error"].isna().sum() == 3
    document = json.loads(json.dumps(front.as_dict(), allow_nan=False))
    assert [m["index"] for m in document["members"]] == [2, 1, 4, 0]
    assert document["objectives"][1] == {
        "name": "latency_ms",
        "unit": "ms",
        "direction": "minimize",
    }
    assert document["hypervolume"] == pytest.approx(front.hypervolume())
    assert document["members"][0]["params"] == {"i": 2}
