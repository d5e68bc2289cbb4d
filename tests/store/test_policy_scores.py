"""Scores of policies: kept once each, bit for bit, on both databases."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import inspect, text

from lamps.errors import SchemaMismatch, StoreError
from lamps.store import PolicyScore, Store, schema
from lamps.store.engine import open_engine, parse_url
from lamps.store.policy_scores import MEASURES
from lamps.store.transactions import read, write

SCORE = PolicyScore(
    policy="front-racing(depth=2)",
    version="1",
    weights_sha256="",
    code="0.1.0+abc",
    table_name="pythia/arc|é#3~1",
    family="pythia",
    fingerprint="f" * 64,
    pool="a" * 64,
    objectives=("val_error", "a, b"),
    candidates=16,
    landmarks=27,
    front=4,
    workers=8,
    seed=2**70,
    measures={m: 0.1 * i for i, m in enumerate(MEASURES)},
)


def plain(score: PolicyScore) -> PolicyScore:
    return dataclasses.replace(score, created_at=0.0)


def test_what_was_given_comes_back(store: Store) -> None:
    assert store.add_policy_scores([SCORE]) == 1
    (found,) = store.policy_scores()
    assert plain(found) == SCORE
    assert found.created_at > 1e9


def test_a_second_insert_changes_nothing(store: Store) -> None:
    others = [dataclasses.replace(SCORE, workers=w) for w in (1, 2)]
    assert store.add_policy_scores([SCORE, SCORE, *others]) == 3
    before = store.policy_scores()
    again = dataclasses.replace(SCORE, measures={m: 0.5 for m in MEASURES})
    assert store.add_policy_scores([again, *others]) == 0
    assert store.policy_scores() == before


@pytest.mark.parametrize(
    "change",
    [
        {"policy": "lamps"}, {"version": "2"}, {"weights_sha256": "0" * 64}, {"code": "0.2.0"},
        {"table_name": "other"}, {"fingerprint": "e" * 64}, {"pool": "b" * 64},
        {"objectives": ("a, b", "val_error")}, {"workers": 1}, {"seed": -1},
    ],
)  # fmt: skip
def test_everything_but_the_measures_makes_a_score_another_one(
    store: Store, change: dict[str, object]
) -> None:
    other = dataclasses.replace(SCORE, **change)  # type: ignore[arg-type]
    assert store.add_policy_scores([SCORE, other]) == 2
    assert [plain(s) for s in store.policy_scores()] == [SCORE, other]


def test_many_scores_in_one_call(store: Store) -> None:
    scores = [dataclasses.replace(SCORE, seed=i) for i in range(1203)]
    assert store.add_policy_scores(scores[:700]) == 700
    assert store.add_policy_scores(scores) == 503
    assert [s.seed for s in store.policy_scores()] == list(range(1203))
    assert store.add_policy_scores([]) == 0


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(allow_infinity=False), min_size=10, max_size=10), st.integers(0))
def test_measures_come_back_bit_for_bit(store: Store, values: list[float], seed: int) -> None:
    given_ = dataclasses.replace(
        SCORE, seed=seed, pool=repr(values)[:60], measures=dict(zip(MEASURES, values, strict=True))
    )
    if not store.add_policy_scores([given_]):
        return  # hypothesis drew the same once more
    found = store.policy_scores()[-1]
    for name, value in given_.measures.items():
        again = found.measures[name]
        assert again == value or (math.isnan(again) and math.isnan(value))


def test_refusals_write_nothing(store: Store) -> None:
    short = dataclasses.replace(SCORE, measures={"time_99": 0.1})
    nul = dataclasses.replace(SCORE, table_name="a\x00b")
    for bad, message in ((short, r"lacks the measures \['area'"), (nul, "table name .* NUL")):
        with pytest.raises(StoreError, match=message):
            store.add_policy_scores([SCORE, bad])
    assert store.policy_scores() == []


def test_a_store_of_the_first_schema_is_upgraded_with_its_rows(url: str) -> None:
    engine = open_engine(parse_url(url), foreign_keys=False)
    write(engine, lambda c: schema.migrate(c, "0001"))
    assert "policy_scores" not in read(engine, lambda c: inspect(c).get_table_names())
    insert = (
        "INSERT INTO policies (name, version, weights_sha256, training_tables, created_at) "
        "VALUES ('mine', '1', 'x', '[]', 0)"
    )
    write(engine, lambda c: c.execute(text(insert)))
    with pytest.raises(SchemaMismatch, match=r"has schema 0001, .*lamps store upgrade"):
        Store.open(url)
    assert Store.upgrade(url) == ("0001", schema.HEAD)
    with Store.open(url) as opened:
        assert [p.name for p in opened.policies()] == ["mine"]
        assert opened.add_policy_scores([SCORE]) == 1
    write(engine, lambda c: schema.migrate(c, "0001"))
    assert "policy_scores" not in read(engine, lambda c: inspect(c).get_table_names())
    assert read(engine, lambda c: c.execute(text("SELECT COUNT(*) FROM policies")).scalar()) == 1
    engine.dispose()
