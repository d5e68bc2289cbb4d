"""The ranks that work together, as one of them sees them.

A mesh counts what leaves this rank and what it holds besides its operands, and owns the thread
that sends while the rank computes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lamps.errors import MethodFailed
from lamps_plugins.distributed_tensor_kernels._transports import Transport

__all__ = ["Conditions", "DeviceMesh"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Circumstances under which a plan is tried in tests.

    Args:
        slow_rank: The rank that begins late; -1 for none.
        slow_s: By how many seconds.
        heed: Whether waits wait. Without, they return at once and a rank reads what lies there:
            results must then be wrong, which shows that signals matter.
    """

    slow_rank: int = -1
    slow_s: float = 0.0
    heed: bool = True


class DeviceMesh:
    """A group of ranks over one transport.

    Args:
        transport: This rank's endpoint.
        operation: What is run, for messages.
        conditions: See `Conditions`.

    Attributes:
        bytes_sent: Bytes of payload that this rank has put, since the mesh was made.
        held_bytes: Bytes of symmetric memory and scratch that this rank holds.
    """

    def __init__(
        self,
        transport: Transport,
        operation: str = "operation",
        conditions: Conditions | None = None,
    ) -> None:
        self.transport, self.operation = transport, operation
        self.conditions = conditions or Conditions()
        self.device = torch.device("cuda" if transport.name == "stream" else "cpu")
        self.bytes_sent = self.held_bytes = 0
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="sender")
        self._sent: list[Future[Any]] = []

    def rank(self) -> int:
        """This rank, from 0."""
        return self.transport.rank

    def num_ranks(self) -> int:
        """W."""
        return self.transport.world

    @property
    def others(self) -> tuple[int, ...]:
        """All ranks but this one, the next one first."""
        world = self.num_ranks()
        return tuple((self.rank() + step) % world for step in range(1, world))

    def barrier(self) -> None:
        """Wait for all ranks.

        Raises:
            MethodFailed: One did not come in time.
        """
        self.transport.barrier()

    def begin(self) -> None:
        """Be late where the conditions say so."""
        if self.conditions.slow_rank == self.rank():
            time.sleep(self.conditions.slow_s)

    def scratch(self, *shape: int) -> Tensor:
        """Memory of an operator besides its operands and results, counted. float32."""
        made = torch.empty(shape, device=self.device)
        self.held_bytes += made.numel() * made.element_size()
        return made

    def later(self, job: Callable[[], Any]) -> Future[Any]:
        """Run a job in the thread that sends, after the jobs before it.

        On a stream transport copies leave the host at once, so the job runs here and now.
        """
        if self.transport.name == "stream":
            done: Future[Any] = Future()
            done.set_result(job())
            return done
        future = self._sender.submit(job)
        self._sent.append(future)
        return future

    def join(self) -> None:
        """Wait for all jobs.

        Raises:
            MethodFailed: One failed, or none ended in time.
        """
        sent, self._sent = self._sent, []
        for future in sent:
            self.result(future)

    def result(self, future: Future[Any]) -> Any:
        """What a job gave; bounded like every wait."""
        try:
            # A job may itself wait as long as is allowed, for one rank after the other.
            return future.result((self.num_ranks() + 1) * self.transport.wait_s)
        except LateError as error:
            raise MethodFailed(
                f"rank {self.rank()} could not send in {self.operation} within "
                f"{self.transport.wait_s:g} s a message"
            ) from error

    def close(self) -> None:
        """End the thread; the transport stays open."""
        self._sender.shutdown(wait=False, cancel_futures=True)
