"""Ranks as threads of this process, for the transports ``loop`` and ``stream``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from lamps.errors import MethodFailed
from lamps_plugins.distributed_tensor_kernels._job import Job, RankReport, do
from lamps_plugins.distributed_tensor_kernels._transports import Transport
from lamps_plugins.distributed_tensor_kernels._transports.loop import LoopTransport, Wire

__all__ = ["ThreadGroup", "in_threads"]

T = TypeVar("T")


def in_threads(
    world: int,
    work: Callable[[Transport], T],
    *,
    name: str = "loop",
    wait_s: float = 60.0,
    endpoint: type[LoopTransport] = LoopTransport,
) -> list[T]:
    """Do the same on every rank of a new group of threads.

    Args:
        world: Number of ranks.
        work: What a rank does with its transport.
        name: ``loop``, or ``stream`` for virtual ranks on one GPU.
        wait_s: Seconds after which a wait is given up.
        endpoint: Transport of ``loop``.

    Returns:
        What each rank gave.

    Raises:
        MethodFailed: What the first rank that failed raised; the others are told.
    """
    wire = Wire(world)
    found: list[T | None] = [None] * world
    failed: list[tuple[int, Exception]] = []

    def rank_main(rank: int) -> None:
        try:
            if name == "stream":
                from lamps_plugins.distributed_tensor_kernels._transports.stream import on_stream

                found[rank] = on_stream(rank, world, wire, wait_s, work)
            else:
                found[rank] = work(endpoint(rank, world, wire, wait_s=wait_s))
        except Exception as error:
            # Whatever it was, the other ranks must not wait for this one.
            failed.append((rank, error))
            wire.abort()

    threads = [
        threading.Thread(target=rank_main, args=(rank,), name=f"rank-{rank}", daemon=True)
        for rank in range(world)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        # The first is the cause; ranks that waited for it in vain come after it.
        raise failed[0][1]
    return [x for x in found if x is not None]


class ThreadGroup:
    """Ranks that are threads while they have a job.

    Args:
        world: Number of ranks.
        name: ``loop`` or ``stream``.
        wait_s: Seconds after which a wait is given up.
    """

    def __init__(self, world: int, name: str, *, wait_s: float) -> None:
        self.world, self.name, self.wait_s = world, name, wait_s

    def run(self, job: Job) -> list[RankReport]:
        """Do a job on all ranks.

        Raises:
            MethodFailed: A rank failed.
        """
        reports = in_threads(self.world, lambda t: do(job, t), name=self.name, wait_s=self.wait_s)
        if len(reports) != self.world:
            raise MethodFailed(f"{len(reports)} of {self.world} ranks reported")
        return reports

    def close(self) -> None:
        """Nothing is left of a group of threads."""
