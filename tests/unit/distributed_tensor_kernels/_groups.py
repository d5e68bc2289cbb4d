"""Ranks as threads for tests, with answers as whole tensors."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
import torch
from lamps_plugins.distributed_tensor_kernels._job import Job, RankReport
from lamps_plugins.distributed_tensor_kernels._mesh import Conditions, DeviceMesh
from lamps_plugins.distributed_tensor_kernels._operators import operator_class
from lamps_plugins.distributed_tensor_kernels._plan import Plan
from lamps_plugins.distributed_tensor_kernels._threads import ThreadGroup, in_threads
from lamps_plugins.distributed_tensor_kernels._transports._base import Channel, Transport
from lamps_plugins.distributed_tensor_kernels._transports.loop import (
    LoopChannel,
    LoopTransport,
    Wire,
)
from torch import Tensor

SMALL = Plan(block_m=16, block_n=32)


def reports(
    operator: str, shape: Mapping[str, int], plan: Plan, world: int, **settings: Any
) -> list[RankReport]:
    """Reports of a job on threads, with little waiting."""
    settings = {"warmups": 3, "repetitions": 1, **settings}
    job = Job(operator=operator, shape=dict(shape), plan=plan, **settings)
    return ThreadGroup(world, "loop", wait_s=10.0).run(job)


def digests(*args: Any, **settings: Any) -> list[str]:
    """Hashes of the bits of every rank's answer."""
    return [report.digest for report in reports(*args, **settings)]


def answers(
    operator: str,
    shape: Mapping[str, int],
    plan: Plan,
    world: int,
    *,
    full: Mapping[str, Tensor] | None = None,
    endpoint: type[LoopTransport] = LoopTransport,
    conditions: Conditions | None = None,
    repetitions: int = 1,
) -> list[Tensor]:
    """Answers of all ranks after some repetitions on the same operands."""
    cls = operator_class(operator)
    given = dict(full) if full is not None else cls.draw(shape, 0)

    def work(transport: Transport) -> Tensor:
        mesh = DeviceMesh(transport, operator, conditions)
        try:
            made = cls(mesh, shape, plan)
            own = cls.local(given, shape, transport.rank, world)
            for value in range(1, repetitions + 1):
                found = made.run(own, value).clone()
            mesh.barrier()
            made.close()
            return found
        finally:
            mesh.close()

    return in_threads(world, work, wait_s=10.0, endpoint=endpoint)


class ShuffledTransport(LoopTransport):
    """Headers arrive late and in another order than they were sent."""

    def allocate(self, cells: int, n_bytes: int, words: int) -> Channel:
        channel = ShuffledChannel(self, self._made, cells, n_bytes, words)
        self.wire.channels[self._made, self.rank] = channel
        self._made += 1
        self.barrier()
        return channel


class ShuffledChannel(LoopChannel):
    """Holds each header back for a random moment, on a thread of its own."""

    random = Random(0)

    def notify(self, dst: int, cell: int, header: np.ndarray) -> None:
        late = self.random.uniform(0.0, 0.01)
        threading.Timer(late, super().notify, (dst, cell, header.copy())).start()


def wire(world: int, wait_s: float = 5.0) -> list[LoopTransport]:
    """Endpoints of one group for a test that plays all ranks itself."""
    shared = Wire(world)
    return [LoopTransport(rank, world, shared, wait_s=wait_s) for rank in range(world)]


def same(found: list[Tensor], wanted: list[Tensor]) -> bool:
    """Equal bits on every rank."""
    return all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
