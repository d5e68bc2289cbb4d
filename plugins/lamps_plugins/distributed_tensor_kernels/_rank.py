"""The process of one rank: takes jobs as lines of JSON on stdin, answers on stdout.

It ends when its parent closes the pipe or is gone, whatever it is doing at that moment.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, TextIO

from lamps.errors import LampsError

__all__ = ["main"]


def main(text: str) -> None:
    """Serve jobs until the parent is gone.

    Args:
        text: JSON with ``rank``, ``world``, ``transport``, ``folder``, ``wait_s`` and the two
            numbers of a simulated link.
    """
    given = json.loads(text)
    # Ctrl-C reaches all processes of a terminal; it is the parent's to decide what becomes of us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is not an answer
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    folder = Path(given["folder"])
    threading.Thread(target=_read, args=(sys.stdin, lines, folder), daemon=True).start()
    try:
        transport = _open(given)
    except LampsError as error:
        _answer(answers, {"error": str(error)})
        os._exit(1)
    _answer(answers, {"ready": given["rank"], "transport": transport.name, "pid": os.getpid()})
    from lamps_plugins.distributed_tensor_kernels import _calibrate
    from lamps_plugins.distributed_tensor_kernels._job import Job, do

    while line := lines.get():
        asked = json.loads(line)
        try:
            if asked.pop("kind") == "calibrate":
                found: dict[str, Any] = _calibrate.measure(transport).as_json()
            else:
                found = do(Job.from_json(asked), transport).as_json()
        except Exception as error:
            # Whatever it was: the parent tells it to the user and ends this process.
            traceback.print_exc()
            kind = "" if isinstance(error, LampsError) else f"{type(error).__name__}: "
            _answer(answers, {"error": f"{kind}{error}"})
        else:
            _answer(answers, found)
    transport.close()
    sys.stderr.flush()
    os._exit(0)  # threads that wait for other ranks must not hold it up


def _open(given: dict[str, Any]) -> Any:
    import torch

    from lamps_plugins.distributed_tensor_kernels._transports import Link, open_transport

    # One thread a rank: they share this machine's cores, and their number must not change sums.
    torch.set_num_threads(1)
    link = Link(alpha_us=given["alpha_us"], beta_mb_s=given["beta_mb_s"])
    folder = Path(given["folder"])
    return open_transport(
        given["transport"], given["rank"], given["world"], folder,
        wait_s=given["wait_s"], link=link,
    )  # fmt: skip


def _read(stream: TextIO, lines: queue.SimpleQueue[str], folder: Path) -> None:
    """Pass jobs on; the end of the pipe ends the process, even in the midst of one.

    The parent did not end politely then, so what ranks shared is deleted here.
    """
    for line in stream:
        lines.put(line)
        if not line.strip():
            return  # an empty line is the polite end
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(3)


def _answer(answers: TextIO, found: dict[str, Any]) -> None:
    answers.write(json.dumps(found) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
