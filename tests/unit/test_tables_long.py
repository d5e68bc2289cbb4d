"""The long form as strangers write it: several problems, seeds, units, gaps, and mistakes."""

from __future__ import annotations

import gzip
import itertools
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamps.errors import ConfigError, LampsWarning, ProblemError
from lamps.tables import BadRow, read_table, read_tables, tables_from_columns

from ._tables import assert_same

HEADER = "problem,candidate,fidelity,elapsed_s,error,accuracy\n"


def write(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@given(st.permutations(range(9)))
def test_the_order_of_rows_does_not_matter_for_a_curve(order: list[int]) -> None:
    rows = [(c, f, 2.0 * f + 1, 9.0 - f) for c in "abc" for f in (0, 5, 10)]
    shuffled = [rows[i] for i in order]
    columns = dict(
        zip(("candidate", "fidelity", "elapsed_s", "error"), zip(*shuffled, strict=True),
            strict=True)
    )  # fmt: skip
    (table,), bad = tables_from_columns(columns, name="t")
    assert bad == []
    assert table.candidates == tuple(dict.fromkeys(c for c, *_ in shuffled))
    for i in range(3):
        assert table.values[i, :, 0].tolist() == [9.0, 4.0, -1.0]
        assert table.cost_s[i].tolist() == [1.0, 10.0, 10.0]


def test_several_problems_are_several_tables(tmp_path: Path) -> None:
    text = HEADER + "p,a,0,1,0.5,\nq,a,0,1,,0.5\np,a,1,2,0.1,\nq,b,0,3,,0.7\n"
    first, second = read_tables(write(tmp_path, text))
    assert (first.name, second.name) == ("p", "q")
    # An objective that is empty in a whole problem does not belong to it.
    assert [o.name for o in first.objectives] == ["error"]
    assert [o.name for o in second.objectives] == ["accuracy"]
    assert second.candidates == ("a", "b")
    assert (first.measured.shape, second.measured.shape) == ((1, 2), (2, 1))
    path = write(tmp_path, text)
    assert_same(read_table(path, problem="q"), second)
    with pytest.raises(ProblemError, match=r"holds 2 tables \(p, q\), expected one"):
        read_table(path)
    with pytest.raises(ProblemError, match="no table 'r'"):
        read_tables(path, problem="r")


def test_several_seeds_are_several_tables(tmp_path: Path) -> None:
    text = "problem,seed,candidate,fidelity,e\n" + "".join(
        f"p,{seed},{c},{f},1\n" for seed in (3, 8) for c in "ab" for f in (0, 1)
    )
    tables = read_tables(write(tmp_path, text))
    assert [(t.name, t.seed) for t in tables] == [("p#3", 3), ("p#8", 8)]
    assert [t.name for t in read_tables(write(tmp_path, text), problem="p")] == ["p#3", "p#8"]
    (only,) = read_tables(write(tmp_path, text.replace("p,3", "q,3"), "u.csv"), problem="q")
    assert (only.name, only.seed) == ("q", 3)


def test_maximize_flips_and_must_exist(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + "p,a,0,1,0.5,0.1\np,b,0,1,0.5,0.9\n")
    plain, flipped = read_table(path), read_table(path, maximize=["accuracy"])
    assert [o.direction for o in flipped.objectives] == ["minimize", "maximize"]
    assert np.array_equal(plain.values, flipped.values)
    assert np.array_equal(plain.minimised()[..., 1], -flipped.minimised()[..., 1])
    with pytest.raises(ProblemError, match=r"cannot maximise 'acuracy'.*Did you mean 'accuracy'"):
        read_table(path, maximize=["acuracy"])
    with pytest.raises(ConfigError, match="'upwards', expected 'minimize' or 'maximize'"):
        read_table(write(tmp_path, "candidate,fidelity,acc:upwards\na,0,1\n"))


@pytest.mark.parametrize(
    ("unit", "largest", "expected"),
    [("", 50, "share of 50"), ("epochs", 50, "share of 50 epochs"), ("epochs", 1, "epochs")],
)
def test_fidelities_of_any_unit_become_shares(
    unit: str, largest: int, expected: str, tmp_path: Path
) -> None:
    text = f"candidate,fidelity,unit,e\na,0,{unit},3\na,{largest / 2},{unit},2\na,{largest},,1\n"
    table = read_table(write(tmp_path, text))
    assert table.fidelities.tolist() == [0.0, 0.5, 1.0]
    assert table.unit == expected


def test_each_problem_has_its_own_unit_of_fidelity(tmp_path: Path) -> None:
    text = "problem,candidate,fidelity,e\np,a,1,1\np,a,50,1\nq,a,0.5,1\nq,a,1,1\nr,a,1000,1\n"
    grids = [t.fidelities.tolist() for t in read_tables(write(tmp_path, text))]
    assert grids == [[0.02, 1.0], [0.5, 1.0], [1.0]]


def test_a_gap_in_a_curve_costs_what_it_took_to_cross(tmp_path: Path) -> None:
    text = (
        "candidate,fidelity,elapsed_s,e\na,0,1,9\na,1,2,8\na,2,4,7\na,3,8,6\n"
        "b,0,1,9\nb,3,8,6\nc,0,1,9\nc,2,4,\n"
    )
    table = read_table(write(tmp_path, text))
    assert table.cost_s[0].tolist() == [1, 1, 2, 4]
    assert table.measured[1].tolist() == [True, False, False, True]
    assert table.cost_s[1, [0, 3]].tolist() == [1, 7]
    assert table.censored.tolist() == [False, False, True]
    assert np.nansum(table.cost_s, axis=1).tolist() == [8, 8, 1]


def test_failed_landmarks_are_told_from_unmeasured_ones(tmp_path: Path) -> None:
    text = (
        "candidate,fidelity,elapsed_s,state,e,f\n"
        "a,0,1,ok,1,1\na,1,2,failed,,\n"  # failed without a value
        "b,0,1,,1,1\nb,1,2,,nan,3\n"  # failed in one objective
        "c,0,1,ok,1,1\nc,1,2,failed,5,6\n"  # failed although it has values
        "d,0,1,ok,1,1\nd,1,,,,\n"  # never measured
        "e,0,1,ok,1,1\ne,1,2,,,3\n"  # a value is missing
    )
    table = read_table(write(tmp_path, text))
    assert table.failed[:, 1].tolist() == [True, True, True, False, True]
    assert table.censored.tolist() == [False, False, False, True, False]
    assert table.values[1, 1, 1] == 3.0
    assert np.isnan(table.values[2, 1]).all()


def test_infinite_values_are_failed_landmarks_and_noted(tmp_path: Path) -> None:
    path = write(tmp_path, "candidate,fidelity,e\na,0,1\na,1,inf\nb,0,-inf\nb,1,1\n")
    with pytest.warns(LampsWarning, match="2 landmarks have an infinite objective"):
        table = read_table(path)
    assert table.failed.tolist() == [[False, True], [True, False]]
    assert not np.isinf(table.values).any()


BAD = HEADER + (
    "p,a,0,1,0.9,0.1\n"
    "p,a,10,2,0.5,0.5\n"
    "p,a,10,2,0.5,0.5\n"  # 4: again
    "p,a,20,1,0.1,0.9\n"  # 5: cheaper than before
    "p,a,40,9,0.1,0.9\n"
    "p,b,0,1,many,0.1\n"  # 7: no number, so b has no landmark 0
    "p,b,10,2,0.5,0.5\n"
    "p,c,10,2,0.5,0.5\n"  # 9: has no landmark 0
    "p,,10,2,0.5,0.5\n"
    "p,d,0,,0.5,0.5\n"
    "p,d,x,1,0.5,0.5\n"
    "p,e,0,1\n"
    "q,a,0,1,0.5,0.5\n"
)


def test_bad_rows_are_listed_and_the_rest_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path, BAD)
    tables, bad = read_tables(path, on_bad="list")
    assert [t.name for t in tables] == ["p", "q"]
    assert tables[0].candidates == ("a",)
    assert tables[0].fidelities.tolist() == [0.0, 0.25, 1.0]
    assert tables[0].cost_s.tolist() == [[1.0, 1.0, 7.0]]
    said = {(row.line, row.candidate): row.reason for row in bad}
    expected = {
        (4, "a"): "candidate 'a' at fidelity 10.0 was given in line 3 already",
        (5, "a"): "elapsed_s of candidate 'a' decreases from 2 to 1",
        (7, "b"): "error is 'many', expected a number",
        (8, "b"): "candidate 'b' has no landmark 0 (fidelity 0)",
        (9, "c"): "candidate 'c' has no landmark 0 (fidelity 0)",
        (10, ""): "candidate is empty",
        (11, "d"): "elapsed_s is empty",
        (12, "d"): "fidelity is 'x', expected a number",
        (13, ""): "4 cells, the header has 6",
    }
    assert said.keys() == expected.keys()
    for key, reason in expected.items():
        assert reason in said[key]
    assert all(row.file == "t.csv" for row in bad)
    with pytest.raises(ProblemError, match="table 'p' line 4: candidate 'a' at fidelity") as e:
        read_tables(path)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("p,1,a,0,nan,1", "elapsed_s is nan, expected the seconds"),
        ("p,1,a,0,inf,1", "elapsed_s is inf"),
        ("p,x,a,0,1,1", "seed is 'x', expected a whole number"),
        ("p,1.5,a,0,1,1", "seed is '1.5'"),
        ("p,1,a,-1,1,1", "fidelity -1.0 is not a number of 0 or more"),
    ],
)
def test_each_bad_row_has_a_reason(row: str, reason: str, tmp_path: Path) -> None:
    path = write(tmp_path, f"problem,seed,candidate,fidelity,elapsed_s,e\n{row}\n")
    tables, (bad,) = read_tables(path, on_bad="list")
    assert tables == []
    assert (bad.line, bad.problem) == (2, "p")
    assert reason in bad.reason
    assert str(bad).startswith("table 'p' line 2: ")
    with pytest.raises(ProblemError, match="line 2"):
        read_tables(path)


def test_a_state_is_ok_or_failed(tmp_path: Path) -> None:
    path = write(tmp_path, "candidate,fidelity,state,e\na,0,crashed,1\n")
    with pytest.raises(ProblemError, match="state is 'crashed', expected 'ok' or 'failed'"):
        read_table(path)


def test_a_folder_is_all_its_tables(tmp_path: Path) -> None:
    write(tmp_path, "candidate,fidelity,e\na,0,1\n", "one.csv")
    (tmp_path / "two.csv.gz").write_bytes(gzip.compress(b"candidate,fidelity,f\na,0,1\n"))
    write(tmp_path, "problem,candidate,fidelity,e\none,a,0,1\n", "zwei.csv")
    write(tmp_path, "not a table", "README.md")
    write(tmp_path, "hidden", ".x.csv")
    tables = read_tables(tmp_path, maximize=["f"])
    assert [t.name for t in tables] == ["one", "two", "zwei/one"]
    assert tables[1].objectives[0].direction == "maximize"
    with pytest.raises(ProblemError, match=r"no landmark table in .*, expected files named"):
        read_tables(write(tmp_path, "", "empty/x").parent)


def test_words_that_differ_in_white_space_are_one(tmp_path: Path) -> None:
    text = "problem,candidate,fidelity,e\np, a,0, 1\n p,a ,1,2 \n"
    (table,) = read_tables(write(tmp_path, text))
    assert (table.candidates, table.measured.tolist()) == (("a",), [[True, True]])


def test_an_index_column_that_a_tool_left_is_no_objective(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, ",candidate,fidelity,e\n0,a,0,1\n1,a,1,2\n"))
    assert [o.name for o in table.objectives] == ["e"]


@pytest.mark.parametrize("column", ["candidate", "fidelity", "problem", "elapsed_s"])
def test_a_column_twice_is_refused(column: str, tmp_path: Path) -> None:
    path = write(tmp_path, f"problem,candidate,fidelity,elapsed_s,e,{column}\np,a,0,1,1,0\n")
    with pytest.raises(ProblemError, match=f"column '{column}' twice"):
        read_tables(path)


def test_the_largest_size_of_a_candidate_counts(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "candidate,fidelity,size,e\na,0,,1\na,1,7,1\nb,0,,1\n"))
    assert table.size[0] == 7.0
    assert np.isnan(table.size[1])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_hundred_thousand_rows_take_seconds_at_most(suffix: str, tmp_path: Path) -> None:
    import pandas as pd

    keys = list(itertools.product(range(4), range(500), range(50)))
    frame = pd.DataFrame(keys, columns=["problem", "candidate", "fidelity"])
    frame["elapsed_s"] = frame["fidelity"] + 0.5
    frame["error"] = 1.0 / (1.0 + frame["fidelity"])
    path = tmp_path / f"t.{suffix}"
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    best = np.inf
    for _ in range(3):
        started = time.perf_counter()
        tables = read_tables(path)
        best = min(best, time.perf_counter() - started)
    assert [t.measured.sum() for t in tables] == [25_000] * 4
    assert best < 2.0


def test_bad_rows_sort_by_line() -> None:
    assert sorted([BadRow(3, "p", "a", "x"), BadRow(2, "q", "b", "y")])[0].line == 2
