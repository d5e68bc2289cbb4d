"""What a search says about itself while it runs, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lamps.scheduler.budget import Spent
from lamps.store import Trial
from lamps.types import Evaluation

Ending = Literal["finished", "exhausted", "interrupted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a listener is told after every change.

    Args:
        event: ``start``, ``decide``, ``ok``, ``failed``, ``crashed``, ``test`` or ``end``.
        trial: Index of the trial it concerns; -1 for the run.
        landmark: Index of the landmark; -1 for the run.
        evaluation: What was measured, if anything.
        error: First line of what went wrong.
        counts: Trials: ``complete``, ``paused``, ``waiting``, ``running``, ``failed``.
        front_size: Finished trials on the front.
        hypervolume: Volume of the finished front up to the run's current reference point.
        budget_used: Largest used share of any bound.
        spent: What the run has spent.
        decision_s: Seconds that the policy took, with ``decide``.
        landmark_s: Seconds that the landmark took in its worker, where that is known.
    """

    event: str
    trial: int = -1
    landmark: int = -1
    evaluation: Evaluation | None = None
    error: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    front_size: int = 0
    hypervolume: float = 0.0
    budget_used: float = 0.0
    spent: Spent = field(default_factory=Spent)
    decision_s: float = 0.0
    landmark_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a call of `Controller.execute` ended."""

    ending: Ending
    reason: str
    n_failed: int
    n_complete: int


Listener = Callable[[Progress], None]


def both(first: Listener | None, second: Listener | None) -> Listener | None:
    """One listener for two, either of which may be missing."""
    if first is None or second is None:
        return first or second

    def tell(progress: Progress) -> None:
        first(progress)
        second(progress)

    return tell


def all_failed_message(trials: Sequence[Trial]) -> str:
    """One line for a run in which no candidate reached its last landmark because all failed."""
    first = next((t for t in trials if t.error), None)
    reason = first.error.split("\n")[0] if first and first.error else "no reason was recorded"
    label = first.label if first else "?"
    return f"all {len(trials)} candidates failed; the first, {label}, with: {reason}"
