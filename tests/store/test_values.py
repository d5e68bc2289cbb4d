"""Numbers and texts come back as they went in, on both databases."""

from __future__ import annotations

import math
import struct

import pytest
from _store_samples import COST, OBJECTIVES, candidates, complete, decide, spec, started
from hypothesis import given
from hypothesis import strategies as st

from lamps.errors import StoreError
from lamps.store import Store
from lamps.store.columns import decode, encode, load_json, name_text, pack, prose, unpack
from lamps.types import Candidate, Cost

EXTREMES = [
    math.nan, math.inf, -math.inf, 1e308, -1e308, -0.0, 0.0, 5e-324, 2.2250738585072e-308,
    0.1 + 0.2, 2.0**53 + 2, 1.7976931348623157e308,
]  # fmt: skip
TEXTS = [
    "/" * 200,
    "run/with/slashes 🦙 " + "ü" * 180,
    "Ω≈ç√∫ 漢字 العربية \u202e right to left",
    "quote ' double \" back \\ percent % brace {0} $float",
    "tab\tline\nreturn\r",
    " leading and trailing ",
    "nul" + "l",
    "é" + "e\u0301",
    "👩‍👩‍👧‍👦" * 40,
]

floats = st.floats(allow_nan=True, allow_infinity=True, width=64)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def same(a: object, b: object) -> bool:
    """Equal, with NaN equal to NaN and 0.0 different from -0.0."""
    return repr(a) == repr(b)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=6))
def test_packed_floats_keep_every_finite_bit(words: list[int]) -> None:
    numbers = [struct.unpack("<d", struct.pack("<Q", word))[0] for word in words]
    assert same(list(unpack(pack(numbers))), numbers)
    assert pack(unpack(pack(numbers))) == pack(numbers)


@given(json_values)
def test_json_comes_back(value: object) -> None:
    import json

    assert same(decode(encode(value)), value)
    assert same(load_json(json.dumps(encode(value), allow_nan=False)), value)


@given(st.text())
def test_prose_can_always_be_stored(text: str) -> None:
    shown = prose(text)
    shown.encode("utf-8")
    assert "\x00" not in shown
    assert prose(shown) == shown


@pytest.mark.parametrize("value", ["", "  ", "a\x00b", "lone \udcff", "x" * 501, 3])
def test_names_that_cannot_be_stored_are_refused(value: str) -> None:
    with pytest.raises(StoreError) as caught:
        name_text(value, "run name")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [object(), {1: 2}, b"bytes", {"a": {3, 4}}])
def test_what_is_no_json_is_refused(value: object) -> None:
    with pytest.raises(StoreError, match="expected"):
        encode(value)


@pytest.mark.parametrize("number", EXTREMES, ids=repr)
def test_extreme_objectives_come_back_bit_for_bit(store: Store, number: float) -> None:
    run = started(store)
    signals = {"loss": number, "nested": [number, {"$float": number, "x": None}]}
    complete(store, decide(store, run, 0, 3), number, -number, 1.0, signals=signals)
    decision = decide(store, run, 1, 0)
    values = {o.name: number for o in OBJECTIVES}
    store.fail(decision.id, kind="failed", error="x", values=values, cost=COST)
    trials = store.trials(run.id)
    assert same(trials[0].evaluations[0].values["val_error"], number)
    assert same(trials[0].evaluations[0].values["latency_ms"], -number)
    assert same(trials[0].evaluations[0].signals, signals)
    assert all(same(v, number) for v in trials[1].evaluations[0].values.values())
    assert store.final_values(run.id).values.tobytes() == struct.pack("<3d", number, -number, 1.0)


def test_costs_that_are_not_numbers_survive(store: Store) -> None:
    run = started(store)
    cost = Cost(wall_s=math.nan, device_s=math.inf, peak_bytes=2**50, checkpoint_bytes=0)
    complete(store, decide(store, run, 0, 0), cost=cost)
    assert repr(store.trials(run.id)[0].evaluations[0].cost) == repr(cost)


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_comes_back(store: Store, text: str) -> None:
    pool = [Candidate("replay", "curve-replay", {"curve": text, "odd\x00key": "\x00"})]
    run = store.create_run(
        spec(text, problem_card={text: text}, problem_reference={"file": text}), pool
    )
    store.set_run_state(run.id, "running", note=text)
    decision = decide(store, run, 0, 0, note=text, policy=text[:100], features_hash=text)
    store.fail(decision.id, kind="failed", error=text)
    again = store.run(text)
    assert (again.name, again.note, again.problem_card) == (text, text, {text: text})
    (trial,) = store.trials(run.id)
    assert (trial.candidate, trial.error) == (pool[0], text)
    (record,) = store.decisions(run.id)
    assert (record.note, record.policy, record.features_hash) == (text, text[:100], text)


def test_nul_and_surrogates_in_prose_are_shown(store: Store) -> None:
    run = started(store)
    store.fail(decide(store, run, 0, 0).id, kind="failed", error="bad byte \x00 and \udcff")
    assert store.trials(run.id)[0].error == "bad byte ␀ and \\udcff"


def test_params_that_no_file_could_hold_are_refused(store: Store) -> None:
    with pytest.raises(StoreError, match=r"are no JSON: .*surrogates") as caught:
        store.create_run(spec(), [Candidate("replay", "curve-replay", {"curve": "\udcff"})])
    str(caught.value).encode("utf-8")


def test_the_same_params_make_the_same_candidate(store: Store) -> None:
    run = store.create_run(spec(), [*candidates(2), *candidates(2)])
    assert [t.candidate.params["curve"] for t in store.trials(run.id)] == ["c0", "c1", "c0", "c1"]
