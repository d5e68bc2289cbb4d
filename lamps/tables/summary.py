"""A table in a few lines: its card, and where each candidate ended."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamps import pareto
from lamps.tables.table import LandmarkTable
from lamps.tables.writing import describe_tables


def card_of(table: LandmarkTable) -> dict[str, Any]:
    """What a card says about the table, with its fidelities and total cost."""
    described: dict[str, Any] = describe_tables([table])["tables"][0]
    return {
        **described,
        "fidelities": table.fidelities.tolist(),
        "total_cost_s": float(np.nansum(table.cost_s)),
        "front": [table.candidates[i] for i in np.flatnonzero(on_front(table))],
    }


def on_front(table: LandmarkTable) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Candidates on the front of those that reached the last fidelity. Shape: [n] bool."""
    return pareto.is_nondominated(
        np.where(table.measured[:, -1:], table.minimised()[:, -1], np.nan)
    )


def candidate_rows(table: LandmarkTable) -> list[dict[str, Any]]:
    """Each candidate at its last measured landmark."""
    front, censored = on_front(table), table.censored
    failed = np.flatnonzero(table.failed.any(axis=1)).tolist()
    last = table.measured.shape[1] - 1 - table.measured[:, ::-1].argmax(axis=1)
    rows = []
    for i, candidate in enumerate(table.candidates):
        state = "failed" if i in failed else "censored" if censored[i] else "finished"
        row: dict[str, Any] = {
            "candidate": candidate,
            "state": state,
            "front": bool(front[i]),
            "fidelity": float(table.fidelities[last[i]]),
            "cost_s": float(np.nansum(table.cost_s[i])),
            "size": float(table.size[i]) if np.isfinite(table.size[i]) else None,
        }
        for column, objective in enumerate(table.objectives):
            value = float(table.values[i, last[i], column])
            row[objective.name] = value if np.isfinite(value) else None
        rows.append(row)
    return rows
