"""The state machines: every pair of states, allowed or refused."""

from __future__ import annotations

import itertools

import pytest

from lamps.errors import StateError
from lamps.store import states

TABLES = {"trial": states.TRIAL_MOVES, "decision": states.DECISION_MOVES, "run": states.RUN_MOVES}
PAIRS = [
    (kind, a, b) for kind, table in TABLES.items() for a, b in itertools.product(table, table)
]

# Written out once more, by hand, so that a change of the table is a change of this list.
ALLOWED = {
    "trial": {
        "waiting>running", "waiting>stopped", "waiting>cancelled", "running>waiting",
        "running>paused", "running>complete", "running>failed", "running>crashed",
        "paused>running", "paused>stopped", "paused>cancelled", "crashed>running",
    },
    "decision": {
        "pending>done", "pending>failed", "pending>crashed", "pending>cancelled",
        "crashed>pending", "crashed>abandoned",
    },
    "run": {
        "created>running", "created>interrupted", "created>failed", "running>running",
        "running>interrupted", "running>finished", "running>failed", "interrupted>running",
        "interrupted>finished", "interrupted>failed", "running>exhausted", "exhausted>running",
        "exhausted>finished",
    },
}  # fmt: skip


@pytest.mark.parametrize(("kind", "source", "target"), PAIRS)
def test_every_pair_is_allowed_or_refused(kind: str, source: str, target: str) -> None:
    if f"{source}>{target}" in ALLOWED[kind]:
        states.check_move(kind, "it", source, target)
        assert source in states.sources(kind, target)
        return
    with pytest.raises(StateError, match=f"it is {source} and cannot become {target}") as caught:
        states.check_move(kind, "it", source, target)
    assert "\n" not in str(caught.value)
    assert source not in states.sources(kind, target)


@pytest.mark.parametrize("kind", TABLES)
def test_terminal_states_are_those_without_moves(kind: str) -> None:
    table = TABLES[kind]
    assert {s for s in table if states.is_terminal(kind, s)} == {s for s in table if not table[s]}
    assert all(target in table for targets in table.values() for target in targets)


@pytest.mark.parametrize("kind", TABLES)
def test_every_state_is_reached_from_the_first(kind: str) -> None:
    table = TABLES[kind]
    reached, fresh = set(), {next(iter(table))}
    while fresh:
        reached |= fresh
        fresh = {t for s in fresh for t in table[s]} - reached
    assert reached == set(table)


def test_unknown_states_are_named() -> None:
    with pytest.raises(StateError, match=r"'asleep' is no trial state. Known: waiting, running"):
        states.check_move("trial", "trial 3", "waiting", "asleep")
