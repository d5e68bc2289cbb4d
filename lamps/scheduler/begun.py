"""Whether a search was begun before: one command that may be given again and again.

Schedulers requeue: a batch system after a node failed, a cluster's job that is submitted anew. The
same command then goes on with the run instead of being refused for its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lamps.errors import StateError, StoreError
from lamps.scheduler.progress import Ending, Outcome
from lamps.store import RunSpec, Store
from lamps.types import Budget

_ENDED: dict[str, Ending] = {"finished": "finished", "exhausted": "exhausted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A run that exists already.

    Args:
        outcome: How it stands.
        ended: Whether it needs nothing more.
        budget: The budget to go on with; None keeps the old one.
    """

    outcome: Outcome
    ended: bool
    budget: Budget | None


def begun_before(store: Store, spec: RunSpec) -> Begun | None:
    """The run of a spec's name, if it was asked for in the same words; None if there is none.

    Raises:
        StateError: There is a run of that name that was asked for in other words, or for other
            data. Budget, workers, backend and address may differ.
    """
    try:
        run = store.run(spec.name)
    except StoreError:
        return None
    asked: dict[str, tuple[Any, Any]] = {
        "data": (run.problem_fingerprint, spec.problem_fingerprint),
        "policy": (run.settings.get("policy"), spec.settings["policy"]),
        "samples": (run.settings.get("samples"), spec.settings["samples"]),
        "objectives": (tuple(run.front_objectives), tuple(spec.front_objectives)),
        "seed": (run.seed, spec.seed),
    }
    before: Any = run.settings.get("asked") or {}
    wanted: Any = spec.settings["asked"]
    # The words of the command; its "data" is a path, which may hold other data by now.
    words = {f"--{key}": (before.get(key), value) for key, value in wanted.items()}
    for what, (then, now) in (words | asked).items():
        if then != now:
            raise StateError(
                f"run {spec.name!r} exists already and differs in its {what}: it has {then!r}, "
                f"now it is {now!r}. Take another name, or ask for the same"
            )
    trials = store.trials(run.id)
    outcome = Outcome(
        ending=_ENDED.get(run.state, "interrupted"),
        reason=run.note or run.state,
        n_failed=sum(t.state in ("failed", "crashed") for t in trials),
        n_complete=sum(t.state == "complete" for t in trials),
    )
    changed = None if run.budget == spec.budget else spec.budget
    ended = run.state == "finished" or (run.state == "exhausted" and changed is None)
    return Begun(outcome=outcome, ended=ended, budget=changed)
