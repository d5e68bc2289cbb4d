"""What is odd about a table, although it could be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from lamps import pareto
from lamps.tables.table import LandmarkTable


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to know about a table.

    Args:
        level: ``error`` makes it useless, ``warning`` makes it doubtful, ``note`` is a fact.
        table: Its name.
        text: One sentence.
    """

    level: Literal["error", "warning", "note"]
    table: str
    text: str


def check_table(table: LandmarkTable) -> list[Finding]:
    """Everything that speaks against training or judging a policy with a table.

    Returns:
        Findings, errors first; empty for a table without oddities.
    """
    found: list[Finding] = []

    def say(level: Literal["error", "warning", "note"], text: str) -> None:
        found.append(Finding(level, table.name, text))

    n, k = table.measured.shape
    final = table.minimised()[:, -1]
    finished = np.isfinite(final).all(axis=1) & table.measured[:, -1]
    failed, censored = table.failed, table.censored
    if not finished.any():
        say("error", f"none of {n} candidates reached the last fidelity; there is no front")
    if n == 1:
        say("warning", "one candidate: nothing to select")
    elif finished.any():
        front = pareto.is_nondominated(final)
        if front.sum() == finished.sum() > 1:
            say("warning", f"all {front.sum()} finished candidates are Pareto: nothing to select")
        distinct = len(np.unique(final[finished], axis=0))
        if distinct == 1 and finished.sum() > 1:
            say("warning", "all finished candidates have the same values")
        for column, objective in enumerate(table.objectives):
            values = final[finished, column]
            if len(values) > 1 and distinct > 1 and (values == values[0]).all():
                say("warning", f"objective {objective.name!r} is the same for all candidates")
    spent = np.nan_to_num(table.cost_s)
    if not spent.any():
        say("warning", "every landmark costs nothing; time cannot be compared")
    unknown = int((table.measured & np.isnan(table.cost_s)).sum())
    if unknown:
        say("warning", f"{unknown} measured landmarks have no cost")
    later = np.logical_or.accumulate(failed, axis=1)[:, :-1] & (
        table.measured[:, 1:] & ~failed[:, 1:]
    )
    if later.any():
        say("note", f"{later.any(axis=1).sum()} candidates went on after a failed landmark")
    gaps = ~table.measured & (np.cumsum(table.measured[:, ::-1], axis=1)[:, ::-1] > 0)
    if gaps.any():
        say("note", f"{gaps.sum()} landmarks in the middle of curves were not measured")
    if k == 1:
        say("note", "one fidelity: there are no landmarks to learn from")
    if failed.any():
        say("note", f"{failed.any(axis=1).sum()} of {n} candidates failed")
    if censored.any():
        say("note", f"{censored.sum()} of {n} candidates were stopped early (censored)")
    if not np.isfinite(table.size).all():
        say("note", f"{(~np.isfinite(table.size)).sum()} of {n} candidates have no size")
    order = {"error": 0, "warning": 1, "note": 2}
    return sorted(found, key=lambda f: order[f.level])
