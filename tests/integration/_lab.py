"""A small search whose every decision is known, to be disturbed."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from _processes import Call, at_rest, front, left_behind, story, write_curves

import lamps
from lamps.types import Candidate

N = 6  # candidates; four landmarks each


@dataclass
class Lab:
    """A folder with a table, a store, and what an undisturbed search of it decides."""

    folder: Path
    table: Path
    store: str
    policy: str
    expected: list[tuple[int, int]]
    front: list[tuple[int, dict[str, float]]]
    calls: int = 0
    variables: dict[str, str] = field(default_factory=dict)

    def call(self, *words: str) -> Call:
        """A command on this store."""
        self.calls += 1
        return self.call_logged(self.folder / f"log-{self.calls}", *words)

    def call_logged(self, log: Path, *words: str) -> Call:
        """A command whose stderr goes to a file of its own."""
        return Call(*words, "--store", self.store, log=log, env=os.environ | self.variables)

    def search(self, *more: str, backend: str = "local", sleep_s: float = 0.0) -> Call:
        """Begin the search ``r``."""
        return self.call(
            "search", "--problem", f"replay:{self.table}", "--backend", backend,
            "--policy", self.policy, "--name", "r", "--seed", "5",
            "--param", f"curve-replay.sleep_s={sleep_s}", *more,
        )  # fmt: skip

    def resume(self, *more: str) -> Call:
        """Go on with it."""
        return self.call("resume", "r", *more)

    def is_whole(self) -> None:
        """The search has ended as the undisturbed one."""
        at_rest(self.store, "r")
        assert story(self.store, "r") == self.expected
        assert front(self.store, "r") == self.front
        with lamps.open_store(self.store) as opened:
            assert opened.run("r").record.state == "finished"


def make_lab(folder: Path, policy: str = "front-racing", n: int = N) -> Lab:
    """A laboratory with ``n`` candidates, whose undisturbed search has been made."""
    table = write_curves(folder / "curves.csv", n)
    store = f"sqlite:///{folder}/lamps.db"
    lamps.search(
        problem=f"replay:{table}",
        candidates=[
            Candidate("replay", "curve-replay", {"curve": f"c{i}"}) for i in range(n)
        ],
        policy=policy,
        backend="replay",
        seed=5,
        store=store,
        name="oracle",
    )  # fmt: skip
    return Lab(folder, table, store, policy, story(store, "oracle"), front(store, "oracle"))


def members(call: Call, name: str) -> list[psutil.Process]:
    """Processes below a call whose title begins so."""
    found = []
    for process in left_behind(call.pid):
        try:
            line = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if name in line.split(" -")[0]:
            found.append(process)
    return found
