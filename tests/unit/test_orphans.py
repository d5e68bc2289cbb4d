"""Only what a search itself started is ever ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from lamps.scheduler import orphans
from lamps.scheduler.orphans import end_children, end_orphans, marked_children

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture(autouse=True)
def _own_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark of these tests alone: this process may own the Ray cluster of other tests."""
    monkeypatch.setattr(orphans, "MARK", "LAMPS_TEST_OWNER")


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def gone_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


def test_marked_children_are_ended_and_others_are_not(
    started: list[subprocess.Popen[bytes]],
) -> None:
    with marked_children():
        started.append(subprocess.Popen(SLEEP))
    started.append(subprocess.Popen(SLEEP))
    time.sleep(0.1)  # until both have become what they are
    end_children(patience_s=0.0)
    assert gone_within(started[0].pid, 5)
    assert alive(started[1].pid)


def test_the_environment_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(orphans.MARK, raising=False)
    with marked_children():
        assert os.environ[orphans.MARK].startswith(f"{os.getpid()}:")
    assert orphans.MARK not in os.environ
    monkeypatch.setenv(orphans.MARK, "of an outer search")
    with marked_children():
        pass
    assert os.environ[orphans.MARK] == "of an outer search"


def test_patience_lets_children_end_on_their_own(started: list[subprocess.Popen[bytes]]) -> None:
    with marked_children():
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.3)"]))
    end_children(patience_s=10.0)
    assert started[0].wait(5) == 0


def test_what_a_killed_owner_left_is_ended_by_the_next(
    started: list[subprocess.Popen[bytes]],
) -> None:
    code = (
        "import subprocess, sys\n"
        "from lamps.scheduler import orphans\n"
        f"orphans.MARK = {orphans.MARK!r}\n"
        "with orphans.marked_children():\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    started.append(owner)
    assert owner.stdout is not None
    orphan = int(owner.stdout.readline())
    owner.stdout.close()
    end_orphans()
    assert alive(orphan)  # its owner lives
    owner.kill()
    owner.wait()
    end_orphans()
    assert gone_within(orphan, 5)


def test_a_mark_that_cannot_be_read_is_nobodys(started: list[subprocess.Popen[bytes]]) -> None:
    started.append(subprocess.Popen(SLEEP, env=dict(os.environ, **{orphans.MARK: "x:y"})))
    time.sleep(0.05)
    end_orphans()
    assert alive(started[0].pid)
    os.kill(started[0].pid, signal.SIGKILL)


def test_helpers_that_wrote_over_their_mark_are_known_by_title_and_session(
    started: list[subprocess.Popen[bytes]],
) -> None:
    code = "import time; time.sleep(60)"
    for own_session in (False, True):
        started.append(
            subprocess.Popen(
                ["ray::SomeAgent", "-c", code],
                executable=sys.executable,
                start_new_session=own_session,
            )
        )
    time.sleep(0.2)
    end_children(patience_s=0.0)
    assert gone_within(started[0].pid, 5)
    assert alive(started[1].pid)  # of somebody else's session
