"""What is written comes back bit for bit, and never by halves."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from lamps.errors import ProblemError
from lamps.tables import LandmarkTable, card_path, read_table, read_tables, write_tables
from lamps.types import Objective

from ._tables import assert_same, tables


def table(name: str = "t", **changes: object) -> LandmarkTable:
    """Two candidates, three fidelities; the second was stopped after one."""
    measured = np.array([[1, 1, 1], [1, 0, 0]], dtype=bool)
    plain = LandmarkTable(
        name=name,
        candidates=("a", "b"),
        objectives=(Objective("error"),),
        fidelities=np.array([0.0, 0.5, 1.0]),
        values=np.array([[[0.9], [0.5], [0.1]], [[0.8], [np.nan], [np.nan]]]),
        cost_s=np.array([[0.1, 0.2, 0.3], [0.1, np.nan, np.nan]]),
        measured=measured,
        size=np.array([1.0, np.nan]),
    )
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


@settings(max_examples=60)
@given(tables("one"), tables("two"))
def test_tables_come_back_bit_for_bit_and_in_order(one: LandmarkTable, two: LandmarkTable) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        write_tables(path, [one, two], {"machine": "a"})
        back = read_tables(path)
    assert [t.fingerprint() for t in back] == [t.fingerprint() for t in (one, two)]
    for before, after in zip((one, two), back, strict=True):
        assert_same(before, after)


def test_labels_come_back_with_their_white_space(tmp_path: Path) -> None:
    one = table(" a name ", candidates=("a", " a\n"))
    write_tables(tmp_path / "t.parquet", [one])
    assert_same(read_table(tmp_path / "t.parquet"), one)


def test_a_level_that_nobody_reached_is_still_a_level(tmp_path: Path) -> None:
    one = table().select([1])
    write_tables(tmp_path / "t.parquet", [one])
    assert_same(read_table(tmp_path / "t.parquet"), one)


def test_values_that_are_not_finite_are_written_as_failed(tmp_path: Path) -> None:
    one = table(values=np.array([[[0.9], [np.inf], [0.1]], [[0.8], [np.nan], [np.nan]]]))
    write_tables(tmp_path / "t.parquet", [one])
    back = read_table(tmp_path / "t.parquet")
    assert back.failed.tolist() == [[False, True, False], [False] * 3]
    assert np.isnan(back.values[0, 1, 0])


def test_the_card_says_what_is_in_the_file(tmp_path: Path) -> None:
    one = table("piqa", family="pythia", source="here", licence="MIT", unit="steps")
    path = tmp_path / "t.parquet"
    assert write_tables(path, [one], {"machine": "two cores"}) == tmp_path / "t.card.json"
    card = json.loads(card_path(path).read_text())
    assert card["machine"] == "two cores"
    (entry,) = card["tables"]
    assert entry == {
        "name": "piqa",
        "family": "pythia",
        "candidates": 2,
        "landmarks": 3,
        "objectives": [{"name": "error", "direction": "minimize", "unit": "1"}],
        "unit": "steps",
        "seed": 0,
        "source": "here",
        "licence": "MIT",
        "failed_landmarks": 0,
        "failed_candidates": 0,
        "censored_candidates": 1,
        "fingerprint": one.fingerprint(),
    }


def test_a_file_that_its_card_does_not_describe_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write_tables(path, [table()])
    other = tmp_path / "other.parquet"
    write_tables(other, [table("u")])
    other.replace(path)
    with pytest.raises(ProblemError, match=r"t\.card\.json describes: its hash is") as caught:
        read_tables(path)
    assert "\n" not in str(caught.value)
    card_path(path).write_text("{}")
    with pytest.raises(ProblemError, match="no card of a landmark table"):
        read_tables(path)
    card_path(path).unlink()
    assert read_table(path).name == "u"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"candidates": ("a", "a")}, "candidate twice"),
        ({"candidates": ("a", "")}, "empty name or candidate"),
        ({"name": ""}, "empty name or candidate"),
        ({"fidelities": np.array([0.0, 0.5, 50.0])}, "beyond"),
        ({"fidelities": np.array([0.0, 0.5, 0.5])}, "do not increase"),
        ({"measured": np.array([[1, 1, 1], [0, 1, 0]], dtype=bool)}, "'b' has no landmark 0"),
        ({"cost_s": np.full((2, 3), -1.0)}, "negative"),
        ({"values": np.zeros((2, 3, 2))}, r"shape \[2, 3, 2\], expected \[2, 3, 1\]"),
    ],
)
def test_tables_that_could_not_be_read_back_are_refused(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ProblemError, match=message):
        write_tables(tmp_path / "t.parquet", [table(**changes)])
    assert list(tmp_path.iterdir()) == []


def test_names_and_suffixes_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="two tables are named 't'"):
        write_tables(tmp_path / "t.parquet", [table(), table()])
    with pytest.raises(ProblemError, match="no table to write"):
        write_tables(tmp_path / "t.parquet", [])
    with pytest.raises(ProblemError, match="expected \\*\\.parquet"):
        write_tables(tmp_path / "t.csv", [table()])


KILLED = """
import os, signal, sys
import numpy as np
from pathlib import Path
from lamps.tables import writing, read_tables, write_tables
real = os.replace
def dies(source, target):
    os.kill(os.getpid(), signal.SIGKILL)
os.replace = dies
write_tables(Path(sys.argv[1]), read_tables(Path(sys.argv[2])))
"""


@pytest.mark.parametrize("there", [False, True], ids=["new", "replacing"])
def test_a_kill_between_write_and_rename_leaves_what_was_there(
    there: bool, tmp_path: Path
) -> None:
    source, target = tmp_path / "source.parquet", tmp_path / "folder" / "t.parquet"
    write_tables(source, [table("new")])
    target.parent.mkdir()
    if there:
        write_tables(target, [table("old")])
    done = subprocess.run([sys.executable, "-c", KILLED, str(target), str(source)], check=False)
    assert done.returncode == -9
    if there:
        assert [t.name for t in read_tables(target.parent)] == ["old"]
    else:
        with pytest.raises(ProblemError, match="no landmark table"):
            read_tables(target.parent)
    write_tables(target, [table("new")])
    assert [t.name for t in read_tables(target.parent)] == ["new"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match="denied"):
        write_tables(tmp_path / "t.parquet", [table()])
    tmp_path.chmod(0o700)
    assert list(tmp_path.iterdir()) == []
