"""Landmark tables: what was written comes back, and bad rows are named by line."""

from __future__ import annotations

import csv
import gzip
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamps.errors import LampsError, ProblemError
from lamps.tables import read_table

HEADER = "candidate,fidelity,elapsed_s,size,error,accuracy:maximize:share\n"
BODY = """a,0,0.5,10,0.9,0.1
a,1,2,10,0.3,0.7
b,0,0.25,20,0.8,nan
b,1,,20,,
"""


def write(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_every_cell_keeps_its_meaning(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, HEADER + BODY))
    assert table.name == "t"
    assert table.candidates == ("a", "b")
    assert [(o.name, o.direction, o.unit) for o in table.objectives] == [
        ("error", "minimize", "1"),
        ("accuracy", "maximize", "share"),
    ]
    assert table.fidelities.tolist() == [0.0, 1.0]
    assert table.values[0].tolist() == [[0.9, 0.1], [0.3, 0.7]]
    assert table.cost_s[0].tolist() == [0.5, 1.5]
    assert table.size.tolist() == [10.0, 20.0]
    # nan: it ran and failed. Empty: it was never measured.
    assert table.measured.tolist() == [[True, True], [True, False]]
    assert table.values[1, 0, 0] == 0.8
    assert math.isnan(table.values[1, 0, 1])
    assert np.isnan(table.values[1, 1]).all()
    assert math.isnan(table.cost_s[1, 1])


def test_rows_that_are_absent_were_never_measured(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "candidate,fidelity,e\na,0,1\na,0.5,1\na,1,1\nb,0,1\n"))
    assert table.measured.tolist() == [[True] * 3, [True, False, False]]
    # Without elapsed_s each landmark counts as one second, the untouched one as none.
    assert table.cost_s[0].tolist() == [0.0, 1.0, 1.0]


def test_a_landmark_that_was_not_measured_has_no_cost(tmp_path: Path) -> None:
    text = "candidate,fidelity,elapsed_s,e\na,0,1,0.5\na,0.5,3,\na,1,,\n"
    table = read_table(write(tmp_path, text))
    assert table.measured.tolist() == [[True, False, False]]
    assert table.cost_s[0, 0] == 1.0
    assert np.isnan(table.cost_s[0, 1:]).all()


@given(
    st.lists(
        st.tuples(
            st.floats(allow_nan=False, allow_infinity=False),
            st.floats(0, 1e6),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_numbers_come_back_bit_for_bit(cells: list[tuple[float, float]]) -> None:
    import tempfile

    elapsed = np.cumsum([c for _, c in cells])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["candidate", "fidelity", "elapsed_s", "e"])
            for i, (value, _) in enumerate(cells):
                writer.writerow(["x", repr(i / len(cells)), repr(elapsed[i].item()), repr(value)])
        table = read_table(path)
    assert table.values[0, :, 0].tolist() == [v for v, _ in cells]
    assert table.cost_s[0] == pytest.approx(np.diff(elapsed, prepend=0.0))


def test_gzip_bom_crlf_and_parquet_are_the_same_table(tmp_path: Path) -> None:
    import pandas as pd

    plain = read_table(write(tmp_path, HEADER + BODY))
    for name, content in (
        ("t.csv.gz", gzip.compress((HEADER + BODY).encode(), mtime=0)),
        ("bom/t.csv", (HEADER + BODY).encode("utf-8-sig")),
        ("crlf/t.csv", (HEADER + BODY).replace("\n", "\r\n").encode()),
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        assert read_table(path).fingerprint() == plain.fingerprint(), name
    complete = "candidate,fidelity,elapsed_s,e\na,0,1,0.5\na,1,2,0.25\n"
    other = tmp_path / "p.parquet"
    pd.read_csv(write(tmp_path, complete, "p.csv")).to_parquet(other)
    assert read_table(other).fingerprint() == read_table(tmp_path / "p.csv").fingerprint()


def test_order_of_rows_is_free_but_order_of_candidates_is_kept(tmp_path: Path) -> None:
    lines = BODY.splitlines()
    turned = read_table(write(tmp_path, HEADER + "\n".join(reversed(lines)) + "\n"))
    assert turned.candidates == ("b", "a")
    plain = read_table(write(tmp_path, HEADER + BODY))
    assert np.array_equal(turned.values[::-1], plain.values, equal_nan=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column 'candidate'"),
        ("candidate,e\na,1\n", "no column 'fidelity', only"),
        ("candidate,fidelity,size\na,0,1\n", "no objective column"),
        (HEADER, "has no rows"),
        (HEADER + "a,0,1,1,x,1\n", "line 2: error is 'x', expected a number"),
        (HEADER + "a,0,1,1,1,1\na,zero,1,1,1,1\n", "line 3: fidelity is 'zero'"),
        (HEADER + "a,inf,1,1,1,1\n", "line 2: fidelity inf"),
        (HEADER + "a,-0.1,1,1,1,1\n", "line 2: fidelity -0.1"),
        (HEADER + "a,nan,1,1,1,1\n", "line 2: fidelity nan"),
        (HEADER + "a,,1,1,1,1\n", "line 2: fidelity"),
        (
            HEADER + "a,0,1,1,1,1\n\n\na,0,1,1,1,1\n",
            "line 5: candidate 'a' at fidelity 0.0.*line 2",
        ),
        (HEADER + "a,0,2,1,1,1\na,1,1,1,1,1\n", "elapsed_s of candidate 'a' decreases"),
        (HEADER + "a,0,-1,1,1,1\n", "elapsed_s of candidate 'a' decreases"),
        (HEADER + "a,0,x,1,1,1\n", "line 2: elapsed_s is 'x'"),
        (HEADER + "a,0,1,big,1,1\n", "line 2: size is 'big'"),
        (HEADER + "a,0,1,1,1,1,7\n", "line 2: 7 cells, the header has 6"),
        (HEADER + "a,0,1,1\n", "line 2: 4 cells, the header has 6"),
        (HEADER + ",0,1,1,1,1\n", "line 2: candidate is empty"),
        ("candidate,fidelity,e,e\na,0,1,2\n", "objective 'e' twice"),
        ("candidate,fidelity,e,e:maximize\na,0,1,2\n", "objective 'e' twice"),
    ],
)
def test_bad_tables_are_refused_by_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=message) as caught:
        read_table(write(tmp_path, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("header", ["bad name", "e:up", "1st"])
def test_bad_objective_columns_are_refused(header: str, tmp_path: Path) -> None:
    with pytest.raises(LampsError, match=r"expected|identifier"):
        read_table(write(tmp_path, f"candidate,fidelity,{header}\na,0,1\n"))


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
def test_files_that_are_something_else_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(bytes(range(128, 256)) * 20)
    with pytest.raises(ProblemError, match="cannot be read as"):
        read_table(path)


def test_a_cut_gzip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress((HEADER + BODY * 1000).encode())[:60])
    with pytest.raises(ProblemError, match="cannot be read as"):
        read_table(path)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=r"nowhere\.csv"):
        read_table(tmp_path / "nowhere.csv")


def test_fingerprints_tell_tables_apart(tmp_path: Path) -> None:
    one = read_table(write(tmp_path, HEADER + BODY))
    changes = (("0.9", "0.91"), ("a,", "c,"), ("2,10", "3,10"), ("0.8,nan", "nan,"), ("20", "21"))
    for change in changes:
        other = read_table(write(tmp_path, HEADER + BODY.replace(*change), "other.csv"))
        assert other.fingerprint() != one.fingerprint(), change
    renamed = read_table(write(tmp_path, HEADER.replace("maximize", "minimize") + BODY))
    assert renamed.fingerprint() != one.fingerprint()


def test_rows_are_found_by_candidate(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, HEADER + BODY))
    assert [table.row(c) for c in table.candidates] == [0, 1]
    with pytest.raises(ProblemError, match="no candidate 'z'"):
        table.row("z")
