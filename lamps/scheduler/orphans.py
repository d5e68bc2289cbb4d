"""Processes that outlive their owner: find them by a mark in their environment and end them.

Ray's helpers of a raylet that was killed notice it after a minute or so. Everything that a cluster
of ours starts inherits the mark of the process that started it, so what is left can be told from
anybody else's processes. Linux only; elsewhere Ray's own clean-up has to do.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MARK = "LAMPS_OWNER"
ROUNDS = 20


@contextmanager
def marked_children() -> Iterator[None]:
    """Let what is started meanwhile, and all that it starts later, carry this process's mark.

    Only meanwhile: a notebook's other children are not ours to end.
    """
    before = os.environ.get(MARK)
    os.environ[MARK] = _identity(os.getpid()) or str(os.getpid())
    try:
        yield
    finally:
        if before is None:
            del os.environ[MARK]
        else:
            os.environ[MARK] = before


def end_children(*, patience_s: float = 3.0) -> None:
    """End whatever still runs with this process's mark, and helpers that have lost it."""
    own = _identity(os.getpid())
    _end(lambda: [*(pid for pid, owner in _marked() if owner == own), *_stray()], patience_s)


def end_orphans() -> None:
    """End what runs with the mark of a process that is gone, such as one that was killed."""

    def gone() -> list[int]:
        return [
            pid
            for pid, owner in _marked()
            if (number := owner.partition(":")[0]).isdigit() and _identity(int(number)) != owner
        ]

    _end(gone, 0.0)


def _identity(pid: int) -> str | None:
    """Process id and start time: ids are used again, the pair is not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else f"{pid}:{fields[19]}"


def _marked() -> Iterator[tuple[int, str]]:
    prefix = f"{MARK}=".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        if pid == os.getpid():
            continue
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue  # it has ended, or belongs to someone else
        for entry in environment.split(b"\0"):
            if entry.startswith(prefix):
                yield pid, entry[len(prefix) :].decode(errors="replace")


def _stray() -> Iterator[int]:
    """Ray's helpers in our session whose raylet is gone.

    A process that gives itself a title writes it over its environment, where the mark may be.
    """
    session = os.getsid(0)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if not (folder / "cmdline").read_bytes().startswith(b"ray::"):
                continue
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            parent = Path(f"/proc/{stat[1]}/comm").read_text().strip()
        except (OSError, IndexError):
            continue  # it has ended
        if stat[0] != "Z" and int(stat[3]) == session and parent != "raylet":
            yield int(folder.name)


def _end(find: Callable[[], list[int]], patience_s: float) -> None:
    """Give them a moment to end on their own, then kill them.

    Looked for anew each time, because what is ending may still have been starting something.
    """
    deadline = time.monotonic() + patience_s
    while (pids := find()) and time.monotonic() < deadline:
        time.sleep(0.05)
    for _ in range(ROUNDS):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not pids:
            return
        time.sleep(0.05)
        pids = find()
