"""Replications: every pair is kept once and comes back bit for bit, on both databases."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import inspect, text

from lamps.errors import SchemaMismatch, StoreError
from lamps.replication import Claim, Measurement
from lamps.store import ReplicationSpec, Store, schema
from lamps.store.engine import open_engine, parse_url
from lamps.store.transactions import read, write


def claim(name: str = "C1", **changes: object) -> Claim:
    values = {
        "id": name, "statement": "It is better.", "quantity": "error, new | old",
        "compare": "difference", "direction": "<", "threshold": 0.0,
    } | changes  # fmt: skip
    return Claim(**values)  # type: ignore[arg-type]


SPEC = ReplicationSpec(
    family="model-merging",
    method="ties",
    method_version="1",
    version="1",
    profile="quick",
    fingerprint="f" * 64,
    summary="merges é",
    paper={"title": "TIES", "arxiv": "2306.01708"},
    claims=(claim("C1"), claim("C2", control=True)),
)


def pair(
    unit: str, newcomer: float, comparison: float = 0.5, *, of: str = "C1", seed: int = 0
) -> Measurement:
    return Measurement(
        claim=of, seed=seed, unit=unit, newcomer=newcomer, comparison=comparison,
        details={"n": 3, "bad": math.inf},
    )  # fmt: skip


def measure(
    store: Store, pairs: Sequence[Measurement], *, seed: int = 0, claims: Sequence[str] = ("C1",)
) -> int:
    number = store.begin_replication(SPEC)
    store.begin_seed(number, seed, claims)
    for one in pairs:
        store.add_measurement(number, one)
    store.finish_seed(number, seed, claims, facts={"cpus": 2}, wall_s=1.5)
    return number


def test_what_was_given_comes_back(store: Store) -> None:
    pairs = [pair("r8", 0.1), pair("層 1", math.nan), pair("c", math.inf, -math.inf)]
    number = measure(store, pairs)
    found = store.replication(number)
    assert [found] == store.replications()
    for field in dataclasses.fields(ReplicationSpec):
        given_, came = getattr(SPEC, field.name), getattr(found, field.name)
        assert (tuple(came) if field.name == "claims" else came) == given_
    (seed,) = found.seeds
    assert (seed.claim, seed.seed, seed.facts, seed.wall_s) == ("C1", 0, {"cpus": 2}, 1.5)
    assert seed.finished_at is not None
    assert found.finished("C1") == [seed]
    assert found.finished("C2") == []
    assert repr(list(seed.measurements)) == repr(pairs)  # NaN is not equal to itself


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(), st.floats(), st.integers(0, 2**70))
def test_numbers_come_back_bit_for_bit(store: Store, a: float, b: float, seed: int) -> None:
    number = measure(store, [pair("u", a, b, seed=seed)], seed=seed)
    (found,) = [s for s in store.replication(number).seeds if s.seed == seed]
    (kept,) = found.measurements
    store.begin_seed(number, seed, ["C1"], again=True)
    assert [math.isnan(kept.newcomer), math.isnan(kept.comparison)] == list(
        map(math.isnan, (a, b))
    )
    assert math.isnan(a) or kept.newcomer == a
    assert math.isnan(b) or kept.comparison == b


def test_a_pair_is_kept_once_and_as_it_came_first(store: Store) -> None:
    number = store.begin_replication(SPEC)
    store.begin_seed(number, 0, ["C1", "C2"])
    assert store.add_measurement(number, pair("u", 0.1))
    assert not store.add_measurement(number, pair("u", 0.9))
    assert store.add_measurement(number, pair("u", 0.2, of="C2"))
    kept = {s.claim: s.measurements[0].newcomer for s in store.replication(number).seeds}
    assert kept == {"C1": 0.1, "C2": 0.2}


def test_to_begin_again_goes_on_and_again_deletes(store: Store) -> None:
    number = measure(store, [pair("u", 0.1)])
    measure(store, [pair("u", 0.3, seed=1)], seed=1)
    assert store.begin_replication(SPEC) == number
    store.begin_seed(number, 0, ["C1"])
    before = store.replication(number)
    assert [s.finished_at is None for s in before.seeds] == [False, False]
    store.begin_seed(number, 0, ["C1"], again=True)
    first, second = store.replication(number).seeds
    assert (first.seed, first.measurements, first.finished_at) == (0, [], None)
    assert (first.facts, math.isnan(first.wall_s)) == ({}, True)
    assert second == before.seeds[1]


@pytest.mark.parametrize(
    "change",
    [
        {"family": "other"}, {"method": "dare"}, {"method_version": "2"}, {"version": "2"},
        {"profile": "full"}, {"fingerprint": "e" * 64},
    ],
)  # fmt: skip
def test_what_makes_a_replication_another_one(store: Store, change: dict[str, str]) -> None:
    number = measure(store, [pair("u", 0.1)])
    other = store.begin_replication(dataclasses.replace(SPEC, **change))  # type: ignore[arg-type]
    assert other != number
    assert store.replication(other).seeds == []
    assert len(store.replications()) == 2


def test_texts_and_bounds_follow_the_code_and_keep_the_numbers(store: Store) -> None:
    number = measure(store, [pair("u", 0.1)])
    moved = (claim("C2", control=True), claim("C1", threshold=0.5, statement="Other words."))
    spec = dataclasses.replace(SPEC, summary="new words", paper=None, claims=moved)
    assert store.begin_replication(spec) == number
    found = store.replication(number)
    assert (found.summary, found.paper, tuple(found.claims)) == ("new words", None, moved)
    assert [s.measurements[0].newcomer for s in found.seeds] == [0.1]


def test_another_version_of_a_claim_has_no_numbers_until_the_old_one_returns(
    store: Store,
) -> None:
    number = measure(store, [pair("u", 0.1)])
    store.begin_replication(dataclasses.replace(SPEC, claims=(claim("C1", version="2"),)))
    assert store.replication(number).seeds == []
    assert [c.version for c in store.replication(number).claims] == ["2"]
    store.begin_replication(SPEC)
    assert len(store.replication(number).seeds) == 1


def test_refusals_write_nothing(store: Store) -> None:
    number = store.begin_replication(SPEC)
    with pytest.raises(StoreError, match="was not begun with seed 0"):
        store.add_measurement(number, pair("u", 0.1))
    with pytest.raises(StoreError, match="has no claim 'C9'"):
        store.begin_seed(number, 0, ["C1", "C9"])
    with pytest.raises(StoreError, match=r"fingerprint .* NUL"):
        store.begin_replication(dataclasses.replace(SPEC, fingerprint="a\x00b"))
    store.begin_seed(number, 0, ["C1"])
    with pytest.raises(StoreError, match="unit is ''"):
        store.add_measurement(number, pair("", 0.1))
    bad = dataclasses.replace(pair("u", 0.1), details={"o": object()})  # type: ignore[dict-item]
    with pytest.raises(StoreError, match="cannot store object"):
        store.add_measurement(number, bad)
    (seed,) = store.replication(number).seeds
    assert seed.measurements == []
    assert len(store.replications()) == 1


def test_a_store_of_the_second_schema_is_upgraded_with_its_rows(url: str) -> None:
    engine = open_engine(parse_url(url), foreign_keys=False)
    write(engine, lambda c: schema.migrate(c, "0002"))
    assert "replications" not in read(engine, lambda c: inspect(c).get_table_names())
    insert = (
        "INSERT INTO policies (name, version, weights_sha256, training_tables, created_at) "
        "VALUES ('mine', '1', 'x', '[]', 0)"
    )
    write(engine, lambda c: c.execute(text(insert)))
    with pytest.raises(SchemaMismatch, match=r"has schema 0002, .*lamps store upgrade"):
        Store.open(url)
    assert Store.upgrade(url) == ("0002", schema.HEAD)
    with Store.open(url) as opened:
        assert [p.name for p in opened.policies()] == ["mine"]
        measure(opened, [pair("u", 0.1)])
    write(engine, lambda c: schema.migrate(c, "0002"))
    left = read(engine, lambda c: inspect(c).get_table_names())
    assert [name for name in left if name.startswith("replication")] == []
    assert read(engine, lambda c: c.execute(text("SELECT COUNT(*) FROM policies")).scalar()) == 1
    engine.dispose()
