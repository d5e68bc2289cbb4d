"""Ranks as child processes of whoever measures, started once and kept for the next plan.

A trial's worker starts its own ranks. They live as long as its pipes: when the worker ends in any
way, also by SIGKILL, each rank reads the end of its pipe and leaves. One group is kept a process.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol

from lamps.errors import MethodFailed
from lamps_plugins.distributed_tensor_kernels._calibrate import Calibration, measure
from lamps_plugins.distributed_tensor_kernels._job import Job, RankReport
from lamps_plugins.distributed_tensor_kernels._threads import ThreadGroup, in_threads
from lamps_plugins.distributed_tensor_kernels._transports import MEET_S, Link

__all__ = ["Group", "ProcessGroup", "close_group", "group_for"]

START_S = MEET_S + 30.0
"""Seconds within which all ranks must have answered."""

GRACE_S = 5.0
"""Seconds that ranks have to leave by themselves."""


class Group(Protocol):
    """Ranks that do a job together."""

    def run(self, job: Job) -> list[RankReport]:
        """Do a job on all ranks and return their reports, rank 0 first."""

    def calibrate(self) -> Calibration:
        """Measure what the cost model needs; once for a group."""

    def close(self) -> None:
        """End the ranks."""


class LocalGroup(ThreadGroup):
    """Ranks that are threads of this process."""

    _machine: Calibration | None = None

    def calibrate(self) -> Calibration:
        """See `Group`."""
        if self._machine is None:
            found = in_threads(self.world, measure, name=self.name, wait_s=self.wait_s)
            self._machine = found[0]
        return self._machine


class ProcessGroup:
    """Ranks that are processes.

    Args:
        world: Number of ranks.
        transport: ``shm``, ``gloo`` or ``simlink``.
        wait_s: Seconds after which a rank gives up a wait.
        link: What ``simlink`` simulates.

    Raises:
        MethodFailed: They do not start.
    """

    def __init__(self, world: int, transport: str, *, wait_s: float, link: Link) -> None:
        self.world, self.wait_s = world, wait_s
        self._machine: Calibration | None = None
        memory = Path("/dev/shm")
        base = memory if os.access(memory, os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="lamps-ranks-", dir=base))
        self._errors = [(self.folder / f"stderr-{r}").open("w+b") for r in range(world)]
        given: dict[str, Any] = {
            "world": world,
            "transport": transport,
            "folder": str(self.folder),
            "wait_s": wait_s,
            "alpha_us": link.alpha_us,
            "beta_mb_s": link.beta_mb_s,
        }
        self.ranks = [self._start(given | {"rank": rank}) for rank in range(world)]
        ready = self._answers("start", START_S)
        self.transport = str(ready[0]["transport"])

    def _start(self, given: dict[str, Any]) -> subprocess.Popen[bytes]:
        single = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        # Ranks of one machine talk over its loopback, whatever else it is connected to.
        own = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "GLOO_SOCKET_IFNAME": "lo"}
        return subprocess.Popen(
            [sys.executable, "-m", f"{__package__}._rank", json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors[given["rank"]],
            env=os.environ | single | own,
        )

    def run(self, job: Job) -> list[RankReport]:
        """Do a job on all ranks.

        Raises:
            MethodFailed: A rank failed or died; the group is closed then.
        """
        found = self._ask({"kind": "run", **job.as_json()}, job.operator, self._limit_s(job))
        return [RankReport(**report) for report in found]

    def calibrate(self) -> Calibration:
        """See `Group`."""
        if self._machine is None:
            found = self._ask({"kind": "calibrate"}, "calibrate", START_S)
            self._machine = Calibration(**found[0])
        return self._machine

    def _limit_s(self, job: Job) -> float:
        """Far above what a job takes: each of its waits is bounded by itself."""
        return 600.0 + (job.warmups + job.repetitions) * 2 * self.wait_s

    def _ask(self, asked: dict[str, Any], what: str, limit_s: float) -> list[dict[str, Any]]:
        line = json.dumps(asked).encode() + b"\n"
        for rank, process in enumerate(self.ranks):
            try:
                _pipe(process.stdin).write(line)
                _pipe(process.stdin).flush()
            except (BrokenPipeError, ValueError) as error:
                raise self._failed(self._death(rank, what)) from error
        return self._answers(what, limit_s)

    def _answers(self, what: str, limit_s: float) -> list[dict[str, Any]]:
        """One line from every rank.

        Raises:
            MethodFailed: A rank failed, died or took too long.
        """
        found: dict[int, dict[str, Any]] = {}
        with selectors.DefaultSelector() as selector:
            for rank, process in enumerate(self.ranks):
                selector.register(_pipe(process.stdout), selectors.EVENT_READ, rank)
            end = time.monotonic() + limit_s
            while len(found) < self.world:
                events = selector.select(max(end - time.monotonic(), 0.0))
                if not events:
                    late = [r for r in range(self.world) if r not in found]
                    raise self._failed(f"ranks {late} did not answer {what} in {limit_s:g} s")
                for key, _ in events:
                    line = _pipe(self.ranks[key.data].stdout).readline()
                    if not line:
                        raise self._failed(self._death(key.data, what))
                    answer = json.loads(line)
                    if "error" in answer:
                        raise self._failed(self._cause(key.data, what, answer["error"]))
                    found[key.data] = answer
                    selector.unregister(key.fileobj)
        return [found[rank] for rank in range(self.world)]

    def _cause(self, rank: int, what: str, error: str) -> str:
        """The error of a rank, unless another one died and is the reason for it."""
        for other, process in enumerate(self.ranks):
            if other != rank and process.poll() is not None:
                return f"{self._death(other, what)}; {error}"
        return error

    def _death(self, rank: int, what: str) -> str:
        try:
            code = self.ranks[rank].wait(GRACE_S)
        except subprocess.TimeoutExpired:
            return f"rank {rank} of {self.world} closed its pipe during {what}"
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self._errors[rank].seek(0)
        tail = self._errors[rank].read().decode(errors="replace").strip().splitlines()[-1:]
        said = f": {tail[0][:200]}" if tail else ""
        return f"rank {rank} of {self.world} died by {how} during {what}{said}"

    def _failed(self, message: str) -> MethodFailed:
        self.close()
        return MethodFailed(message)

    def close(self) -> None:
        """End all ranks and delete what they shared; harmless when repeated."""
        for process in self.ranks:
            with contextlib.suppress(BrokenPipeError, ValueError):  # it is gone already
                _pipe(process.stdin).write(b"\n")
                _pipe(process.stdin).close()
        end = time.monotonic() + GRACE_S
        for process in self.ranks:
            try:
                process.wait(max(end - time.monotonic(), 0.05))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            _pipe(process.stdout).close()
        for file in self._errors:
            file.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def alive(self) -> bool:
        """Whether all ranks run."""
        return all(process.poll() is None for process in self.ranks)


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


_KEPT: dict[tuple[Any, ...], Group] = {}
_LOCK = threading.RLock()


@contextlib.contextmanager
def group_for(world: int, transport: str, *, wait_s: float, link: Link) -> Iterator[Group]:
    """The group of these ranks, for one user at a time.

    It is kept when it was the last one used, and closed when another is asked for, after an error,
    or when this process ends.

    Raises:
        ConfigError: The transport does not exist, or needs a GPU that is not there.
        MethodFailed: The ranks do not start.
    """
    key = (os.getpid(), world, transport, wait_s, link)
    with _LOCK:
        if key not in _KEPT:
            close_group()
            if transport == "stream":
                from lamps_plugins.distributed_tensor_kernels._transports.stream import require_gpu

                require_gpu()
            if transport in ("loop", "stream"):
                _KEPT[key] = LocalGroup(world, transport, wait_s=wait_s)
            else:
                _KEPT[key] = ProcessGroup(world, transport, wait_s=wait_s, link=link)
        try:
            yield _KEPT[key]
        except BaseException:
            # Ranks that were interrupted may be anywhere; the next job gets new ones.
            close_group()
            raise


def close_group() -> None:
    """End the group that is kept, where there is one."""
    with _LOCK:
        for key in list(_KEPT):
            group = _KEPT.pop(key)
            if key[0] == os.getpid():  # a forked child does not own its parent's ranks
                group.close()


atexit.register(close_group)
