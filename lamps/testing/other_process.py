"""A fresh interpreter for checks that need another process, started once and forked for each.

Importing torch and its like takes seconds; the interpreter has done so before it is forked, and
nothing else. Its hash seed and its memory are its own.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from lamps.method import Method
from lamps.plugins import plugin_path_of

TIMEOUT_S = 240.0

_HEAVY = ("numpy", "scipy.stats", "sklearn.cluster", "torch", "transformers", "peft")
"""What methods import; only what this process has loaded is worth it."""

_SERVER = """
import json, os, pickle, sys, traceback
from importlib import import_module
for name in json.loads(sys.argv[1]):
    import_module(name)
from lamps.plugins import registry
from lamps.testing import tools


def serve(family, name, source, target):
    method = registry().load_method(family, name)
    with open(source, "rb") as file:
        problem = pickle.load(file)
    made = tools.fit_to(tools.make(method, problem), problem, problem.fidelities[:2])
    with open(target, "wb") as file:
        pickle.dump(tools.stable(made.evaluate(problem), problem), file)


answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what methods print is no answer
requests = os.fdopen(os.dup(0))
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for line in requests:
    *work, errors = json.loads(line)
    pid = os.fork() if hasattr(os, "fork") else 0
    code = 0
    if pid:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    else:
        try:
            serve(*work)
        except BaseException:
            code = 1
            with open(errors, "w") as file:
                traceback.print_exc(file=file)
        if hasattr(os, "fork"):
            os._exit(code)
    print(code, file=answers, flush=True)
"""


class OtherProcess:
    """The interpreter.

    Args:
        plugin_path: Folders with loose plugins that it must find.
    """

    def __init__(self, plugin_path: str) -> None:
        given = {"LAMPS_PLUGIN_PATH": plugin_path} if plugin_path else {}
        heavy = [name for name in _HEAVY if name.partition(".")[0] in sys.modules]
        self._server = subprocess.Popen(
            [sys.executable, "-c", _SERVER, json.dumps(heavy)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env=os.environ | given, text=True, start_new_session=True,
        )  # fmt: skip
        atexit.register(self.close)

    def measure(self, method: type[Method[Any, Any]], problem: Path, values: Path) -> None:
        """Fit a method to its second fidelity from scratch and measure it.

        Args:
            method: The class.
            problem: Pickled problem.
            values: Where its pickled objectives go, those that do not change when repeated.

        Raises:
            AssertionError: It failed there, or took longer than ``TIMEOUT_S``.
        """
        errors = values.with_suffix(".errors")
        asked = [method.spec.family, method.name(), str(problem), str(values), str(errors)]
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(asked) + "\n")
        self._server.stdin.flush()
        if not select.select([self._server.stdout], [], [], TIMEOUT_S)[0]:
            self.close()
            raise AssertionError(f"the other process took longer than {TIMEOUT_S:g} s")
        code = self._server.stdout.readline().strip()
        text = errors.read_text(errors="replace") if errors.exists() else f"exit code {code}"
        if code != "0":
            raise AssertionError(f"the other process failed: {' '.join(text.split())[-400:]}")

    def close(self) -> None:
        """End it, and what it was doing."""
        other_process.cache_clear()
        atexit.unregister(self.close)
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self._server.pid, signal.SIGKILL)
        self._server.wait()
        for pipe in (self._server.stdin, self._server.stdout):
            if pipe is not None:
                pipe.close()


@functools.cache
def other_process(plugin_path: str) -> OtherProcess:
    """The interpreter that finds these loose plugins."""
    return OtherProcess(plugin_path)


def measure_elsewhere(method: type[Method[Any, Any]], problem: Path, values: Path) -> None:
    """See `OtherProcess.measure`."""
    other_process(plugin_path_of(method)).measure(method, problem, values)
