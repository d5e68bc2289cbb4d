"""``lamps table``: import, list, show, export, check."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from _lamps_cli import Searched, run

from lamps.tables import read_table, read_tables

LONG = """problem,candidate,fidelity,elapsed_s,acc,params
p,a,0,1,0.1,5
p,a,10,2,0.5,5
p,a,20,4,0.9,5
p,b,0,1,0.2,3
p,b,20,3,0.4,3
p,c,0,1,0.1,9
p,c,10,2,nan,9
q,a,0,1,0.5,
q,b,0,1,0.7,
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder of tables."""
    monkeypatch.setenv("LAMPS_TABLES", str(tmp_path / "tables"))
    return tmp_path / "tables"


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """A good file of two problems."""
    path = tmp_path / "mine.csv"
    path.write_text(LONG, encoding="utf-8")
    return path


def test_import_list_and_show(long: Path, folder: Path) -> None:
    assert run("table", "list", "--json").document() == []
    done = run("table", "import", str(long), "--maximize", "acc", "--family", "vision", "--json")
    assert (done.code, done.err) == (0, "")
    document = done.document()
    assert document["state"] == "imported"
    assert document["file"] == str(folder / "mine.parquet")
    assert [t["table"] for t in document["tables"]] == ["p", "q"]
    listed = run("table", "list", "--json").document()
    assert listed == document["tables"]
    assert listed[0] == {
        "table": "p", "family": "vision", "candidates": 3, "landmarks": 3,
        "objectives": ["acc (maximize)", "params (minimize)"], "failed": 1, "censored": 0,
        "file": "mine.parquet",
    }  # fmt: skip
    assert run("table", "list", "--nl").lines() == listed
    shown = run("table", "show", "p", "--json").document()
    assert shown["fidelities"] == [0.0, 0.5, 1.0]
    assert shown["front"] == ["a", "b"]
    assert [(r["candidate"], r["state"]) for r in shown["rows"]] == [
        ("a", "finished"), ("b", "finished"), ("c", "failed"),
    ]  # fmt: skip
    assert shown["rows"][2]["acc"] is None
    text = run("table", "show", "p")
    assert text.code == 0
    assert "family: vision" in text.out


def test_a_second_import_changes_nothing(long: Path, folder: Path) -> None:
    words = ("table", "import", str(long), "--maximize", "acc", "--json")
    assert run(*words).document()["state"] == "imported"
    before = {f.name: (f.read_bytes(), f.stat().st_mtime_ns) for f in folder.iterdir()}
    again = run(*words)
    assert (again.code, again.document()["state"]) == (0, "unchanged")
    assert "unchanged" in run(*words[:-1]).out
    assert {f.name: (f.read_bytes(), f.stat().st_mtime_ns) for f in folder.iterdir()} == before


def test_other_content_under_the_same_name_needs_replace(long: Path, folder: Path) -> None:
    words = ("table", "import", str(long), "--json")
    assert run(*words).code == 0
    long.write_text(LONG.replace("0.9", "0.8"), encoding="utf-8")
    refused = run(*words)
    assert refused.code == 1
    assert "holds other tables already; give --replace" in refused.err
    assert read_table(folder / "mine.parquet", problem="p").values[0, 2, 0] == 0.9
    assert run(*words, "--replace").document()["state"] == "replaced"
    assert read_table(folder / "mine.parquet", problem="p").values[0, 2, 0] == 0.8
    elsewhere = run(*words, "--name", "other")
    assert elsewhere.code == 1
    assert "table 'p' is in 'mine.parquet' already" in elsewhere.err
    assert len(list(folder.iterdir())) == 2


def test_bad_rows_are_listed_and_the_rest_is_imported(long: Path, folder: Path) -> None:
    long.write_text(LONG + "p,a,20,4,0.9,5\np,d,10,1,0.5,1\nq,c,0,1,much,\n", encoding="utf-8")
    done = run("table", "import", str(long), "--json")
    assert done.code == 0
    said = done.err.splitlines()
    assert len(said) == 3
    assert said[0].startswith("left out: mine.csv: table 'p' line 11: candidate 'a' at fidelity")
    assert "line 12: candidate 'd' has no landmark 0" in said[1]
    assert "line 13: acc is 'much'" in said[2]
    assert [(b["line"], b["candidate"]) for b in done.document()["bad_rows"]] == [
        (11, "a"), (12, "d"), (13, "c"),
    ]  # fmt: skip
    assert read_table(folder / "mine.parquet", problem="p").candidates == ("a", "b", "c")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("candidate,fidelity,e\na,0,x\n", "nothing was imported: 2 bad rows|1 bad rows"),
        ("candidate,fidelity,e:upwards\na,0,1\n", "'upwards', expected 'minimize' or 'maximize'"),
        ("candidate,e\na,0\n", "no column 'fidelity'"),
        ("candidate,fidelity,e\n", "has no rows"),
    ],
)
def test_nothing_is_half_imported(text: str, message: str, long: Path, folder: Path) -> None:
    long.write_text(text, encoding="utf-8")
    done = run("table", "import", str(long))
    assert (done.code, done.out) == (1, "")
    assert any(m in done.err for m in message.split("|")), done.err
    assert not folder.exists()


def test_a_public_layout_is_imported_by_a_plugin(tmp_path: Path) -> None:
    rows = ["model,params,shots,task,metric,step,value"]
    rows += [f"{m},{n},0,piqa,acc,{s},{v}" for m, n in (("a", 10), ("b", 20))
             for s, v in ((0, 0.5), (143_000, 0.7))]  # fmt: skip
    (tmp_path / "pythia_v1_curves.csv").write_text("\n".join(rows))
    words = ("table", "import", str(tmp_path), "--format", "pythia")
    assert run(*words, "--json").document()["tables"][0]["table"] == "pythia/piqa"
    assert run(*words, "--json").document()["state"] == "unchanged"
    assert "--maximize is for --format long" in run(*words, "--maximize", "error").err
    formats = run("table", "formats", "--json").document()
    assert {"long", "pythia", "taskset"} <= {f["format"] for f in formats}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("import", "x.csv", "--format", "pythja"), "no table format 'pythja'. Known: "),
        (("import", "nowhere.csv"), "no file or folder 'nowhere.csv'"),
        (("show", "z"), "no table 'z'"),
        (("check", "z"), "no table 'z'"),
    ],
)
def test_wrong_words_are_named(words: tuple[str, ...], message: str) -> None:
    done = run("table", *words)
    assert (done.code, done.out) == (1, "")
    assert message in done.err
    assert len(done.err.splitlines()) == 1


def test_check_says_what_is_odd(long: Path) -> None:
    fine = run("table", "check", str(long), "--maximize", "acc", "--json")
    assert (fine.code, fine.document()["errors"]) == (0, 0)
    said = {(f["level"], f["table"], f["finding"]) for f in fine.document()["findings"]}
    assert ("note", "p", "1 of 3 candidates failed") in said
    assert ("warning", "p", "all 2 finished candidates are Pareto: nothing to select") in said
    run("table", "import", str(long))
    assert run("table", "check", "p", "--json").document()["tables"] == ["p"]
    long.write_text(LONG + "p,a,20,4,0.9,5\n", encoding="utf-8")
    bad = run("table", "check", str(long), "--json")
    assert (bad.code, bad.document()["errors"]) == (1, 1)
    assert bad.document()["findings"][0]["finding"].startswith("mine.csv line 11: ")
    lonely = long.with_name("lonely.csv")
    lonely.write_text("candidate,fidelity,e\na,0,1\na,1,2\n")
    assert "one candidate: nothing to select" in run("table", "check", str(lonely)).out


@pytest.mark.filterwarnings("always::lamps.errors.LampsWarning")
def test_a_damaged_file_does_not_hide_the_others(long: Path, folder: Path) -> None:
    run("table", "import", str(long))
    (folder / "broken.parquet").write_bytes(b"PAR1")
    listed = run("table", "list", "--json")
    assert [t["table"] for t in listed.document()] == ["p", "q"]
    assert "warning: broken.parquet is left out" in listed.err


def test_export_turns_runs_into_tables(searched: Searched, tmp_path: Path) -> None:
    out = tmp_path / "runs.parquet"
    done = run("table", "export", "über", "rest", str(out), "--store", searched.store, "--json")
    assert (done.code, done.err) == (0, "")
    tables = read_tables(out)
    assert [t.name for t in tables] == ["über", "rest"]
    recorded = read_table(searched.curves)
    for table in tables:
        assert table.family == "replay"
        assert [o.name for o in table.objectives] == ["error", "mb"]
        assert table.candidates == tuple(f"curve-replay(curve={c})" for c in recorded.candidates)
        assert (table.values == recorded.values)[recorded.measured & ~recorded.failed].all()
        assert (table.failed == recorded.failed).all()
        assert not table.censored.any()
        assert (table.cost_s[table.measured & ~table.failed] > 0).all()
        assert table.size.tolist() == recorded.size.tolist()
        assert table.peak_bytes is not None
    card = json.loads((tmp_path / "runs.card.json").read_text())
    assert [t["failed_candidates"] for t in card["tables"]] == [1, 1]


@pytest.mark.filterwarnings("always::lamps.errors.LampsWarning")
def test_an_unfinished_run_is_exported_as_censored_curves(
    curves: Path, store_url: str, tmp_path: Path
) -> None:
    run(
        "search", "--problem", f"replay:{curves}", "--backend", "replay", "--policy",
        "round-robin", "--max-landmarks", "3", "--name", "part", "--store", store_url, "-q",
    )  # fmt: skip
    done = run("table", "export", "part", str(tmp_path / "t.parquet"), "--store", store_url)
    assert done.code == 0, done.err
    table = read_table(tmp_path / "t.parquet")
    recorded = read_table(curves)
    assert table.fidelities.tolist() == recorded.fidelities.tolist()
    assert table.measured.sum() == 3
    assert table.censored.all()
    assert len(table.candidates) <= len(recorded.candidates)
    if len(table.candidates) < len(recorded.candidates):
        assert "never started and are left out" in done.err


def test_runs_that_cannot_be_exported_are_named(searched: Searched, tmp_path: Path) -> None:
    out = str(tmp_path / "t.parquet")
    where = ("--store", searched.store)
    assert "no run 'nope'" in run("table", "export", "nope", out, *where).err
    assert "named twice" in run("table", "export", "rest", "rest", out, *where).err
    assert "expected *.parquet" in run("table", "export", "rest", f"{out}.csv", *where).err
    assert list(tmp_path.glob("*.parquet*")) == []


def test_a_table_of_several_is_replayed_by_name(long: Path, store_url: str) -> None:
    words = ("search", "--backend", "replay", "--store", store_url, "--json", "-q")
    several = run(*words, "--problem", f"replay:{long}", "--name", "x")
    assert several.code == 1
    assert "holds 2 tables (p, q), expected one" in several.err
    one = run(*words, "--problem", f"replay:{long}::q", "--name", "y")
    assert (one.code, one.document()["state"]) == (0, "finished")
