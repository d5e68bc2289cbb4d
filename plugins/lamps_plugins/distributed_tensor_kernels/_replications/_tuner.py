"""The tuner against all plans: an ordinary search by a policy on what an exhaustive one measured.

All plans are timed by a live search with the policy ``exhaustive``, and its landmarks become a
table. A second search replays that table under the default policy with a share of the time, so
both see the same numbers and a lucky measurement helps neither.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lamps.errors import MethodFailed
from lamps.tables import read_table

__all__ = ["Tuned", "tune"]

LIMIT_S = 1200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What both searches found.

    Args:
        found_ms: Full latency of the plan that the tuner would hand over.
        best_ms: That of the best plan.
        typical_ms: The median over plans.
        n_plans: Number of plans.
    """

    found_ms: float
    best_ms: float
    typical_ms: float
    n_plans: int


def _lamps(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "lamps", *arguments, "--json"],
        capture_output=True, text=True, check=False, timeout=LIMIT_S,
    )  # fmt: skip
    if done.returncode not in (0, 3):
        said = done.stderr.strip().splitlines()[-1:] or ["nothing"]
        raise MethodFailed(f"lamps {' '.join(arguments[:2])} failed: {said[0][:300]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def tune(
    operator: str, options: Mapping[str, str], *, samples: int, share: float, seed: int
) -> Tuned:
    """Time all plans, then search among them with a share of that time.

    Args:
        operator: Its name.
        options: Options of the problem, as on the command line.
        samples: Plans drawn from the whole space.
        share: Share of the time of all timed runs that the tuner may spend.
        seed: Root of the draw.

    Raises:
        MethodFailed: A search failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = ["--store", f"sqlite:///{folder}/tuner.db", "--seed", str(seed), "-q"]
        given = [word for name, value in options.items() for word in (f"--{name}", value)]
        problem = f"distributed-tensor-kernels:{operator}"
        _lamps(
            "search", "--problem", problem, *given, "--method", "ditron", "--method",
            "sequential", "--samples", str(samples), "--policy", "exhaustive", "--backend",
            "local", "--name", "all", "--artifacts", f"{folder}/all",
            "--objective", "latency_ms", *store,
        )  # fmt: skip
        file = Path(folder) / "plans.parquet"
        _lamps("table", "export", "all", str(file), *store[:2])
        table = read_table(str(file))
        column = [o.name for o in table.objectives].index("latency_ms")
        final = table.values[:, -1, column]
        cost = float(np.nansum(table.cost_s))
        tuned = _lamps(
            "search", "--problem", f"replay:{file}", "--backend", "replay", "--budget",
            f"{share * cost}s", "--workers", "1", "--objective", "latency_ms", "--name", "tuned",
            "--artifacts", f"{folder}/tuned", *store,
        )  # fmt: skip
        members = tuned["front"]["members"]
        chosen = [table.row(str(member["params"]["curve"])) for member in members]
    if not chosen:
        raise MethodFailed(f"the tuner finished no plan of {operator} with {share:g} of the time")
    return Tuned(
        found_ms=float(final[chosen].min()),
        best_ms=float(np.nanmin(final)),
        typical_ms=float(np.nanmedian(final)),
        n_plans=len(final),
    )
