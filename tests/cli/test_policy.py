"""``lamps policy``: list, show, train, evaluate, scores, report."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _lamps_cli import run

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from _curves import curves, write_csv

from lamps.policy.evaluate import MEASURES
from lamps.policy.features import FEATURE_VERSION

EVALUATE = ("policy", "evaluate", "--policy", "front-racing", "--policy", "smallest-first")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Three tables of two families in two files."""
    write_csv(tmp_path / "tables", [curves("p"), curves("q", seed=1)], "one")
    write_csv(tmp_path / "tables", [curves("r", seed=2, family="other", objectives=3)], "two")
    return tmp_path / "tables"


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings on pools of one small shape, on made-up and given tables only."""
    train = pytest.importorskip("lamps.policy.train")
    monkeypatch.setattr(train, "GROUPS", ((6, 4, 2, 4),))
    monkeypatch.setattr("lamps.policy.material.shipped", lambda held_out=False: [])


def cells(document: Any) -> set[tuple[str, str, int]]:
    return {(s["policy"], s["table"], s["workers"]) for s in document["scores"]}


def test_list_marks_one_default() -> None:
    rows = run("policy", "list", "--json").document()
    assert sum(row["default"] for row in rows) == 1
    assert "lamps" in [row["policy"] for row in rows]


def test_evaluate_an_unknown_folder_without_training(tables: Path) -> None:
    answer = run(*EVALUATE, "--tables", str(tables), "--workers", "1", "--workers", "4", "--json")
    assert (answer.code, answer.err) == (0, "")
    document = answer.document()
    assert set(document) == {"settings", "scores", "summary", "paired", "notes"}
    assert cells(document) == {
        (p, t, w) for p in ("front-racing", "smallest-first") for t in "pqr" for w in (1, 4)
    }
    assert set(MEASURES) <= set(document["scores"][0])
    lines = {(s["policy"], s["workers"]): s for s in document["summary"]}
    assert lines["front-racing", 1]["cases"] == 5  # one pair each, and of three objectives three
    assert {(p["policy"], p["other"]) for p in document["paired"]} == {
        ("front-racing", "smallest-first")
    }
    assert [t["name"] for t in document["settings"]["tables"]] == ["p", "q", "r"]


def test_evaluate_prints_a_line_per_policy_and_workers(tables: Path) -> None:
    answer = run(*EVALUATE, "--tables", str(tables), "--workers", "1", "--workers", "2")
    assert answer.code == 0
    assert answer.out.count("front-racing") == answer.out.count("smallest-first") == 2
    rows = run(*EVALUATE, "--tables", str(tables), "--nl").lines()
    assert [row["policy"] for row in rows] == ["front-racing", "smallest-first"]


def test_the_learned_policy_judges_any_folder(tables: Path) -> None:
    answer = run(
        "policy", "evaluate", "--tables", str(tables), "--policy", "lamps", "--policy",
        "front-racing", "--sets", "1", "--json",
    )  # fmt: skip
    assert answer.code == 0
    assert {s["policy"] for s in answer.document()["scores"]} == {"lamps", "front-racing"}


def test_what_is_broken_is_listed_and_the_rest_evaluated(tables: Path) -> None:
    (tables / "broken.csv").write_text("a,b\n1,2\n")
    (tables / "empty.csv").write_text("")
    (tables / "binary.csv").write_bytes(b"\xff\xfe\x00")
    (tables / "fake.parquet").write_text("no")
    head = "candidate,fidelity,elapsed_s,e\n"
    (tables / "single.csv").write_text(head + "a,0,1,0.5\na,1,2,0.4\n")
    (tables / "nan.csv").write_text(head + "a,0,1,nan\nb,0,1,nan\n")
    (tables / "down.csv").write_text(head + "a,0,2,0.5\na,1,1,0.4\nb,0,1,1\nb,1,2,1\n")
    answer = run(*EVALUATE, "--tables", str(tables), "--json")
    assert answer.code == 0
    assert {t for _, t, _ in cells(answer.document())} == {"p", "q", "r"}
    for part in (
        "broken.csv: landmark table 'broken' has no column 'candidate'", "empty.csv",
        "binary.csv", "fake.parquet: ", "single is left out: 1 candidate", "nan is left out",
        "down.csv: ", "down is left out: the end of 1 of 2 curves is known",
    ):  # fmt: skip
        assert part in answer.err, part
    assert "Traceback" not in answer.err


def test_all_pareto_and_one_landmark_are_evaluated(tmp_path: Path) -> None:
    head = "candidate,fidelity,elapsed_s,e,f\n"
    rows = "".join(f"c{i},0,{i + 1},{i},{-i}\n" for i in range(5))
    (tmp_path / "flat.csv").write_text(head + rows)
    answer = run(*EVALUATE, "--tables", "flat.csv", "--json")
    assert answer.code == 0
    assert all(s["front"] == 5 for s in answer.document()["scores"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--tables", "nowhere"], 1, "ProblemError: no file or folder 'nowhere'"),
        (["--tables", "."], 1, "ProblemError: there is no landmark table to evaluate"),
        (["--policy", "lampz"], 1, "UnknownMethod: no policy 'lampz'.* Did you mean 'lamps'"),
        (["--tables", "tables", "--objectives", "speed"], 1, "no table has an objective 'speed'"),
        (["--tables", "tables", "--objectives", ","], 1, "expected names with commas"),
        (["--tables", "tables", "--maximize", "acc"], 1, "cannot maximise 'acc'"),
        (["--tables", "tables", "--leave-out", "task"], 1, "give --out DIR"),
        (["--tables", "tables", "--weights", "w"], 1, "no policy weights at w"),
        (["--leave-out", "seed"], 2, "'seed' is not one of"),
        (["--workers", "0"], 1, "expected numbers of 1 or more"),
    ],
)
def test_one_line_for_what_cannot_be_done(
    tables: Path, arguments: list[str], code: int, message: str
) -> None:
    if arguments[-1] == ".":
        for file in tables.iterdir():
            file.unlink()
    answer = run("policy", "evaluate", "--policy", "random", *arguments)
    assert answer.code == code
    assert answer.out == ""
    assert re.search(message, answer.err)
    assert "Traceback" not in answer.err


def test_only_what_all_refuse_is_an_error(tables: Path) -> None:
    for file in tables.iterdir():
        file.write_text("candidate,fidelity,elapsed_s,e\na,0,1,nan\nb,0,1,nan\n")
    answer = run(*EVALUATE, "--tables", str(tables))
    assert answer.code == 1
    assert "none of 2 landmark tables can be evaluated, see above why" in answer.err


def test_directions_change_what_is_found(tables: Path) -> None:
    down, up = (
        run(*EVALUATE, "--tables", str(tables), "--objectives", "error,mb", *more, "--json")
        for more in ((), ("--maximize", "error"))
    )
    assert [s["front"] for s in down.document()["scores"]] != [
        s["front"] for s in up.document()["scores"]
    ]


def test_results_go_on_land_in_sql_and_become_a_page(tables: Path, place: Path) -> None:
    store = f"sqlite:///{place}/lamps.db"
    call = (*EVALUATE, "--policy", "oracle", "--tables", str(tables), "--out", "res",
            "--store", store)  # fmt: skip
    first = run(*call, "--json")
    assert first.code == 0
    assert "15 new scores of 15" in first.err
    again = run(*call, "--json")
    assert "0 new scores of 15" in again.err
    assert again.document()["scores"] == first.document()["scores"]
    assert json.loads((place / "res" / "results.json").read_text()) == again.document()
    listed = run("policy", "scores", "--store", store, "--json").document()
    assert {row["policy"]: row["cases"] for row in listed} == {
        "front-racing": 5, "smallest-first": 5, "oracle": 5,
    }  # fmt: skip
    assert run("store", "check", "--store", store).code == 0
    report = run("policy", "report", "res", "--out", "page/RESULTS.md", "--json")
    assert report.code == 0, report.err
    files = [Path(row["file"]) for row in report.document()]
    assert files[0].name == "RESULTS.md"
    assert all(f.stat().st_size for f in files)
    assert "front-racing" in files[0].read_text()


def test_scores_of_an_empty_store(place: Path) -> None:
    answer = run("policy", "scores", "--store", f"sqlite:///{place}/new.db")
    assert (answer.code, "no scores" in answer.out) == (0, True)


def test_report_of_nothing_is_one_line(place: Path) -> None:
    answer = run("policy", "report", "nowhere")
    assert answer.code == 1
    assert answer.err.startswith("ConfigError: no results in nowhere")


def test_train_writes_weights_that_say_where_they_come_from(
    tables: Path, place: Path, tiny: None
) -> None:
    store = f"sqlite:///{place}/lamps.db"
    call = ("policy", "train", "--tables", str(tables), "--out", "w.safetensors",
            "--iterations", "2", "--store", store)  # fmt: skip
    answer = run(*call, "--seed", "3", "--json")
    assert answer.code == 0, answer.err
    assert "3 tables of 2 families, 2 iterations" in answer.err
    said = answer.document()["metadata"]
    assert said["features"] == FEATURE_VERSION
    assert said["seed"] == said["settings"]["seed"] == 3
    assert [t["name"] for t in said["tables"]] == ["p", "q", "r"]
    assert all(len(t["fingerprint"]) == 64 for t in said["tables"])
    assert {"lamps", "numpy", "torch"} <= set(said["versions"])
    shown = run("policy", "show", "w.safetensors", "--json").document()
    assert shown["tables"] == said["tables"]
    assert shown["size_bytes"] == Path("w.safetensors").stat().st_size < 5_000_000
    assert shown["parameters"] > 1000
    assert "trained on 3 tables" in run("policy", "show", "w.safetensors").out
    before = Path("w.safetensors").read_bytes()
    again = run(*call, "--seed", "3")
    assert "going on after 2" in again.err
    assert Path("w.safetensors").read_bytes() == before
    other = run(*call, "--seed", "4")
    assert other.code == 1
    assert "holds a training with other settings (seed)" in other.err
    judged = run(
        "policy", "evaluate", "--tables", str(tables), "--policy", "lamps", "--weights",
        "w.safetensors", "--sets", "1", "--json",
    )  # fmt: skip
    assert {s["weights"] for s in judged.document()["scores"]} == {shown["sha256"]}


def test_train_keeps_held_out_tables_out(place: Path, tiny: None) -> None:
    from lamps.tables import write_tables

    about = {"tasks": {"p": {"held_out": True}}}
    write_tables(place / "some.parquet", [curves("p"), curves("q", seed=1)], about)
    answer = run("policy", "train", "--tables", "some.parquet", "--iterations", "1", "--json")
    assert answer.code == 0, answer.err
    assert "left out: p is kept for the last evaluation" in answer.err
    assert [t["name"] for t in answer.document()["metadata"]["tables"]] == ["q"]


def test_train_without_tables_is_one_line(tiny: None) -> None:
    answer = run("policy", "train", "--iterations", "1")
    assert answer.code == 1
    assert "ConfigError: no landmark tables to train on" in answer.err
    for option, value in (("--synthetic", "2"), ("--iterations", "0")):
        assert f"{option} is {value}" in run("policy", "train", option, value).err


def test_an_interrupted_training_goes_on_with_the_same_numbers(
    tables: Path, tiny: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lamps.policy import train, training

    plain, keep = training.settings_of, train._keep
    monkeypatch.setattr(training, "settings_of", lambda **given: plain(**given, segment=1))
    call = ("policy", "train", "--tables", str(tables), "--iterations", "3")
    assert run(*call, "--out", "whole.safetensors").code == 0

    def keep_and_be_interrupted(*arguments: Any) -> None:
        keep(*arguments)
        if arguments[-1] == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(train, "_keep", keep_and_be_interrupted)
    cut = run(*call, "--out", "cut.safetensors")
    assert cut.code == 130
    assert "holds 2 of 3 iterations, the same command goes on" in cut.err
    assert not Path("cut.safetensors").exists()
    monkeypatch.setattr(train, "_keep", keep)
    assert "going on after 2" in run(*call, "--out", "cut.safetensors").err
    assert Path("cut.safetensors").read_bytes() == Path("whole.safetensors").read_bytes()


def test_an_interrupted_evaluation_goes_on(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lamps.policy.scorebook import Scorebook

    call = (*EVALUATE, "--tables", str(tables), "--out", "res", "--json")
    add = Scorebook.add

    def add_and_be_interrupted(book: Scorebook, *arguments: Any) -> None:
        add(book, *arguments)
        if len(book) == 4:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Scorebook, "add", add_and_be_interrupted)
    cut = run(*call)
    assert (cut.code, cut.out) == (130, "")
    assert "of 10 replays are done; res keeps them, the same command goes on" in cut.err
    monkeypatch.setattr(Scorebook, "add", add)
    assert run(*call).code == 0
    assert len(Path("res/scores.jsonl").read_text().splitlines()) == 10


def test_training_without_torch_names_the_extra(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for call in (
        ("policy", "train", "--tables", str(tables)),
        ("policy", "evaluate", "--tables", str(tables), "--leave-out", "task", "--out", "res"),
    ):
        answer = run(*call)
        assert answer.code == 1
        assert "pip install 'lamps-automl[policy]'" in answer.err


def test_leave_one_out_trains_and_judges_every_table_once(tables: Path, tiny: None) -> None:
    call = (*EVALUATE, "--policy", "lamps", "--policy", "oracle", "--tables", str(tables),
            "--leave-out", "task", "--train-iterations", "1", "--ablations", "--sets", "1",
            "--out", "res", "--json")  # fmt: skip
    answer = run(*call)
    assert answer.code == 0, answer.err
    assert "fold 1/3, without p: 2 tables to learn from, 1 to judge on" in answer.err
    found = answer.document()["scores"]
    lamps = {s["table"]: s["weights"] for s in found if s["policy"] == "lamps"}
    assert set(lamps) == {"p", "q", "r"}
    assert len(set(lamps.values())) == 3
    assert "lamps, no extrapolation" in {s["policy"] for s in found}
    again = run(*call)
    assert "iterations," not in again.err
    assert again.document()["scores"] == found
    report = run("policy", "report", "res", "--out", "RESULTS.md")
    assert report.code == 0, report.err
    text = Path("RESULTS.md").read_text()
    assert "## Trained without the task" in text
    assert "What the learned policy is made of" in text


def test_weights_of_another_feature_version_name_both(tables: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(1)}, "old.safetensors", {"lamps": '{"features": "0"}'})
    for call in (
        ("policy", "show", "old.safetensors"),
        ("policy", "evaluate", "--policy", "lamps", "--weights", "old.safetensors"),
    ):
        answer = run(*call)
        assert answer.code == 1
        assert (
            f"features of version 0, this lamps computes version {FEATURE_VERSION}" in answer.err
        )
