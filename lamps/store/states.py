"""The state machines of trials, decisions and runs: all states, and the moves that are allowed.

A trial is *failed* when its method raised and *crashed* when its worker vanished; only the latter
may run again. Pure tables and functions; the store calls `check_move` before each change, so no
state is ever edited around them.

```
trial     waiting -> running -> paused -> running -> ... -> complete
          running -> failed | crashed;   crashed -> running;   waiting, paused -> stopped |
          cancelled
decision  pending -> done | failed | cancelled | crashed;      crashed -> pending | abandoned
run       created -> running <-> interrupted | exhausted;      running -> finished | failed
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from lamps.errors import StateError

TrialState = Literal[
    "waiting", "running", "paused", "complete", "stopped", "failed", "crashed", "cancelled"
]
DecisionState = Literal["pending", "done", "failed", "crashed", "cancelled", "abandoned"]
RunState = Literal["created", "running", "interrupted", "exhausted", "finished", "failed"]
EvaluationState = Literal["ok", "failed"]

Moves = Mapping[str, frozenset[str]]

TRIAL_MOVES: Moves = {
    "waiting": frozenset({"running", "stopped", "cancelled"}),
    # Back to waiting or paused when its landmark is cancelled.
    "running": frozenset({"waiting", "paused", "complete", "failed", "crashed"}),
    "paused": frozenset({"running", "stopped", "cancelled"}),
    "complete": frozenset(),
    "stopped": frozenset(),
    "failed": frozenset(),
    # Only by a retry of the decision that crashed; a decision that was given up leaves the trial
    # here.
    "crashed": frozenset({"running"}),
    "cancelled": frozenset(),
}
"""Allowed moves of a trial."""

DECISION_MOVES: Moves = {
    "pending": frozenset({"done", "failed", "crashed", "cancelled"}),
    "done": frozenset(),
    "failed": frozenset(),
    "crashed": frozenset({"pending", "abandoned"}),
    "cancelled": frozenset(),
    "abandoned": frozenset(),
}
"""Allowed moves of a decision."""

RUN_MOVES: Moves = {
    "created": frozenset({"running", "interrupted", "failed"}),
    # To itself: a controller that was killed left the run in this state, and another one takes
    # over.
    "running": frozenset({"running", "interrupted", "exhausted", "finished", "failed"}),
    "interrupted": frozenset({"running", "finished", "failed"}),
    # Its budget is used up; a larger one lets it go on.
    "exhausted": frozenset({"running", "finished"}),
    "finished": frozenset(),
    "failed": frozenset(),
}
"""Allowed moves of a run."""

TRIAL_STATES: tuple[str, ...] = tuple(TRIAL_MOVES)
DECISION_STATES: tuple[str, ...] = tuple(DECISION_MOVES)
RUN_STATES: tuple[str, ...] = tuple(RUN_MOVES)
EVALUATION_STATES: tuple[str, ...] = ("ok", "failed")

_TABLES: Mapping[str, Moves] = {
    "trial": TRIAL_MOVES,
    "decision": DECISION_MOVES,
    "run": RUN_MOVES,
}


def is_terminal(kind: str, state: str) -> bool:
    """Whether a trial, decision or run in that state never changes again.

    Example:
        >>> is_terminal("trial", "failed"), is_terminal("trial", "crashed")
        (True, False)
    """
    return not _TABLES[kind][state]


def sources(kind: str, target: str) -> tuple[str, ...]:
    """The states from which ``target`` may be reached.

    Example:
        >>> sources("trial", "stopped")
        ('waiting', 'paused')
    """
    return tuple(state for state, targets in _TABLES[kind].items() if target in targets)


def check_move(kind: str, what: str, source: str, target: str) -> None:
    """Refuse a move that the table of ``kind`` does not list.

    Args:
        kind: ``trial``, ``decision`` or ``run``.
        what: The thing that would move, for the message, such as ``trial 3``.
        source: Its state now.
        target: The state it should take.

    Raises:
        StateError: The move is not allowed, or a state is unknown.

    Example:
        >>> check_move("trial", "trial 3", "complete", "running")
        Traceback (most recent call last):
        lamps.errors.StateError: trial 3 is complete and cannot become running: complete is final.
    """
    table = _TABLES[kind]
    for state in (source, target):
        if state not in table:
            raise StateError(f"{what}: {state!r} is no {kind} state. Known: {', '.join(table)}.")
    if target in table[source]:
        return
    allowed = ", ".join(s for s in table if s in table[source])
    reason = f"from {source} it may become {allowed}" if allowed else f"{source} is final"
    raise StateError(f"{what} is {source} and cannot become {target}: {reason}.")
