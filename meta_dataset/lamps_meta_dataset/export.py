"""From the store of a build to the committed file: one table a task, and the card.

There are two clocks, wall and CPU time of the one thread that a build uses. One of them is the
cost, and the seconds of the other, summed up to a landmark, are a further objective: ``cpu_s`` or
``wall_s``. On an idle machine they agree; where other work ran beside, CPU time is what the
candidate would have taken without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

import lamps
from lamps.errors import ProblemError
from lamps.store import Store
from lamps.table_export import table_of_run
from lamps.tables import LandmarkTable, write_tables
from lamps.types import Objective
from lamps_meta_dataset import machine
from lamps_meta_dataset.build import PREFIX, Place, check_names
from lamps_meta_dataset.data import FILE
from lamps_meta_dataset.tasks import (
    FLOOR_OF_CLASS,
    LEAST_OF_CLASS,
    MOST_CHARACTERS,
    TASKS,
    Task,
)

Clock = Literal["wall", "cpu"]
CLOCKS = {
    "wall": Objective("wall_s", "s", noisy=True, doc="Wall seconds of the candidate so far."),
    "cpu": Objective("cpu_s", "s", noisy=True, doc="CPU seconds of the candidate so far."),
}
SECONDS = {"wall": "wall seconds", "cpu": "CPU seconds of one thread"}

HOW_MEASURED = (
    "One process a task, one landmark at a time, one thread. {cost} is elapsed_s, of fit, "
    "evaluation and checkpoint; {other} of the same is the objective {name}. Both are of the "
    "candidate alone: "
    "cached tokens, features, tokenizers and vectors are dropped before each candidate's turn, "
    "imports are paid before the first. peak_bytes is the largest resident memory of the process "
    "during a landmark and includes what the process held before. The machine had other work on "
    "its other core, which wall time, latency_ms, throughput and train_s show as noise."
)
MISSING = (
    "One seed of everything. No accelerator. Whole twelve-layer networks and decoders deeper than "
    "two layers are left out for their cost. Test scores exist for front members only and are not "
    "part of the tables. Equal texts, texts with two labels and classes with fewer than "
    f"{LEAST_OF_CLASS} texts are left out of the samples, every class has at least "
    f"{FLOOR_OF_CLASS} texts, texts are cut after {MOST_CHARACTERS} characters."
)


def table_of(
    store: Store, run: str, task: Task | None = None, *, clock: Clock = "wall"
) -> LandmarkTable:
    """The landmark table of a stored run, with both clocks.

    Args:
        store: The open store.
        run: Name of a run whose candidates have all started.
        task: Gives the table its name, source and licence.
        clock: Which one is the cost.

    Raises:
        StoreError: There is no such run.
        ProblemError: A candidate has no landmark yet.
    """
    table, trials = table_of_run(store, run), store.trials(store.run(run).id)
    if len(trials) != len(table.candidates):
        raise ProblemError(f"not every candidate of run {run!r} has started; run build first")
    cpu = np.full(table.cost_s.shape, np.nan)
    for i, trial in enumerate(trials):
        for found in trial.evaluations:
            if found.cost is not None:
                cpu[i, found.landmark] = found.cost.device_s
    cost, other = (table.cost_s, cpu) if clock == "wall" else (cpu, table.cost_s)
    so_far = np.where(table.failed, np.nan, np.nancumsum(other, axis=1))
    # Memory has a column of its own in the format.
    kept = [o.name for o in table.objectives if o.name != "peak_bytes"]
    table = table.select(np.arange(len(trials)), kept)
    return replace(
        table,
        name=task.name if task else table.name,
        objectives=(*table.objectives, CLOCKS["cpu" if clock == "wall" else "wall"]),
        values=np.concatenate([table.values, so_far[:, :, None]], axis=2),
        cost_s=cost,
        source=f"lamps {lamps.__version__} on {task.package}, measured {SECONDS[clock]}"
        if task
        else table.source,
        licence=task.licence if task else table.licence,
    )


def export(
    place: Place, target: Path = FILE, names: Sequence[str] = (), *, clock: Clock = "wall"
) -> list[str]:
    """Write the tables of all finished tasks with their card.

    Args:
        place: Where `build` measured.
        target: The Parquet file to write.
        names: Tasks; all of `TASKS` if empty.
        clock: Which one is the cost.

    Returns:
        Tasks that are not finished and therefore missing.

    Raises:
        ProblemError: No task is finished, or nothing was measured there.
    """
    ran_on = machine.recorded(place.folder)
    tables: list[LandmarkTable] = []
    about: dict[str, Any] = {}
    with Store.open(place.url) as store:
        finished = {r.name for r in store.runs() if r.state == "finished"}
        chosen = check_names(names)
        for name in chosen:
            if PREFIX + name in finished:
                tables.append(table_of(store, PREFIX + name, TASKS[name], clock=clock))
                about[name] = _about(store, PREFIX + name, TASKS[name])
    if not tables:
        raise ProblemError(f"no task is finished in {place.url}; run build first")
    card = {
        "title": "Landmark curves of text classifiers",
        "licence": "Apache-2.0 (the numbers); the texts are not part of it",
        "made_by": "python -m lamps_meta_dataset build; python -m lamps_meta_dataset export",
        "machine": ran_on,
        "how_measured": HOW_MEASURED.format(
            cost="Wall time" if clock == "wall" else "CPU time",
            other="CPU time" if clock == "wall" else "wall time",
            name="cpu_s" if clock == "wall" else "wall_s",
        ),
        "missing": MISSING,
        "tasks": about,
    }
    write_tables(target, tables, card)
    return [n for n in chosen if n not in about]


def _about(store: Store, run: str, task: Task) -> dict[str, Any]:
    """What the card says of a task."""
    record = store.run(run)
    facts: Mapping[str, Any] = record.problem_card
    trials = store.trials(record.id)
    errors = {t.label: t.error.split("\n")[0] for t in trials if t.error}
    costs = [e.cost for t in trials for e in t.evaluations if e.cost]
    return {
        "held_out": task.held_out,
        "language": task.language,
        "what": task.what,
        "package": task.package,
        "licence": task.licence,
        "texts": facts["rows_used"],
        "classes": len(facts["class_counts"]["train"]),
        "imbalance": round(facts["imbalance"], 2),
        "median_characters": facts["text_chars"]["p50"],
        "max_length": facts["max_length"],
        "landmarks": facts["landmarks"],
        "floor": {k: round(v, 4) for k, v in _floor(facts).items()},
        "wall_s": round(sum(c.wall_s for c in costs), 1),
        "cpu_s": round(sum(c.device_s for c in costs), 1),
        "failed": errors,
    }


def _floor(facts: Mapping[str, Any]) -> dict[str, float]:
    """Validation error of the answer that is always the most common training class."""
    train, val = (np.array(facts["class_counts"][s]) for s in ("train", "val"))
    return {"val_error": 1.0 - float(val[train.argmax()]) / float(val.sum())}
