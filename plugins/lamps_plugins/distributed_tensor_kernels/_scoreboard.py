"""Runs a schedule: workers take their queues and tell each other on a scoreboard what is done.

The board has a number for each node, the repetition in which it last ran; so it is never cleared.
Workers are threads: the bodies of tiles spend their time in products, which release the
interpreter's lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from lamps.errors import MethodFailed
from lamps_plugins.distributed_tensor_kernels._schedule import Schedule, Step

__all__ = ["Scoreboard"]


@dataclass(slots=True)
class _Failure:
    error: BaseException | None = None


class Scoreboard:
    """A schedule that can be run again and again.

    Args:
        plan: Queues of steps.
        n_nodes: Number of nodes.
        body: Runs a node.
        wait_s: Seconds after which a worker gives up waiting for another one.
        name: What is run, for messages.
        heed: Whether workers wait at all; off only to show that it matters.
    """

    def __init__(
        self,
        plan: Schedule,
        n_nodes: int,
        body: Callable[[int], None],
        *,
        wait_s: float = 60.0,
        name: str = "graph",
        heed: bool = True,
    ) -> None:
        self.plan, self.body, self.wait_s, self.name = plan, body, wait_s, name
        self.heed = heed
        self.board = np.zeros(n_nodes, dtype=np.int32)
        self._changed = threading.Condition()
        self._failure = _Failure()
        extra = len(plan.queues) - 1
        self._threads = ThreadPoolExecutor(extra, thread_name_prefix="worker") if extra else None

    def run(self, value: int) -> None:
        """Run every node once.

        Args:
            value: Number of the repetition, from 1, rising.

        Raises:
            MethodFailed: A worker waited too long.
            Exception: What the body of a node raised.
        """
        self._failure = _Failure()
        first, *others = self.plan.queues
        futures = []
        if self._threads is not None:
            futures = [self._threads.submit(self._work, queue, value) for queue in others]
        self._work(first, value)
        for future in futures:
            future.result()
        if self._failure.error is not None:
            raise self._failure.error

    def _work(self, queue: Sequence[Step], value: int) -> None:
        try:
            for step in queue:
                for first, last in step.waits:
                    if not self._wait(first, last, value, step.node):
                        return
                self.body(step.node)
                with self._changed:
                    self.board[step.node] = value
                    self._changed.notify_all()
        except BaseException as error:
            # All workers must stop; `run` raises it again.
            with self._changed:
                self._failure.error = self._failure.error or error
                self._changed.notify_all()

    def _wait(self, first: int, last: int, value: int, node: int) -> bool:
        """Whether the nodes have run; False once another worker has failed."""
        if not self.heed:
            return True
        with self._changed:
            done = self._changed.wait_for(
                lambda: (
                    self._failure.error is not None
                    or bool((self.board[first:last] >= value).all())
                ),
                self.wait_s,
            )
        if not done:
            raise MethodFailed(
                f"task {node} of {self.name} waited {self.wait_s:g} s for tasks {first} to "
                f"{last - 1}; a worker hangs"
            )
        return self._failure.error is None

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
