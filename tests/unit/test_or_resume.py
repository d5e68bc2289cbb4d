"""One command, given again and again: it begins, goes on, and in the end does nothing more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lamps
from lamps.errors import StateError, StoreError
from lamps.types import Budget


def ask(curves: Path, store: str, **more: Any) -> lamps.Run:
    """The same search, each time."""
    words: dict[str, Any] = {
        "problem": f"replay:{curves}", "policy": "exhaustive", "backend": "local", "store": store,
        "name": "r", "or_resume": True,
    }  # fmt: skip
    return lamps.search(**words | more)


def test_asked_again_it_goes_on_and_then_rests(curves: Path, store_url: str) -> None:
    run = ask(curves, store_url, budget=Budget(landmarks=3))
    assert run.record.n_evaluations == 3
    same = ask(curves, store_url, budget=Budget(landmarks=3))
    assert same.record.n_evaluations == 3  # its budget is used up: nothing to do
    assert same.outcome is not None
    assert same.outcome.ending == "exhausted"
    more = ask(curves, store_url, budget=Budget(landmarks=9))
    assert more.record.n_evaluations == 9
    whole = ask(curves, store_url)
    assert whole.record.state == "finished"
    again = ask(curves, store_url)
    assert again.outcome is not None
    assert (again.outcome.ending, again.outcome.n_complete) == ("finished", 4)
    assert [m.index for m in again.front()] == [m.index for m in whole.front()]
    straight = ask(curves, store_url, name="straight")
    assert [dict(m.values) for m in straight.front()] == [dict(m.values) for m in whole.front()]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"seed": 1}, "seed"),
        ({"policy": "random"}, "policy"),
        ({"objectives": ["error"]}, "objectives"),
        ({"params": {"curve-replay": {"sleep_s": 0.001}}}, "--params"),
    ],
)
def test_asked_in_other_words_it_is_refused(
    change: dict[str, Any], what: str, curves: Path, store_url: str
) -> None:
    ask(curves, store_url, budget=Budget(landmarks=2))
    with pytest.raises(StateError, match=f"run 'r' exists already and differs in its {what}"):
        ask(curves, store_url, **change)
    with pytest.raises(StoreError, match="exists already"):
        ask(curves, store_url, or_resume=False)


def test_data_that_changed_under_the_same_name_is_refused(curves: Path, store_url: str) -> None:
    ask(curves, store_url, budget=Budget(landmarks=2))
    curves.write_text(curves.read_text().replace("0.30", "0.31"))
    with pytest.raises(StateError, match="differs in its data"):
        ask(curves, store_url, budget=Budget(landmarks=2))
