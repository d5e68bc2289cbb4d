"""Searches as real processes that can be interrupted and killed, and what must hold afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import lamps
from lamps.scheduler.orphans import MARK


def write_curves(path: Path, n: int, *, seed: int = 0) -> Path:
    """``n`` falling curves with four landmarks and two objectives."""
    rng = np.random.default_rng(seed)
    lines = ["candidate,fidelity,elapsed_s,size,error,mb"]
    for i in range(n):
        start, end, mb = rng.uniform(0.5, 0.9), rng.uniform(0.05, 0.45), rng.uniform(1, 100)
        for level, fidelity in enumerate((0.0, 0.25, 0.5, 1.0)):
            error = end + (start - end) * (1 - fidelity) ** 2
            lines.append(f"c{i},{fidelity},{level + 1},{mb:.3f},{error:.6f},{mb:.3f}")
    path.write_text("\n".join(lines) + "\n")
    return path


class Call:
    """One ``lamps`` command in its own process group; its stderr is read when it has ended."""

    def __init__(self, *words: str, log: Path, **options: Any) -> None:
        self.log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "lamps", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=file,
                start_new_session=True,
                **options,
            )

    @property
    def pid(self) -> int:
        """Its process id, which is that of its group too."""
        return self.process.pid

    def interrupt(self, number: int = signal.SIGINT) -> None:
        """As a terminal does it: to every process of the group."""
        os.killpg(self.pid, number)

    def wait(self, timeout_s: float = 120.0) -> int:
        """The exit code."""
        self.process.communicate(timeout=timeout_s)
        return self.process.returncode

    def kill(self) -> None:
        """End it without warning; only the process itself, as the kernel's memory killer does."""
        self.process.kill()
        self.process.communicate(timeout=60)

    @property
    def stderr(self) -> str:
        """What it has said so far."""
        return self.log.read_text()

    def __enter__(self) -> Call:
        return self

    def __exit__(self, *_: object) -> None:
        left = left_behind(self.pid)
        if self.process.poll() is None:
            self.kill()
        for process in left:
            process.kill()


def until(condition: Callable[[], Any], timeout_s: float = 60.0, step_s: float = 0.02) -> Any:
    """The first true value of a condition; fails when it stays false."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not true within {timeout_s:g} s"
        time.sleep(step_s)
    return value


def evaluations(store: str, name: str) -> int:
    """Stored landmarks of a run; 0 while there is no run of that name."""
    opened = lamps.open_store(store)
    try:
        return next((r.n_evaluations for r in opened.runs() if r.name == name), 0)
    finally:
        opened.close()


def reached(store: str, name: str, n: int) -> Callable[[], bool]:
    """A condition for `until`: the run has so many landmarks."""
    return lambda: evaluations(store, name) >= n


def story(store: str, name: str) -> list[tuple[int, int]]:
    """(trial, landmark) of every decision that was carried out, in its order."""
    with lamps.open_store(store) as opened:
        decisions = opened.run(name).decisions()
    return [(d.trial_index, d.landmark) for d in decisions if d.state == "done"]


def front(store: str, name: str) -> list[tuple[int, dict[str, float]]]:
    """Index and values of each front member."""
    with lamps.open_store(store) as opened:
        return [(m.index, dict(m.values)) for m in opened.run(name).front()]


def at_rest(store: str, name: str) -> None:
    """Nothing runs, nothing is pending, nothing was counted twice, the database is whole."""
    with lamps.open_store(store) as opened:
        run = opened.run(name)
        assert opened.check() == []
        trials, decisions = run.trials(), run.decisions()
    assert "running" not in {t.state for t in trials}
    assert "pending" not in {d.state for d in decisions}
    for trial in trials:
        counted = Counter(e.landmark for e in trial.evaluations)
        assert set(counted.values()) <= {1}
    done = Counter(story(store, name))
    assert set(done.values()) <= {1}


def left_behind(pid: int) -> list[psutil.Process]:
    """Processes that a call has started and that are still there."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid == pid or process.status() == psutil.STATUS_ZOMBIE:
                continue
            owner = process.environ().get(MARK, "").partition(":")[0]
            if owner == str(pid) or os.getsid(process.pid) == pid:
                found.append(process)
        except (psutil.Error, ProcessLookupError):
            continue
    return found
