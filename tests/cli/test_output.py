"""stdout carries the answer and nothing else; stderr everything about it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pty
import subprocess
from pathlib import Path

import pytest
from _lamps_cli import PROGRAM, Searched, process, run, strict_json
from hypothesis import given
from hypothesis import strategies as st

from lamps.cli.output import dump, human

PRINTS_DATA = [
    ("status",),
    ("status", "RUN"),
    ("front", "RUN"),
    ("front", "RUN", "--unfinished"),
    ("front", "RUN", "--where", "mb<0"),
    ("front", "RUN", "--pick", "error"),
    ("compare", "RUN", "rest"),
    ("policy", "list"),
    ("method", "list"),
    ("method", "show", "curve-replay"),
    ("method", "check", "curve-replay", "-k", "docstring"),
    ("model", "list"),
    ("store", "check"),
    ("store", "upgrade"),
]


def words(command: tuple[str, ...], searched: Searched) -> list[str]:
    """The command on the shared store."""
    named = [searched.name if w == "RUN" else w for w in command]
    if command[0] in ("policy", "method", "model"):
        return named
    return [*named, "--store", searched.store]


@pytest.mark.parametrize("command", PRINTS_DATA, ids=" ".join)
def test_json_is_one_document_and_nothing_else(
    command: tuple[str, ...], searched: Searched
) -> None:
    answer = run(*words(command, searched), "--json")
    assert (answer.code, answer.err) == (0, "")
    assert isinstance(answer.document(), (dict, list))


@pytest.mark.parametrize("command", [c for c in PRINTS_DATA if c[0] != "store"], ids=" ".join)
def test_nl_is_one_object_per_line(command: tuple[str, ...], searched: Searched) -> None:
    answer = run(*words(command, searched), "--nl")
    assert (answer.code, answer.err) == (0, "")
    rows = answer.lines()
    assert rows or command == ("front", "RUN", "--where", "mb<0")


@pytest.mark.parametrize("command", PRINTS_DATA, ids=" ".join)
def test_the_table_is_on_stdout_without_escapes(
    command: tuple[str, ...], searched: Searched
) -> None:
    answer = run(*words(command, searched))
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.strip()
    assert "\x1b" not in answer.out


@pytest.mark.parametrize("form", ["--json", "--nl", ""])
@pytest.mark.parametrize("quiet", [True, False])
def test_a_search_answers_on_stdout_and_tells_on_stderr(
    form: str, quiet: bool, searched: Searched, store_url: str
) -> None:
    flags = [f for f in (form, "--quiet" if quiet else "") if f]
    answer = run(
        "search", "--problem", f"replay:{searched.curves}", "--backend", "local",
        "--name", "ü", "--store", store_url, *flags,
    )  # fmt: skip
    assert answer.code == 3
    if form == "--json":
        document = answer.document()
        assert (document["run"], document["state"]) == ("ü", "finished")
        assert [m["label"] for m in document["front"]["members"]]
        assert "ü" in answer.out  # not escaped: readable as it is
    elif form == "--nl":
        assert {row["method"] for row in answer.lines()} == {"curve-replay"}
    else:
        assert "curve-replay(curve=ß 日本)" in answer.out
    if quiet:
        assert answer.err == ""
    else:
        assert "ok #0 landmark 0" in answer.err
        assert "front" in answer.err
        assert "not finite" in answer.err
    assert "\x1b" not in answer.err


def test_nothing_is_printed_on_stdout_when_a_command_fails(searched: Searched) -> None:
    for flags in ([], ["--json"], ["--nl"]):
        answer = run("front", "nowhere", "--store", searched.store, *flags)
        assert (answer.code, answer.out) == (1, "")
        assert answer.err.count("\n") == 1


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(values)
def test_json_is_strict_whatever_the_numbers(value: object) -> None:
    for indent in (None, 2):
        back = strict_json(dump(value, indent))
        assert back == json.loads(json.dumps(_null(value)))


def _null(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_null(v) for v in value]
    if isinstance(value, dict):
        return {k: _null(v) for k, v in value.items()}
    return value


def test_a_title_is_not_squeezed_into_a_narrow_table(searched: Searched) -> None:
    answer = run("front", searched.name, "--store", searched.store)
    lines = [line.strip() for line in answer.out.splitlines()]
    assert "best error: 0.2 by #1 curve-replay(curve=b)" in lines
    assert any(line.startswith("Front(3 of 4") and line.endswith(")") for line in lines)


@pytest.mark.parametrize(
    "command",
    [("front", "RUN", "--nl"), ("front", "RUN", "--json"), ("front", "RUN"), ("--help",)],
    ids=" ".join,
)
def test_a_reader_that_goes_away_is_no_error(command: tuple[str, ...], searched: Searched) -> None:
    """As in ``lamps front RUN | head -1``: exit code 0 and not a word."""
    given = words(command, searched) if command[0] == "front" else list(command)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*PROGRAM, *given], stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_search_outlives_the_reader_of_its_progress(searched: Searched, store_url: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*PROGRAM, "search", "--problem", f"replay:{searched.curves}", "--backend", "local",
             "--policy", "exhaustive", "--name", "r", "--store", store_url, "--json"],
            stdout=subprocess.PIPE, stderr=writer, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(writer)
    assert done.returncode == 3
    assert strict_json(done.stdout.decode())["state"] == "finished"


def _on_terminal(arguments: list[str], environ: dict[str, str]) -> tuple[int, str, str]:
    """Exit code, stdout, and what a terminal on stderr received."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=theirs, env=environ, text=True
    )
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # EIO: the last process on the terminal has ended
        while chunk := os.read(ours, 65536):
            seen += chunk
    out, _ = child.communicate(timeout=60)
    os.close(ours)
    return child.returncode, out, seen.decode()


@pytest.mark.parametrize("colour", [True, False])
def test_the_live_bar_has_colours_only_where_they_are_wanted(
    colour: bool, searched: Searched, store_url: str
) -> None:
    environ = dict(os.environ, TERM="xterm-256color")
    environ.pop("NO_COLOR", None)
    if not colour:
        environ["NO_COLOR"] = "1"
    code, out, seen = _on_terminal(
        ["search", "--problem", f"replay:{searched.curves}", "--backend", "local",
         "--param", "curve-replay.sleep_s=0.03", "--budget", "60s", "--policy", "exhaustive",
         "--store", store_url, "--json"],
        environ,
    )  # fmt: skip
    assert code == 3
    assert strict_json(out)["state"] == "finished"
    assert "% of budget" in seen
    assert "finished" in seen
    assert "#3 failed" in seen
    assert ("\x1b[38;5" in seen or "\x1b[3" in seen or "\x1b[1;3" in seen) is colour


def test_ascii_streams_get_escapes_instead_of_a_traceback(searched: Searched) -> None:
    environ = dict(os.environ, PYTHONIOENCODING="ascii")
    answer = process("status", "--store", searched.store, env=environ)
    assert (answer.returncode, answer.stderr) == (0, "")
    answer = process("front", searched.name, "--json", "--store", searched.store, env=environ)
    assert (answer.returncode, answer.stderr) == (0, "")
    labels = [m["label"] for m in strict_json(answer.stdout)["members"]]
    assert "curve-replay(curve=ß 日本)" in labels
    answer = process("front", "ü", "--store", searched.store, env=environ)
    assert answer.returncode == 1
    assert answer.stderr.count("\n") == 1


def test_the_password_of_a_store_is_never_printed(tmp_path: Path) -> None:
    url = "postgresql://someone:s3cr3t-pw@127.0.0.1:1/lamps"
    for flags in ([], ["-v"]):
        answer = process(*flags, "status", "--store", url)
        assert answer.returncode == 1
        assert "s3cr3t-pw" not in answer.stdout + answer.stderr
        assert "127.0.0.1" in answer.stderr


# -- what the data turned out to be ---------------------------------------------------------------


def test_bool_labels_are_printed_as_in_the_data() -> None:
    assert [human(v) for v in (True, False, [True, 1])] == ["True", "False", "True, 1"]


def test_a_search_says_on_stderr_what_it_read_and_left_out(tmp_path: Path) -> None:
    rows = [f"{'good' if i % 2 else 'bad'} text number {i},{i % 2 == 1}" for i in range(40)]
    (tmp_path / "a.csv").write_text("\n".join(["text,label", *rows, " ,True"]) + "\n")
    answer = run(
        "search", str(tmp_path / "a.csv"), "--target", "label", "--method", "tfidf-logreg",
        "--backend", "local", "--landmarks", "1", "--store", f"sqlite:///{tmp_path}/l.db",
        "--name", "r", "--json",
    )  # fmt: skip
    assert answer.document()["finished"] == 1
    told = answer.err.splitlines()[0]
    assert told.startswith("read csv, utf-8, delimiter ','")
    assert "text 'text', label 'label' (bool, 2 classes)" in told
    assert told.endswith("left out: 1 empty text")


@pytest.mark.parametrize("order", [("--json", "--nl"), ("--nl", "--json")])
def test_one_document_and_lines_are_not_both_given(order: tuple[str, str]) -> None:
    answer = run("policy", "list", *order)
    assert (answer.code, answer.out) == (2, "")
    assert "--json and --nl were both given; take one of them" in answer.err


def test_a_quiet_search_says_nothing_about_the_data(tmp_path: Path) -> None:
    rows = [f"{'good' if i % 2 else 'bad'} text number {i},{i % 2}" for i in range(40)]
    (tmp_path / "a.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    answer = run(
        "search", str(tmp_path / "a.csv"), "--target", "label", "--method", "tfidf-logreg",
        "--backend", "local", "--landmarks", "1", "--store", f"sqlite:///{tmp_path}/l.db",
        "--name", "r", "--quiet",
    )  # fmt: skip
    assert (answer.code, answer.err) == (0, "")


def test_a_method_check_in_a_fresh_process_blames_no_library_that_draws_when_imported() -> None:
    answer = process("method", "check", "tfidf-logreg", "-k", "global_seeds")
    assert answer.returncode == 0, answer.stderr
