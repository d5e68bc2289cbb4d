"""Eight searches and a reader at once on one PostgreSQL server, with landmarks that do nothing.

Each search is a process; when one ends, the next begins, until the time is over. Nothing may be
lost, nobody may see a deadlock. LAMPS_SOAK_S sets the time (600 s).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from bench_table import Figure, figure

sys.path.insert(0, str(Path(__file__).parents[1] / "store"))

from _postgres import PostgresServer, find_binaries

import lamps

SECONDS = float(os.environ.get("LAMPS_SOAK_S", "600"))
SEARCHES, CANDIDATES, LANDMARKS = 8, 25, 8

SEARCHER = """
import sys, time


import lamps
end, table, url, root, number = float(sys.argv[1]), *sys.argv[2:6]
done = 0
while time.time() < end:
    lamps.search(problem=f"replay:{table}", policy="random", backend="local", store=url,
                 artifacts=root, name=f"{number}-{done}", seed=done)
    done += 1
print(done)
"""

READER = """
import sys, time, lamps
end, url, took = float(sys.argv[1]), sys.argv[2], []
while time.time() < end:
    start = time.perf_counter()
    with lamps.open_store(url) as store:
        for run in store.runs()[:8]:
            store.run(run.name).front(unfinished=True)
    took.append(time.perf_counter() - start)
print(len(took), sorted(took)[len(took) // 2])
"""


def _curves(path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = ["candidate,fidelity,elapsed_s,size,error,mb"]
    for c in range(CANDIDATES):
        values = np.sort(rng.random(LANDMARKS))[::-1]
        rows += [f"c{c},{k / (LANDMARKS - 1)},0,{c},{values[k]},{c}" for k in range(LANDMARKS)]
    path.write_text("\n".join(rows) + "\n")


def measure() -> list[Figure]:
    """All processes end by themselves when the time is over."""
    binaries = find_binaries()
    if binaries is None:
        raise RuntimeError("no PostgreSQL server is installed (looked for initdb and pg_ctl)")
    with PostgresServer(binaries) as server, tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        _curves(folder / "curves.csv")
        url = server.url()
        lamps.open_store(url).close()  # the schema is there before all begin
        end = str(time.time() + SECONDS)
        started = time.perf_counter()
        common = [str(folder / "curves.csv"), url, str(folder / "artifacts")]
        calls = [[SEARCHER, end, *common, str(i)] for i in range(SEARCHES)] + [[READER, end, url]]
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for words in calls
        ]
        said = [process.communicate() for process in processes]
        seconds = time.perf_counter() - started
        for process, (_, error) in zip(processes, said, strict=True):
            if process.returncode:
                raise RuntimeError(f"a process ended with {process.returncode}: {error[-800:]}")
        searches = sum(int(out) for out, _ in said[:-1])
        reads, median = said[-1][0].split()
        with lamps.open_store(url) as store:
            problems = store.check()
            runs = store.runs()
        log = (server.folder / "log").read_text()
    landmarks = sum(r.n_evaluations for r in runs)
    lost = searches * CANDIDATES * LANDMARKS - landmarks
    note = (
        f"{searches} searches by {SEARCHES} processes in {seconds:.0f} s, {landmarks} landmarks "
        f"({landmarks / seconds:.0f}/s), {reads} reads of {float(median):.2f} s beside them"
    )
    return [
        figure("PostgreSQL, eight searches and a reader: rows lost", [lost], "", 0, note=note),
        figure("PostgreSQL: faults found by lamps store check", [len(problems)], "", 0),
        figure("PostgreSQL: deadlocks in the server's log", [log.count("deadlock")], "", 0),
    ]
