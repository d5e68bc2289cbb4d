"""Ten thousand landmarks in one search: the driver's memory, the size of database and logs.

The method does nothing, so whatever grows is ours. The driver is a process of its own; its
resident memory is read every second, beside the landmarks that the database has at that moment.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
from bench_table import Figure, figure

import lamps
from lamps.errors import StoreError

CANDIDATES, LANDMARKS = 1_250, 8
WARM = 1_000
"""Landmarks after which memory should be flat."""


def _curves(path: Path) -> None:
    rows = ["candidate,fidelity,elapsed_s,size,error,mb"]
    for c in range(CANDIDATES):
        rows += [
            f"c{c},{k / (LANDMARKS - 1)},0,{c},{1 / (1 + c + k)},{c}" for k in range(LANDMARKS)
        ]
    path.write_text("\n".join(rows) + "\n")


def _bytes(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file() and not p.is_symlink())


def _done(store: str) -> int:
    with lamps.open_store(store) as opened:
        runs = opened.runs()
    return runs[0].n_evaluations if runs else 0


def measure() -> list[Figure]:
    """One search on Ray with two workers."""
    with tempfile.TemporaryDirectory() as text, tempfile.TemporaryDirectory(dir="/tmp") as rays:
        folder = Path(text)
        _curves(folder / "curves.csv")
        store = f"sqlite:///{folder}/lamps.db"
        command = [
            sys.executable, "-m", "lamps", "search", "--problem", f"replay:{folder}/curves.csv",
            "--policy", "exhaustive", "--workers", "2", "--name", "soak", "--store", store,
        ]  # fmt: skip
        log = folder / "log"
        started = time.perf_counter()
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=file,
                env=os.environ | {"RAY_TMPDIR": rays},
            )
        driver, samples, logs = psutil.Process(process.pid), [], [0]
        while process.poll() is None:
            # It may have just ended, or have no database yet.
            with contextlib.suppress(psutil.Error, StoreError):
                samples.append((_done(store), driver.memory_info().rss))
            logs.append(_bytes(Path(rays)))
            time.sleep(1.0)
        seconds = time.perf_counter() - started
        total = CANDIDATES * LANDMARKS
        if process.returncode or _done(store) != total:
            raise RuntimeError(
                f"the search ended with {process.returncode}: {log.read_text()[-500:]}"
            )
        seen = np.array(samples, dtype=float)
        warm = seen[(seen[:, 0] >= WARM) & (seen[:, 0] < 2 * WARM), 1]
        last = seen[seen[:, 0] >= total - WARM, 1]
        growth = float(np.median(last) / np.median(warm) - 1)
        size = sum(p.stat().st_size for p in folder.glob("lamps.db*"))
        stderr = log.stat().st_size
    note = (
        f"{np.median(warm) / 1e6:.0f} MB after the first {WARM:,}, {np.median(last) / 1e6:.0f} MB "
        f"at the end; {total / seconds:.0f} landmarks/s"
    )
    return [
        figure("driver's memory, growth over 10,000 landmarks", [growth], "", 0.2, note=note),
        figure("database per landmark", [size / total / 1e3], "kB", 5.0),
        figure("Ray's logs per landmark", [max(logs) / total / 1e3], "kB", 20.0),
        figure("progress on stderr per landmark", [stderr / total / 1e3], "kB", 1.0),
    ]
