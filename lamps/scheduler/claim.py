"""One controller per run: a claim in the store, kept alive by a heartbeat."""

from __future__ import annotations

import os
import socket
import threading
import time
from types import TracebackType
from typing import Self

from lamps.errors import StateError, StoreError
from lamps.store import Store

HEARTBEAT_S = 15.0
SILENCE_S = 30.0
"""After so long without a heartbeat, as when the machine slept, the claim is looked at first."""


class Claim:
    """Holds a run for this process.

    With a heartbeat that goes on while a landmark blocks the loop.
    """

    def __init__(self, store: Store, run_id: int) -> None:
        self.store, self.run_id = store, run_id
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{os.urandom(4).hex()}"
        self.lost: StateError | None = None
        self._seen_at = 0.0
        self._quit = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="lamps-heartbeat")

    def __enter__(self) -> Self:
        self.store.claim(self.run_id, self.owner, os.getpid(), socket.gethostname())
        self._seen_at = time.time()
        self._thread.start()
        return self

    def _beat(self) -> None:
        while not self._quit.wait(HEARTBEAT_S):
            try:
                self._say()
            except StateError:
                return  # the next check raises it where it can end the loop
            except StoreError:
                continue  # a busy or restarting database; the next beat tries again

    def _say(self) -> None:
        try:
            self.store.heartbeat(self.run_id, self.owner)
        except StateError as error:
            self.lost = error
            raise
        self._seen_at = time.time()

    def check(self) -> None:
        """Make sure that the run is still ours before anything is written about it.

        Raises:
            StateError: Another controller took it over while this process was silent.
        """
        if self.lost:
            raise self.lost
        if time.time() - self._seen_at > SILENCE_S:
            self._say()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._quit.set()
        self._thread.join()
        self.store.release(self.run_id, self.owner)
