"""A policy under observation: when it would stop, what it costs to ask it, what has ended when."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from live_score import Reference
from numpy.typing import NDArray

from lamps.hookspecs import hookimpl
from lamps.policy import STOP, Action, Observation, Policy, Pool
from lamps.policy.base import nothing_left
from lamps.scheduler.progress import Progress

TARGET = 0.99


class _Policies(dict[str, type[Policy]]):
    """Policies by name, offered to lamps through its hook."""

    @hookimpl
    def lamps_register_policies(self) -> dict[str, Any]:
        """What is in here now."""
        return dict(self)


POLICIES = _Policies()


class Watch:
    """The log of one search over all its resumes, and a listener that writes it.

    Args:
        path: A file with a JSON object in each line.
        last: Index of the last landmark.
        reference: Values that candidates count with; None in the reference search itself.
    """

    def __init__(self, path: Path, *, last: int, reference: Reference | None = None) -> None:
        self.path, self.last, self.reference = path, last, reference
        self.endless = False  # the policy never stops by itself, so there is nothing to wait for
        self.lines: list[dict[str, Any]] = []
        if path.exists():
            text = path.read_text(encoding="utf-8")
            # A line that was cut off by a kill is taken back.
            whole = text[: text.rfind("\n") + 1]
            if whole != text:
                path.write_text(whole, encoding="utf-8")
            self.lines = [json.loads(line) for line in whole.splitlines()]
        self._base = self.elapsed_s
        self._since: float | None = None
        self.deciding_s = max((float(x.get("deciding_s", 0)) for x in self.lines), default=0.0)

    @property
    def over(self) -> bool:
        """Whether the search has come to its end."""
        return any(x["event"] == "over" for x in self.lines)

    @property
    def stopped(self) -> bool:
        """Whether the policy has stopped by itself."""
        return any(x["event"] == "stop" for x in self.lines)

    @property
    def elapsed_s(self) -> float:
        """Seconds of searching up to the last line."""
        return max((float(x["t"]) for x in self.lines), default=0.0)

    @property
    def reached(self) -> bool:
        """Whether what has been finished is worth the target."""
        if self.reference is None:
            return False
        done = {
            x["trial"] for x in self.lines if x["event"] == "ok" and x["landmark"] == self.last
        }
        return self.reference.share(done) >= TARGET

    def __call__(self, event: Progress) -> None:
        """Note what has ended."""
        if event.event == "start":
            # What a process that was killed had spent since its last line is in the store alone.
            self._base = max(self._base, event.spent.wall_s)
            self._since = time.monotonic()
        elif event.event in ("ok", "failed", "crashed"):
            self.note(
                event.event,
                trial=event.trial,
                landmark=event.landmark,
                device_s=event.spent.device_s,
            )

    def note(self, event: str, **more: Any) -> None:
        """Add a line."""
        passed = 0.0 if self._since is None else time.monotonic() - self._since
        line = {"event": event, "t": self._base + passed, "deciding_s": self.deciding_s, **more}
        self.lines.append(line)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def end(self) -> None:
        """The search has come to its end."""
        spent = self.elapsed_s
        self._base, self._since = spent, None
        self.note("over")


def watched(inner: type[Policy], watch: Watch) -> type[Policy]:
    """The class of a policy that decides as ``inner`` does, and goes on after it has stopped."""

    class Watched(Policy):
        name = inner.name
        version = inner.version
        summary = inner.summary

        def __init__(self, *, seed: int = 0) -> None:
            super().__init__(seed=seed)
            self.inner = inner(seed=seed)
            self.version = self.inner.version  # type: ignore[misc]

        def prepare(self, pool: Pool) -> None:
            self.inner.prepare(pool)

        def propose(self, observation: Observation, mask: NDArray[np.bool_]) -> Action:
            begun = time.perf_counter()
            try:
                return self._propose(observation, mask)
            finally:
                watch.deciding_s += time.perf_counter() - begun

        def _propose(self, observation: Observation, mask: NDArray[np.bool_]) -> Action:
            if watch.endless and watch.reached:
                return nothing_left(observation)
            if not watch.stopped:
                choice = self.inner.propose(observation, mask)
                if choice != STOP:
                    return choice
                watch.note("stop")
            if watch.reached or not mask.any():
                return nothing_left(observation)
            choice = self.inner.propose(replace(observation, budget_used=1e-9), mask)
            return int(np.flatnonzero(mask)[0]) if choice == STOP else choice

    return Watched
