"""A run of 1,000 trials whose controller is killed in the middle.

From ``resume`` to its next decision.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_table import Figure, figure

import lamps
from lamps.types import Budget

TRIALS = 1000


def write_curves(path: Path) -> None:
    """One curve per trial, four landmarks each."""
    rows = ["candidate,fidelity,elapsed_s,size,error,mb"]
    for c in range(TRIALS):
        rows += [
            f"c{c},{f},{i},{c},{1 / (1 + c % 97 + i)},{c}" for i, f in enumerate((0, 0.25, 0.5, 1))
        ]
    path.write_text("\n".join(rows) + "\n")


def measure() -> list[Figure]:
    """Kill -9 after about half of the landmarks, then resume for one landmark more."""
    times = []
    for repetition in range(3):
        with tempfile.TemporaryDirectory() as folder:
            curves = Path(folder) / "curves.csv"
            write_curves(curves)
            url = f"sqlite:///{folder}/lamps.db"
            driver = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "lamps",
                    "search",
                    "--problem",
                    f"replay:{curves}",
                    "--backend",
                    "local",
                    "--policy",
                    "round-robin",
                    "--store",
                    url,
                    "--name",
                    "r",
                    "--quiet",
                ],
                stdout=subprocess.DEVNULL,
            )
            while (
                not Path(folder, "lamps.db").exists() or _decisions(url) < 1800 + 200 * repetition
            ):
                time.sleep(0.5)
            os.kill(driver.pid, signal.SIGKILL)
            driver.wait()
            before = _decisions(url)
            start = time.perf_counter()
            lamps.resume("r", store=url, budget=Budget(landmarks=before + 1))
            times.append(time.perf_counter() - start)
    return [
        figure(f"resume at {TRIALS:,} trials, to the end of one more landmark", times, "s", 10.0)
    ]


def _decisions(url: str) -> int:
    store = lamps.open_store(url)
    try:
        runs = store.runs()
        return store.run("r").record.n_decisions if runs else 0
    finally:
        store.close()
