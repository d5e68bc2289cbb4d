"""Eight searches begin at once on one SQLite file while others read it in a loop."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from _processes import Call, at_rest, until, write_curves

import lamps

READER = """
import sys, lamps
reads = 0
while not sys.stdin.closed and reads < 100000:
    store = lamps.open_store({url!r})
    for summary in store.runs():
        run = store.run(summary.name)
        front = run.front(unfinished=True)
        assert len(front) <= 5
        run.trials()
    store.close()
    reads += 1
    print(reads, flush=True)
"""

SEARCH = """
import sys
from lamps.cli.main import entry
print("ready", flush=True)
sys.stdin.readline()
entry(["search", "--problem", "replay:{table}", "--backend", "local", "--policy", "exhaustive",
       "--store", "{url}", "--name", "{name}", "--param", "curve-replay.sleep_s=0.01", "--quiet",
       "--json"])
"""


@pytest.mark.timeout(240)
def test_eight_searches_at_once_while_one_reads(tmp_path: Path) -> None:
    table = write_curves(tmp_path / "curves.csv", 5)
    url = f"sqlite:///{tmp_path}/lamps.db"
    reader = subprocess.Popen(
        [sys.executable, "-c", READER.format(url=url)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    searches = [
        subprocess.Popen(
            [sys.executable, "-c", SEARCH.format(table=table, url=url, name=f"run {i}")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(8)
    ]
    for process in searches:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    started = time.monotonic()
    for process in searches:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert time.monotonic() - started < 0.1
    errors = [process.communicate(timeout=200)[1] for process in searches]
    codes = [process.returncode for process in searches]
    assert reader.poll() is None, reader.communicate()[1]
    reader.kill()
    out, err = reader.communicate()
    assert (codes, errors) == ([0] * 8, [""] * 8)
    assert "locked" not in err
    assert err == ""
    assert len(out.splitlines()) > 5  # it really did read all the while
    store = lamps.open_store(url)
    assert store.check() == []
    assert sorted(r.name for r in store.runs()) == [f"run {i}" for i in range(8)]
    first = [dict(m.values) for m in store.run("run 0").front()]
    for i in range(8):
        at_rest(url, f"run {i}")
        assert store.run(f"run {i}").record.counts == {"complete": 5}
        assert [dict(m.values) for m in store.run(f"run {i}").front()] == first


def test_two_searches_of_one_name_leave_one_run(tmp_path: Path) -> None:
    table = write_curves(tmp_path / "curves.csv", 3)
    url = f"sqlite:///{tmp_path}/lamps.db"
    calls = [
        Call(
            "search", "--problem", f"replay:{table}", "--backend", "local", "--store", url,
            "--name", "same", "--quiet", log=tmp_path / f"log-{i}",
        )
        for i in range(3)
    ]  # fmt: skip
    assert sorted(call.wait() for call in calls) == [0, 1, 1]
    said = [call.stderr for call in calls if call.process.returncode == 1]
    assert all("a run named 'same' exists already" in text for text in said)
    assert all(text.count("\n") == 1 for text in said)
    at_rest(url, "same")


def test_three_resume_one_run_and_one_of_them_gets_it(tmp_path: Path) -> None:
    table = write_curves(tmp_path / "curves.csv", 3)
    url = f"sqlite:///{tmp_path}/lamps.db"
    first = Call(
        "search", "--problem", f"replay:{table}", "--backend", "local", "--store", url,
        "--name", "r", "--param", "curve-replay.sleep_s=0.4", "--policy", "exhaustive",
        log=tmp_path / "log",
    )  # fmt: skip
    until(lambda: "ok #" in first.stderr)
    first.kill()
    calls = [Call("resume", "r", "--store", url, log=tmp_path / f"log-{i}") for i in range(3)]
    assert sorted(call.wait() for call in calls) == [0, 1, 1]
    assert all("held by" in c.stderr for c in calls if c.process.returncode == 1)
    at_rest(url, "r")
    assert lamps.open_store(url).run("r").record.counts == {"complete": 3}
