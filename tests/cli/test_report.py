"""``lamps report``: one file, nothing in it can run but our script, and it tells what happened."""

from __future__ import annotations

import json
import shlex
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _lamps_cli import Searched, run

import lamps
from lamps.errors import ConfigError
from lamps.report import write_report
from lamps.report.document import document, plain, reproduction, without_secrets
from lamps.report.page import render
from lamps.types import Budget

EVIL = '</script><img src=x onerror="alert(1)">&amp; <b>ß\u2028'


class Page(HTMLParser):
    """Tags, attributes, text and the embedded document of a report."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._in: list[str] = []
        self.data = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._in:
            while self._in.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if self._in[-1:] == ["script"]:
            if self.tags[-1] == ("script", {"type": "application/json", "id": "report-data"}):
                self.data += data
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def document(self) -> dict[str, Any]:
        found = json.loads(self.data)
        assert isinstance(found, dict)
        return found


@pytest.fixture(scope="module")
def told(searched: Searched, tmp_path_factory: pytest.TempPathFactory) -> Page:
    out = tmp_path_factory.mktemp("report") / "ü.html"
    answer = run("report", "über", str(out), "--store", searched.store, "--json")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out) == {
        "run": "über", "file": str(out), "size_bytes": out.stat().st_size
    }  # fmt: skip
    return Page(out.read_text(encoding="utf-8"))


def a_document(n: int = 3, label: str = "plain") -> dict[str, Any]:
    """A document of ``n`` candidates with six landmarks and nine objectives."""
    rng = np.random.default_rng(0)
    names = [f"objective_{i}" for i in range(9)]
    return {
        "run": {
            "name": label, "state": "complete", "note": label, "family": "f", "problem": label,
            "policy": "lamps", "created_at": 0.0, "finished_at": 1.0, "wall_s": 1.0, "cost_s": 1.0,
            "n_trials": n, "n_landmarks": 6 * n, "counts": {"complete": n},
        },
        "objectives": [
            {"name": k, "unit": "1", "direction": "minimize", "doc": label} for k in names
        ],
        "front_objectives": names[:2],
        "fidelities": [0.0, 0.0625, 0.125, 0.25, 0.5, 1.0],
        "unit": "examples",
        "trials": [
            {
                "index": i, "label": f"{label} {i}", "method": "m",
                "params": {"lr": 0.001, "s": label},
                "state": "complete", "front": i % 50 == 0, "finished": True,
                "curve": [[k, 0.123456, *rng.random(9).round(6).tolist()] for k in range(6)],
                "test": {},
            }
            for i in range(n)
        ],
        "progress": {"cost_s": [1.0], "landmarks": [1.0], "hypervolume": [1.0], "missing": [0.0]},
        "decisions": [
            [i, i % n, i // n, "lamps", "done", 0.12, 0.123456, ""] for i in range(6 * n)
        ],
        "failures": [
            {
                "seq": 1, "trial": 0, "label": label, "fidelity": 0.5, "state": "failed",
                "error": label,
            }
        ],
        "models": [], "card": {label: label}, "environment": {label: label},
        "command": f"lamps search {label}",
    }  # fmt: skip


def test_it_tells_what_happened(told: Page) -> None:
    assert "ß 日本" in told.text
    assert "not finite" in told.text  # why 'broken' failed
    doc = told.document
    assert [t["label"] for t in doc["trials"] if t["front"]] == [
        f"curve-replay(curve={name})" for name in ("a", "b", "ß 日本")
    ]
    assert [len(t["curve"]) for t in doc["trials"]] == [3, 3, 3, 1]
    assert [f["trial"] for f in doc["failures"]] == [3]
    assert doc["run"]["n_landmarks"] == 10


def test_it_needs_nothing_else(told: Page) -> None:
    links = [v for _, a in told.tags for k, v in a.items() if k in ("src", "href") and v]
    assert all(v.startswith("#") for v in links)
    scripts = [a for tag, a in told.tags if tag == "script"]
    assert len(scripts) == 2
    policy = [a["content"] for tag, a in told.tags if tag == "meta" and "content" in a][-1]
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_hypervolume_grows_to_the_final_one(told: Page) -> None:
    progress = told.document["progress"]
    assert progress["hypervolume"][-1] == 1.0
    assert (np.diff(progress["hypervolume"]) >= 0).all()
    assert (np.diff(progress["cost_s"]) >= 0).all()
    assert min(progress["missing"]) >= 0.0
    assert progress["missing"][-1] == pytest.approx(0.0, abs=1e-9)


def test_whatever_texts_hold_stays_text() -> None:
    page = Page(render(a_document(label=EVIL)))
    assert [t for t, _ in page.tags if t in ("img", "b")] == []
    assert len([t for t, _ in page.tags if t == "script"]) == 2
    assert page.document["trials"][0]["label"] == f"{EVIL} 0"
    assert EVIL.replace("\u2028", "") in page.text.replace("\u2028", "")


def test_a_thousand_candidates_stay_below_five_megabytes() -> None:
    assert len(render(a_document(1000)).encode()) < 5e6


def test_numbers_that_are_not_finite_are_null() -> None:
    assert plain({"a": [float("nan"), float("inf"), 1.5]}) == {"a": [None, None, 1.5]}


def test_passwords_are_left_out() -> None:
    assert without_secrets("s3://key:secret@bucket/x") == "s3://bucket/x"
    assert without_secrets("/plain/path@home") == "/plain/path@home"


def test_the_command_makes_an_equal_pool(searched: Searched, tmp_path: Path) -> None:
    with lamps.open_store(searched.store) as store:
        record = store.run("über").record
        pool = [t.candidate for t in store.run("über").trials()]
    words = shlex.split(reproduction(record))
    assert words[:4] == ["lamps", "search", "--problem", f"replay:{searched.curves}"]
    again = f"sqlite:///{tmp_path}/again.db"
    answer = run(*words[1:], "--store", again, "--name", "again", "--quiet")
    assert answer.code == 3, answer.err
    with lamps.open_store(again) as store:
        assert [t.candidate for t in store.run("again").trials()] == pool


def test_the_command_says_what_was_asked(searched: Searched, tmp_path: Path) -> None:
    """Options of any family, fixed params and bounds come back as they were given."""
    given = [
        "search", "--problem", f"replay:{searched.curves}", "--param", "curve-replay.sleep_s=0.01",
        "--objective", "error", "--max-landmarks", "3", "--device-budget", "90s", "--policy",
        "exhaustive", "--backend", "local", "--workers", "1", "--seed", "7",
    ]  # fmt: skip
    store = f"sqlite:///{tmp_path}/lamps.db"
    assert run(*given, "--store", store, "--name", "asked", "--quiet").code == 0
    with lamps.open_store(store) as opened:
        words = shlex.split(reproduction(opened.run("asked").record))
    assert words[0] == "lamps"
    pairs = sorted(zip(words[2::2], words[3::2], strict=True))
    assert pairs == sorted(zip(given[1::2], given[2::2], strict=True))


def test_a_run_that_has_hardly_begun_has_a_report(tmp_path: Path, searched: Searched) -> None:
    made = lamps.search(
        problem=f"replay:{searched.curves}",
        backend="local",
        store=f"sqlite:///{tmp_path}/lamps.db",
        name="none",
        budget=Budget(landmarks=1),
    )
    with made:
        doc = document(made)
        path = write_report(made, tmp_path / "none.html")
    assert doc["run"]["n_landmarks"] == 1
    assert doc["progress"]["hypervolume"] == [0.0]
    assert "No candidate has been finished yet." in path.read_text(encoding="utf-8")


def test_a_run_without_any_landmark_has_a_report() -> None:
    doc = a_document(2)
    none: dict[str, list[float]] = {k: [] for k in doc["progress"]}
    trials = [dict(t, curve=[], front=False) for t in doc["trials"]]
    page = Page(render({**doc, "trials": trials, "progress": none, "decisions": []}))
    assert "No candidate has been finished yet." in page.text


def test_a_file_that_is_there_stays(searched: Searched, tmp_path: Path) -> None:
    out = tmp_path / "there.html"
    out.write_text("mine")
    answer = run("report", "über", str(out), "--store", searched.store)
    assert answer.code == 1
    assert answer.err.strip().splitlines() == [
        f"ConfigError: {out} exists; give --overwrite, or another name"
    ]
    assert out.read_text() == "mine"
    assert run("report", "über", str(out), "--store", searched.store, "--overwrite").code == 0
    assert out.read_text().startswith("<!doctype html>")


def test_a_missing_folder_and_an_unknown_run_are_named(searched: Searched, tmp_path: Path) -> None:
    with lamps.open_store(searched.store) as store, pytest.raises(ConfigError, match="no folder"):
        write_report(store.run("über"), tmp_path / "no" / "x.html")
    answer = run("report", "uber", str(tmp_path / "x.html"), "--store", searched.store)
    assert answer.code == 1
    assert "there is no run 'uber'" in answer.err
    assert not list(tmp_path.glob("*.html"))
