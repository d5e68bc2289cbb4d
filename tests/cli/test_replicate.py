"""``lamps replicate``: measure, list, report."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from _lamps_cli import PROGRAM, Answer, run, strict_json

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from _replications import lay


@pytest.fixture
def words(tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options that name a store and a folder with the replication; an empty working directory."""
    monkeypatch.chdir(tmp_path)
    return ["--store", store_url, "--plugins", lay(tmp_path)]


def replicate(words: list[str], *more: str) -> Answer:
    return run("replicate", *more, *words)


def test_a_row_per_claim_and_progress_on_stderr(words: list[str]) -> None:
    answer = replicate(words, "curve-replay")
    assert answer.code == 0, answer.err
    assert "replay/curve-replay 1, profile quick: 24 new measurements" in answer.out
    assert "fails as expected" in answer.out
    assert "seed 0 · C1 · c0:" in answer.err
    assert "seed 1: done in" in answer.err
    quiet = replicate(words, "curve-replay", "-q", "--again")
    # What foreign code prints is not ours to hide, but it never reaches stdout.
    assert quiet.err == "foreign code prints this\n"
    assert "foreign" not in quiet.out + answer.out


def test_one_document_or_one_line_per_claim(words: list[str]) -> None:
    document = replicate(words, "replay/curve-replay", "--json", "--seed", "3").document()
    assert (document["method"], document["profile"]) == ("curve-replay", "quick")
    claim, control = document["claims"]
    assert (claim["id"], claim["verdict"], claim["seeds"], claim["pairs"]) == (
        "C1",
        "held",
        [3],
        6,
    )
    assert claim["low"] < claim["value"] < claim["high"] < 1.0
    assert (control["control"], control["outcome"]) == (True, "not held")
    assert len(document["measurements"]) == document["new_measurements"] == 12
    lines = replicate(words, "curve-replay", "--nl", "--seed", "3", "--claim", "C1").lines()
    assert lines == [claim]


def test_3_where_a_control_holds(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLICATION_CONTROL", "<")
    answer = replicate(words, "curve-replay", "--json", "-q")
    assert answer.code == 3
    document = answer.document()
    assert document["broken_controls"] == ["N1"]
    assert document["claims"][1]["verdict"] == "control broken"
    assert "control broken: N1 holds although it must not" in answer.err


def test_what_can_be_replicated_is_listed(words: list[str]) -> None:
    rows = run("replicate", "--list", "--json", *words[2:]).document()
    assert {"family": "replay", "method": "curve-replay"}.items() <= next(
        r for r in rows if r["family"] == "replay"
    ).items()
    assert ("text-classification", "lora") in {(r["family"], r["method"]) for r in rows}


def test_the_page_is_written_from_the_store(words: list[str], tmp_path: Path) -> None:
    before = run("replicate", "--report", *words[:2])
    assert (before.code, before.err.count("\n")) == (1, 1)
    replicate(words, "curve-replay", "-q")
    answer = run("replicate", "--report", "--out", "pages/RESULTS.md", "--json", *words[:2])
    (row,) = answer.document()
    text = (tmp_path / "pages" / "RESULTS.md").read_text(encoding="utf-8")
    assert row == {"file": "pages/RESULTS.md", "size_bytes": len(text.encode())}
    assert text.startswith("# What of the papers")
    assert "### curve-replay" in text
    assert run("replicate", "--report", *words[:2]).code == 0
    assert (tmp_path / "RESULTS.md").read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["curve-replai"], "Did you mean 'curve-replay'?"),
        (["tfidf-logreg"], "has no replication. Methods with one: "),
        (["curve-replay", "--claim", "C3"], "no claim 'C3'"),
        (["curve-replay", "--claim", "C2"], "add --profile full"),
        (["--report", "--out", "words/"], "cannot be written"),
    ],
)
def test_1_and_one_line(words: list[str], more: list[str], said: str, tmp_path: Path) -> None:
    replicate(words, "curve-replay", "-q", "--seed", "0", "--claim", "C1")
    (tmp_path / "words").write_text("a file, no folder")
    more = ["words/page.md" if w == "words/" else w for w in more]
    answer = replicate(words, *more)
    assert (answer.code, answer.out, answer.err.count("\n")) == (1, "", 1)
    assert said in answer.err


def test_1_where_the_replication_fails_and_what_was_measured_stays(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLICATION_FAULT", "0/c4")
    answer = replicate(words, "curve-replay", "--seed", "0")
    assert (answer.code, answer.out) == (1, "")
    assert "at seed 0 failed: ValueError: no such luck; what was measured" in answer.err
    assert "Traceback" not in answer.err
    monkeypatch.delenv("REPLICATION_FAULT")
    assert (
        replicate(words, "curve-replay", "--seed", "0", "--json").document()["new_measurements"]
        == 4
    )


@pytest.mark.parametrize(
    "more",
    [
        [],
        ["lora", "--list"],
        ["lora", "--report"],
        ["--list", "--report"],
        ["lora", "--out", "x.md"],
        ["--report", "--seed", "1"],
        ["lora", "--seed", "-1"],
        ["lora", "--profile", "slow"],
    ],
)
def test_2_for_wrong_usage(more: list[str]) -> None:
    answer = run("replicate", *more)
    assert (answer.code, answer.out) == (2, "")
    assert "Error: " in answer.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_command_goes_on_where_it_was(words: list[str], number: int) -> None:
    command = ["replicate", "curve-replay", "--seed", "0", *words]
    child = subprocess.Popen(
        [*PROGRAM, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"REPLICATION_SLEEP_S": "0.2"},
    )  # fmt: skip
    assert child.stderr is not None
    while "· N1 · c1" not in child.stderr.readline():
        assert child.poll() is None
    os.kill(child.pid, number)
    out, err = child.communicate(timeout=30)
    assert out == ""
    if number == signal.SIGKILL:
        assert child.returncode == -signal.SIGKILL
    else:
        assert child.returncode == 130
        assert "interrupted: what was measured is stored, the same command goes on" in err
        assert "Traceback" not in err
    answer = run(*command, "--json", "-q")
    document = strict_json(answer.out)
    assert document["new_measurements"] <= 8
    assert [c["pairs"] for c in document["claims"]] == [6, 6]
