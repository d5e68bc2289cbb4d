"""No policy is judged on what it was trained on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from _curves import curves

from lamps.errors import ConfigError
from lamps.policy.folds import KINDS, folds, group_of
from lamps.tables import LandmarkTable

NAMES = ("a", "b", "c#1", "c#2", "d/x#0", "d/x#1", "e")
FAMILIES = ("pythia", "pythia-mmlu", "gemstones", "")


def table(name: str, family: str) -> LandmarkTable:
    return curves(name, 2, family=family)


@st.composite
def some_tables(draw: st.DrawFn) -> list[LandmarkTable]:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=2, unique=True))
    return [table(name, draw(st.sampled_from(FAMILIES))) for name in names]


@given(some_tables(), st.sampled_from(KINDS), st.integers(0, 4))
def test_every_table_is_judged_once_and_never_beside_its_own_group(
    tables: list[LandmarkTable], kind: str, most: int
) -> None:
    groups = {group_of(t, kind) for t in tables}
    if len(groups) < 2 or most == 1:
        with pytest.raises(ConfigError):
            list(folds(tables, kind, most=most))
        return
    found = list(folds(tables, kind, most=most))
    judged = [t.name for _, _, test in found for t in test]
    assert sorted(judged) == sorted(t.name for t in tables)
    assert len(found) == min(len(groups), most or len(groups))
    for _, rest, test in found:
        assert rest
        assert not {group_of(t, kind) for t in rest} & {group_of(t, kind) for t in test}
        assert sorted(t.name for t in [*rest, *test]) == sorted(t.name for t in tables)


@pytest.mark.parametrize(
    ("kind", "name", "family", "group"),
    [
        ("table", "c#1", "pythia", "c#1"),
        ("task", "c#1", "pythia", "c"),
        ("family", "c#1", "pythia-mmlu", "pythia"),
        ("family", "c", "", "c"),
    ],
)
def test_groups(kind: str, name: str, family: str, group: str) -> None:
    assert group_of(table(name, family), kind) == group


def test_what_cannot_be_left_out_is_refused() -> None:
    with pytest.raises(ConfigError, match="'seed', expected one of table, task, family"):
        list(folds([table("a", ""), table("b", "")], "seed"))
    with pytest.raises(ConfigError, match=r"needs two groups of tables, there is one: \['x'\]"):
        list(folds([table("a", "x"), table("b", "x-y")], "family"))
