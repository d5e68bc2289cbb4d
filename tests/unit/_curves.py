"""Small made-up landmark tables for tests of policies; nothing here is trained for long."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lamps.tables import LandmarkTable
from lamps.types import Objective

FIDELITIES = np.array([0.0, 0.25, 0.5, 1.0])


def curves(
    name: str = "t", n: int = 6, *, family: str = "made", seed: int = 0, objectives: int = 2
) -> LandmarkTable:
    """Curves that fall towards a value that large candidates reach better and pay more for."""
    rng = np.random.default_rng(seed)
    size = rng.uniform(1, 20, n)
    final = 0.6 / size**0.3 + rng.uniform(0, 0.1, n)
    error = final[:, None] + (0.9 - final[:, None]) * np.exp(-5 * FIDELITIES)
    columns = [error, np.repeat(size[:, None], 4, axis=1), error**2 + 0.01 * size[:, None]]
    return LandmarkTable(
        name=name,
        candidates=tuple(f"c{i}" for i in range(n)),
        objectives=tuple(Objective(o) for o in ("error", "mb", "loss")[:objectives]),
        fidelities=FIDELITIES,
        values=np.stack(columns[:objectives], axis=2),
        cost_s=size[:, None] * np.array([0.02, 1.0, 1.0, 2.0]),
        measured=np.ones((n, 4), dtype=bool),
        size=size,
        family=family,
    )


def write_csv(folder: Path, tables: list[LandmarkTable], name: str = "made") -> Path:
    """Long-form CSV as any tool would write it."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [o.name for o in tables[0].objectives]
    lines = [",".join(["problem", "family", "candidate", "fidelity", "elapsed_s", *names])]
    for table in tables:
        elapsed = table.elapsed_s()
        for i, label in enumerate(table.candidates):
            for k, fidelity in enumerate(table.fidelities):
                values = [repr(float(v)) for v in table.values[i, k]]
                cells = [table.name, table.family, label, repr(float(fidelity))]
                lines.append(",".join([*cells, repr(float(elapsed[i, k])), *values]))
    path = folder / f"{name}.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
