"""0 done, 1 one line of error, 2 wrong usage, 3 with failed trials, 130 interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from _lamps_cli import PROGRAM, Searched, process, run, strict_json

from lamps.cli.main import cli
from lamps.errors import LampsError

ALL_FAIL = "candidate,fidelity,error,mb\na,0,nan,1\na,1,0.5,1\nb,0,nan,2\nb,1,0.4,2\n"


def search(table: Path, store: str, *more: str) -> list[str]:
    """A search on a table in this process."""
    return [
        "search",
        "--problem",
        f"replay:{table}",
        "--backend",
        "local",
        "--store",
        store,
        *more,
    ]


def test_0_when_all_is_done(curves: Path, store_url: str) -> None:
    assert run(*search(curves, store_url, "-q")).code == 0
    assert run("--version").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["front", "nowhere"], "there is no run 'nowhere'"),
        (["status", "uber"], "Did you mean 'über'?"),
        (["export", "über", "77", "OUT"], "has candidates 0 to 3, not 77"),
        (["front", "über", "--where", "mb is small"], "is not a condition such as"),
        (["front", "über", "--where", "mbb<1"], "Did you mean 'mb'?"),
        (["front", "über", "--pick", "mb:much"], "is not a weight such as"),
        (["front", "über", "--pick", "erorr"], "Did you mean 'error'?"),
        (["front", "über", "--pick", "mb", "--where", "mb<0"], "the front is empty"),
        (["front", "über", "--objective", "erro"], "Did you mean 'error'?"),
        (["resume", "über"], "finished"),
        (["compare", "über", "nowhere"], "there is no run 'nowhere'"),
    ],
)
def test_1_and_one_line_for_what_cannot_be_done(
    words: list[str], said: str, searched: Searched, tmp_path: Path
) -> None:
    words = [str(tmp_path / "out") if w == "OUT" else w for w in words]
    answer = run(*words, "--store", searched.store)
    assert (answer.code, answer.out) == (1, "")
    assert said in answer.err
    assert answer.err.count("\n") == 1
    assert "Traceback" not in answer.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["search"], "nothing to search: give a data file"),
        (["search", "nowhere.csv", "--target", "y"], "nowhere.csv"),
        (["search", "--problem", "replay"], "--problem replay:FILE.csv"),
        (["search", "--problem", "repley:x.csv"], "Did you mean 'replay'?"),
        (["search", "--problem", "replay:CURVES", "--policy", "randon"], "'random'"),
        (["search", "--problem", "replay:CURVES", "--budget", "soon"], "1h30m"),
        (["search", "--problem", "replay:CURVES", "--budget", "0s"], "positive"),
        (["search", "--problem", "replay:CURVES", "--max-landmarks", "-1"], "positive"),
        (["search", "--problem", "replay:CURVES", "--samples", "0"], "samples is 0"),
        (["search", "--problem", "replay:CURVES", "--param", "rank=1"], "METHOD.NAME=VALUE"),
        (["search", "--problem", "replay:CURVES", "--param", "curve-replai.x=1"], "Did you mean"),
        (["search", "--problem", "replay:CURVES", "--param", "curve-replay.slep=1"], "sleep_s"),
        (["search", "--problem", "replay:CURVES", "--plugins", "nowhere"], "'nowhere'"),
        (["search", "--problem", "replay:CURVES", "--backend", "local", "--workers", "2"], "one"),
        (["search", "--problem", "replay:CURVES", "--workers", "-1"], "0 (one per core) or more"),
        (["search", "--problem", "replay:CURVES", "--name", ""], "name"),
        (["search", "--problem", "replay:CURVES", "--name", "x" * 2000], "name"),
        (["search", "--problem", "replay:CURVES", "--store", "nosql://x"], "nosql"),
        (["search", "--problem", "replay:CURVES", "--store", "lamps.db"], "sqlite:///"),
        (["search", "--problem", "replay:CURVES", "--seed", "-1"], "seed"),
        (["method", "show", "lorra"], "lora"),
        (["model", "show", "no-such-model-anywhere"], "no-such-model-anywhere"),
        (["predict", ".", "CURVES"], "no exported member"),
    ],
)
def test_1_and_one_line_for_what_cannot_be_used(
    words: list[str],
    said: str,
    curves: Path,
    store_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [w.replace("CURVES", str(curves)) for w in words]
    if words[0] == "search" and "--backend" not in words:
        words += ["--backend", "replay"]
    if words[0] == "search" and "--store" not in words:
        words += ["--store", store_url]
    answer = run(*words)
    assert (answer.code, answer.out) == (1, "")
    assert said in answer.err
    assert answer.err.count("\n") == 1
    assert len(answer.err) < 1000


def test_v_shows_the_traceback(searched: Searched) -> None:
    answer = process("-v", "front", "nowhere", "--store", searched.store)
    assert answer.returncode == 1
    assert "Traceback (most recent call last)" in answer.stderr
    assert answer.stderr.rstrip().split("\n")[-1].startswith("lamps.errors.StoreError: there is")
    assert answer.stdout == ""


def test_an_error_of_many_lines_is_told_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def invoke(*_: object) -> None:
        raise LampsError("one\n  two\r\n three")

    monkeypatch.setattr(cli, "invoke", invoke)
    answer = run("status")
    assert (answer.code, answer.err) == (1, "LampsError: one two three\n")


@pytest.mark.parametrize(
    "words",
    [
        ["frnt", "x"],
        ["front"],
        ["front", "x", "--jsn"],
        ["search", "--samples", "many"],
        ["search", "--backend", "dask"],
        ["export", "run", "seven", "dir"],
        ["predict", "/nowhere/at/all", "x.csv"],
        ["store", "repair"],
        ["--colour"],
    ],
)
def test_2_for_wrong_usage(words: list[str]) -> None:
    answer = run(*words)
    assert (answer.code, answer.out) == (2, "")
    assert "Usage: lamps" in answer.err
    assert "Error: " in answer.err
    assert "Traceback" not in answer.err


def test_a_mistyped_command_gets_a_suggestion() -> None:
    assert "Did you mean 'front'?" in run("frnt").err
    assert "check" in run("store", "chek").err


def test_3_when_some_failed_and_the_front_is_of_the_rest(
    searched: Searched, store_url: str
) -> None:
    answer = run(*search(searched.curves, store_url, "--policy", "exhaustive", "--json", "-q"))
    assert answer.code == 3
    document = answer.document()
    assert (document["finished"], document["failed"]) == (3, 1)
    labels = {m["params"]["curve"] for m in document["front"]["members"]}
    assert labels == {"a", "b", "ß 日本"}


@pytest.mark.parametrize("form", [["--json"], ["--nl"], []])
def test_1_when_all_failed_and_no_best_is_invented(
    form: list[str], tmp_path: Path, store_url: str
) -> None:
    table = tmp_path / "fail.csv"
    table.write_text(ALL_FAIL)
    answer = run(*search(table, store_url, "--name", "r", "-q", *form))
    assert answer.code == 1
    assert "all 2 candidates failed; the first, curve-replay(curve=a), with: " in answer.err
    assert answer.err.count("\n") == 1
    if form == ["--json"]:
        front = answer.document()["front"]
        assert (front["members"], front["hypervolume"]) == ([], 0.0)
    elif form == ["--nl"]:
        assert answer.out == ""
    after = run("front", "r", "--unfinished", "--store", store_url, "--json")
    assert (after.code, after.document()["members"]) == (0, [])


def test_130_when_interrupted_and_the_way_on_is_named(curves: Path, store_url: str) -> None:
    child = subprocess.Popen(
        [*PROGRAM, *search(curves, store_url, "--name", "it's ü", "--json"),
         "--param", "curve-replay.sleep_s=0.2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stderr is not None
    while "ok #0" not in child.stderr.readline():
        assert child.poll() is None
    os.kill(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 130
    assert strict_json(out)["state"] == "interrupted"
    assert """interrupted; go on with: lamps resume 'it'"'"'s ü'\n""" in err
    assert "Traceback" not in err
    answer = run("resume", "it's ü", "--store", store_url, "--json", "-q")
    assert answer.code == 0
    assert answer.document()["state"] == "finished"
