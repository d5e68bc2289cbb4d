"""Labels keep value and type from the file to the last prediction."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lamps_plugins.text_classification._labels import (
    LabelReader,
    decode_labels,
    detect_separator,
    encode_labels,
    infer_labels,
    targets_of,
)

from lamps.errors import ProblemError


def inferred(*raw: Any, typed: bool = False) -> tuple[Any, ...]:
    return tuple(infer_labels(dict.fromkeys(raw, 1), typed=typed).values())


@pytest.mark.parametrize(
    ("raw", "final"),
    [
        (("1", "0"), (0, 1)),
        (("10", "9", "-3"), (-3, 9, 10)),
        (("01", "2"), ("01", "2")),
        (("+1", "-1"), ("+1", "-1")),
        (("0.5", "1.0"), (0.5, 1.0)),
        (("0.50", "1.0"), ("0.50", "1.0")),
        (("1", "0.5"), ("0.5", "1")),
        (("True", "False"), (False, True)),
        (("true", "false"), ("false", "true")),
        (("NA", "null", "None", "nan"), ("NA", "None", "nan", "null")),
        (("inf", "1.0"), ("1.0", "inf")),
        (("größer", "日本", "a"), ("a", "größer", "日本")),
        (("1_000", "2"), ("1_000", "2")),
        (("9" * 5000, "2"), ("2", "9" * 5000)),
    ],
)
def test_text_becomes_a_number_only_if_nothing_is_lost(raw: Any, final: Any) -> None:
    found = inferred(*raw)
    assert found == final
    assert [type(v) for v in found] == [type(v) for v in final]


@given(st.lists(st.text(min_size=1), min_size=1, unique=True))
def test_writing_a_label_gives_back_its_text(raw: list[str]) -> None:
    final = infer_labels(dict.fromkeys(raw, 1), typed=False)
    assert {str(value) for value in final.values()} == set(raw)
    assert len(set(final.values())) == len(raw)


@pytest.mark.parametrize(
    "labels",
    [("a", "ü", "日本"), (0, 1, 2**60), (0.1, 1 / 3), (False, True), ("01", "1"), ("1", "2")],
)
def test_labels_survive_json(labels: tuple[Any, ...]) -> None:
    back = decode_labels(json.loads(json.dumps(encode_labels(labels))))
    assert back == labels
    assert [type(v) for v in back] == [type(v) for v in labels]


def test_json_forgets_the_point_of_a_float_but_we_do_not() -> None:
    assert decode_labels({"dtype": "float", "values": [0, 1]}) == (0.0, 1.0)
    assert type(decode_labels({"dtype": "float", "values": [0, 1]})[0]) is float
    with pytest.raises(ProblemError, match="dtype and values"):
        decode_labels({"dtype": "complex", "values": [1]})


def test_typed_whole_and_broken_numbers_become_floats() -> None:
    assert inferred(1, 0.5, typed=True) == (0.5, 1.0)
    assert [type(v) for v in inferred(1, 0.5, typed=True)] == [float, float]
    assert inferred("2", "10", typed=True) == ("10", "2")


def test_only_empty_cells_are_missing() -> None:
    reader = LabelReader("y", None)
    assert [reader.read(v, "here") for v in (None, "", "  ", float("nan"))] == [None] * 4
    assert [reader.read(v, "here") for v in ("NA", "null", "None", "nan")] == [
        ("NA",), ("null",), ("None",), ("nan",)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (("a", 1), "mixes types"),
        ((True, 1), "mixes types"),
        ((["a"], "b"), "lists in some rows"),
        (({"a": 1},), "is a dict"),
        ((float("inf"),), "not finite"),
        ((b"raw",), "is a bytes"),
        ((["a", ["b"]],), "is a list"),
        (tuple(str(i) for i in range(10_001)), "more than 10000 different"),
    ],
)
def test_what_is_no_label_is_refused(cells: tuple[Any, ...], message: str) -> None:
    reader = LabelReader("y", None)
    *good, bad = cells
    for i, cell in enumerate(good):
        reader.read(cell, f"line {i}")
    with pytest.raises(ProblemError, match=message) as caught:
        reader.read(bad, "line 99")
    assert "line 99" in str(caught.value)


def test_several_labels_a_row() -> None:
    reader = LabelReader("y", "|")
    assert reader.read("a| b||a", "here") == ("a", "b")
    lists = LabelReader("y", None)
    assert lists.read([2, 1, 2], "here") == (2, 1)
    assert lists.read([], "here") == ()
    assert lists.saw_list


def test_separator_that_stands_in_most_cells() -> None:
    assert detect_separator(["a|b", "a", "b|c", "d;e"]) == "|"
    assert detect_separator(["a,b", "c"]) == ","
    assert detect_separator(["a", "b"]) is None


def test_targets() -> None:
    order: dict[Any, int] = {"x": 0, "y": 1, "z": 2}
    one = targets_of([("y",), ("x",)], order, multi_label=False)
    assert one.dtype == np.int64
    assert one.tolist() == [1, 0]
    many = targets_of([("z", "x"), ()], order, multi_label=True)
    assert many.dtype == np.float32
    assert many.tolist() == [[1, 0, 1], [0, 0, 0]]
