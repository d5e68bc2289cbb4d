"""What each option does, and what is refused."""

from __future__ import annotations

import io
import json
import sqlite3
import time
from contextlib import redirect_stderr
from pathlib import Path

import click
import pytest
from _lamps_cli import Answer, Searched, process, run

PLUGIN = '''"""A method that cannot be saved.

Paper: none.
"""

from lamps.method import MethodSpec, Tags
from lamps_plugins.replay import curve_replay


class BadSaver(curve_replay.CurveReplay):
    """Writes half of it and gives up."""

    Params = curve_replay.Params
    spec = MethodSpec(family="replay", summary="cannot be saved", tags=Tags(data_free=True))

    def save(self, problem, directory):
        """Give up half way."""
        (directory / "half").write_text("half")
        raise RuntimeError("no more\\nink")
'''


def search(curves: Path, store: str, *more: str) -> Answer:
    """A quiet search on a table in this process, answered as JSON."""
    return run(
        "search", "--problem", f"replay:{curves}", "--backend", "local", "--store", store,
        "--name", "r", "--json", "--quiet", *more,
    )  # fmt: skip


def status(store: str, name: str = "r") -> dict[str, object]:
    """The status document of a run."""
    document = run("status", name, "--store", store, "--json").document()
    assert isinstance(document, dict)
    return document


# -- what is searched ----------------------------------------------------------------------------


def test_param_fixes_a_parameter_of_every_candidate(curves: Path, store_url: str) -> None:
    answer = search(curves, store_url, "--param", "curve-replay.payload_bytes=100")
    params = [m["params"] for m in answer.document()["front"]["members"]]
    assert {p["payload_bytes"] for p in params} == {100}


def test_param_takes_json_and_plain_text() -> None:
    from lamps.cli.search import parse_params

    given = ["m.a=1", "m.b=1.5", "m.c=true", "m.d=text", 'm.e="1"', "m.f=", "m.g=a=b", "x.y.z=1"]
    assert parse_params(given) == {
        "m": {"a": 1, "b": 1.5, "c": True, "d": "text", "e": "1", "f": "", "g": "a=b"},
        "x.y": {"z": 1},
    }


def test_samples_draws_settings_per_method(tmp_path: Path, store_url: str) -> None:
    data = tmp_path / "data.csv"
    rows = [f"{'fine good' if i % 2 else 'bad poor'} thing {i},{i % 2}" for i in range(80)]
    data.write_text("text,label\n" + "\n".join(rows) + "\n")
    answer = run(
        "search", str(data), "--target", "label", "--method", "tfidf-logreg", "--samples", "3",
        "--max-landmarks", "3", "--backend", "local", "--store", store_url, "--name", "r",
        "--json", "--quiet",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    trials = status(store_url)["trials"]
    assert isinstance(trials, list)
    labels = {t["candidate"] for t in trials}
    assert len(trials) == len(labels) == 3


@pytest.mark.parametrize(
    ("flags", "landmarks", "reason"),
    [
        (["--max-landmarks", "5"], 5, "budget used up: 5 landmarks"),
        (["--max-trials", "1"], 4, "budget used up: 1 trials"),
        (["--budget", "0.000001s"], 1, "budget used up: 1e-06 wall seconds"),
        (["--device-budget", "0.000001"], 1, "budget used up: 1e-06 device seconds"),
    ],
)
def test_budgets_end_a_search_with_exit_0(
    flags: list[str], landmarks: int, reason: str, curves: Path, store_url: str
) -> None:
    answer = search(curves, store_url, "--policy", "exhaustive", *flags)
    assert answer.code == 0, answer.err
    document = answer.document()
    assert (document["state"], document["reason"]) == ("exhausted", reason)
    spent = status(store_url)["spent"]
    assert isinstance(spent, dict)
    assert spent["landmarks"] == landmarks


def test_a_larger_budget_goes_on_and_a_smaller_one_ends_at_once(
    curves: Path, store_url: str
) -> None:
    search(curves, store_url, "--policy", "exhaustive", "--max-landmarks", "5")
    answer = run("resume", "r", "--store", store_url, "--max-landmarks", "3", "--json", "-q")
    assert answer.document()["reason"] == "budget used up: 3 landmarks"
    answer = run("resume", "r", "--store", store_url, "--max-landmarks", "100", "--json", "-q")
    assert answer.document()["state"] == "finished"
    spent = status(store_url)["spent"]
    assert isinstance(spent, dict)
    assert spent["landmarks"] == 16


def test_objective_draws_the_front_over_less(curves: Path, store_url: str) -> None:
    answer = search(curves, store_url, "--objective", "error", "--policy", "exhaustive")
    front = answer.document()["front"]
    assert [o["name"] for o in front["objectives"]] == ["error"]
    assert [m["params"]["curve"] for m in front["members"]] == ["b"]
    refused = run("search", "--problem", f"replay:{curves}", "--objective", "eror",
                  "--store", store_url, "--backend", "local")  # fmt: skip
    assert (refused.code, refused.out) == (1, "")
    assert "no objective 'eror'. Known: error, mb" in refused.err


def test_a_name_that_is_taken_is_refused_with_the_way_on(curves: Path, store_url: str) -> None:
    search(curves, store_url)
    answer = search(curves, store_url)
    assert (answer.code, answer.out) == (1, "")
    assert "lamps resume 'r'" in answer.err
    assert len(run("status", "--store", store_url, "--json").document()) == 1


def test_artifacts_go_where_they_are_told(curves: Path, store_url: str, tmp_path: Path) -> None:
    search(curves, store_url, "--artifacts", f"file://{tmp_path}/elsewhere ü")
    assert len(list((tmp_path / "elsewhere ü").rglob("*.safetensors"))) == 4
    assert not (tmp_path / "lamps-artifacts").exists()


def test_a_cluster_that_does_not_answer_is_named_within_seconds(
    curves: Path, store_url: str
) -> None:
    started = time.monotonic()
    answer = process(
        "search", "--problem", f"replay:{curves}", "--store", store_url, "--quiet",
        "--address", "127.0.0.1:1",
    )  # fmt: skip
    assert (answer.returncode, answer.stdout) == (1, "")
    assert "no Ray cluster answers at '127.0.0.1:1'" in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert time.monotonic() - started < 30


# -- fronts --------------------------------------------------------------------------------------


def curves_of(answer: Answer) -> list[str]:
    """The curves on a front, in its order."""
    return [m["params"]["curve"] for m in answer.document()["members"]]


def test_where_keeps_what_meets_all_conditions(searched: Searched) -> None:
    front = ("front", "über", "--store", searched.store, "--json")
    assert curves_of(run(*front)) == ["b", "a", "ß 日本"]
    assert curves_of(run(*front, "--where", "mb<2")) == ["a", "ß 日本"]
    assert curves_of(run(*front, "--where", "mb<2", "--where", "error<=0.3")) == ["a"]
    assert curves_of(run(*front, "--where", "mb < 2, error <= 0.3")) == ["a"]
    assert curves_of(run(*front, "--where", "mb<0")) == []


def test_unfinished_candidates_count_only_when_asked(searched: Searched) -> None:
    front = ("front", "über", "--store", searched.store, "--json", "--where", "mb>=3")
    assert curves_of(run(*front)) == []
    assert curves_of(run(*front, "--unfinished")) == ["broken"]


@pytest.mark.parametrize(
    ("weights", "curve"),
    [("error", "b"), ("mb:1", "ß 日本"), ("error:1,mb:1", "a"), ("error:0,mb:3", "ß 日本")],
)
def test_pick_prints_one_member(weights: str, curve: str, searched: Searched) -> None:
    pick = ("front", "über", "--store", searched.store, "--pick", weights)
    member = run(*pick, "--json").document()
    assert member["params"]["curve"] == curve
    assert run(*pick, "--nl").lines() == [member]
    rows = [line for line in run(*pick).out.splitlines() if "curve-replay" in line]
    assert len(rows) == 1
    assert curve in rows[0]


@pytest.mark.parametrize(
    ("suffix", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_plot_writes_a_picture_and_leaves_stdout_alone(
    suffix: str, begin: bytes, searched: Searched, tmp_path: Path
) -> None:
    path = tmp_path / f"front.{suffix}"
    plot = ("front", "über", "--store", searched.store, "--plot", str(path), "--json")
    answer = run(*plot)
    assert answer.code == 0, answer.err
    assert answer.err == f"wrote {path}\n"
    assert len(answer.document()["members"]) == 3
    assert path.read_bytes().startswith(begin)


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ([], "front.docx"),
        ([], "nowhere/front.png"),
        (["--objective", "error"], "front.png"),
        (["--where", "mb<0"], "front.png"),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_one_line(
    more: list[str], path: str, searched: Searched, tmp_path: Path
) -> None:
    answer = run("front", "über", "--store", searched.store, "--plot", str(tmp_path / path), *more)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.count("\n") == 1
    assert not (tmp_path / path).exists()


def test_compare_measures_two_runs_with_one_ruler(searched: Searched) -> None:
    compare = ("compare", "über", "rest", "--store", searched.store)
    document = run(*compare, "--json").document()
    first, second = document["runs"]
    assert first["hypervolume"] == second["hypervolume"] > 0
    assert first["on_joint_front"] == second["on_joint_front"] == first["front"] == 3
    assert set(document["reference_point"]) == {"error", "mb"}


def test_compare_refuses_different_data(curves: Path, store_url: str) -> None:
    search(curves, store_url)
    curves.write_text(curves.read_text().replace("0.30", "0.31"))
    run("search", "--problem", f"replay:{curves}", "--backend", "local", "--store", store_url,
        "--name", "other", "-q")  # fmt: skip
    answer = run("compare", "r", "other", "--store", store_url)
    assert (answer.code, answer.out) == (1, "")
    assert "searched different data or splits" in answer.err


# -- export --------------------------------------------------------------------------------------


def test_export_writes_a_folder_once(searched: Searched, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    export = ("export", "über", "1", str(out), "--store", searched.store)
    assert run(*export) == Answer(0, f"{out}\n", "")
    card = json.loads((out / "lamps.json").read_text(encoding="utf-8"))
    told = card["provenance"]
    assert (told["run"], told["candidate"], told["scores"]["error"]) == ("über", 1, 0.2)
    assert (out / "curve.csv").read_text().splitlines()[-1] == "1.0,0.2,2.0"
    assert [p.name for p in out.parent.iterdir()] == ["out"]
    (out / "mine").write_text("mine")
    refused = run(*export)
    assert (refused.code, refused.out) == (1, "")
    assert "--overwrite" in refused.err
    assert (out / "mine").read_text() == "mine"
    again = run(*export, "--overwrite", "--json")
    assert again.document() == {"directory": str(out), "files": ["curve.csv", "lamps.json"]}
    assert [p.name for p in out.parent.iterdir()] == ["out"]


def test_export_takes_an_empty_folder_and_refuses_a_file(
    searched: Searched, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    export = ("export", "über", "1", "--store", searched.store)
    assert run(*export, str(tmp_path / "empty")).code == 0
    (tmp_path / "file").write_text("x")
    assert run(*export, str(tmp_path / "file")).code == 2
    assert run(*export, str(tmp_path / "file" / "below")).code == 1
    assert (tmp_path / "file").read_text() == "x"


def test_a_save_that_raises_leaves_nothing_and_replaces_nothing(
    curves: Path, store_url: str, tmp_path: Path
) -> None:
    plugins = tmp_path / "plugins"
    (plugins / "replay").mkdir(parents=True)
    (plugins / "replay" / "bad_saver.py").write_text(PLUGIN)
    done = search(curves, store_url, "--plugins", str(plugins), "--method", "bad-saver")
    assert done.code == 0, done.err
    out = tmp_path / "out" / "model"
    for flags in ([], ["--overwrite"]):
        answer = run("export", "r", "0", str(out), "--store", store_url, *flags)
        assert (answer.code, answer.out) == (1, "")
        assert answer.err.count("\n") == 1
        assert "bad-saver cannot be saved: RuntimeError: no more ink" in answer.err
        assert {p.name for p in out.parent.iterdir()} <= {"model"}
        assert not (out / "half").exists()
        out.mkdir(parents=True, exist_ok=True)
        (out / "lamps.json").write_text("an earlier export")
    assert (out / "lamps.json").read_text() == "an earlier export"


def test_a_folder_that_is_no_export_is_never_replaced(
    curves: Path, store_url: str, tmp_path: Path
) -> None:
    search(curves, store_url, "--policy", "exhaustive")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("precious")
    answer = run("export", "r", "0", str(mine), "--store", store_url, "--overwrite")
    assert (answer.code, answer.out) == (1, "")
    assert "is no earlier export" in answer.err
    assert [p.name for p in mine.iterdir()] == ["thesis.txt"]


def test_a_candidate_without_checkpoint_cannot_be_exported(
    curves: Path, store_url: str, tmp_path: Path
) -> None:
    search(curves, store_url, "--max-landmarks", "1", "--policy", "exhaustive")
    answer = run("export", "r", "3", str(tmp_path / "out"), "--store", store_url)
    assert (answer.code, answer.out) == (1, "")
    assert "has no checkpoint (it is waiting)" in answer.err
    assert not (tmp_path / "out").exists()


def test_a_truncated_checkpoint_is_refused_by_export_and_survived_by_resume(
    curves: Path, store_url: str, tmp_path: Path
) -> None:
    search(curves, store_url, "--max-landmarks", "2", "--policy", "exhaustive")
    (path,) = (tmp_path / "lamps-artifacts").rglob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-10])
    answer = run("export", "r", "0", str(tmp_path / "out"), "--store", store_url)
    assert (answer.code, answer.out) == (1, "")
    assert "damaged" in answer.err
    assert not (tmp_path / "out").exists()
    answer = run("resume", "r", "--store", store_url, "--max-landmarks", "99", "--json", "-q")
    assert (answer.code, answer.document()["failed"]) == (0, 0)
    assert run("export", "r", "0", str(tmp_path / "out"), "--store", store_url).code == 0


# -- lists ---------------------------------------------------------------------------------------


def test_policy_list_marks_one_default() -> None:
    rows = run("policy", "list", "--json").document()
    assert sum(row["default"] for row in rows) == 1
    assert all(row["summary"] for row in rows)


def test_model_list_names_models_and_whether_they_are_at_hand() -> None:
    rows = run("model", "list", "--family", "text-classification", "--json").document()
    names = [row["name"] for row in rows]
    assert len(set(names)) == len(names) > 3
    assert all(row["state"] for row in rows)
    answer = run("model", "show", names[0], "--json")
    assert answer.document()["name"] == names[0]
    assert run("model", "list", "--family", "nothing").code == 1


def test_store_upgrade_and_check(store_url: str, tmp_path: Path, searched: Searched) -> None:
    first = run("store", "upgrade", "--store", store_url, "--json").document()
    assert first["before"] is None
    second = run("store", "upgrade", "--store", store_url, "--json").document()
    assert second["before"] == second["after"] == first["after"]
    assert "already at schema" in run("store", "upgrade", "--store", store_url).out
    check = run("store", "check", "--store", searched.store)
    assert check == Answer(0, "no problems found\n", "")


def test_store_check_finds_damage(curves: Path, store_url: str, tmp_path: Path) -> None:
    search(curves, store_url)
    with sqlite3.connect(tmp_path / "lamps.db") as database:
        database.execute("UPDATE trials SET state = 'running' WHERE trial_index = 1")
    database.close()
    answer = run("store", "check", "--store", store_url, "--json")
    assert answer.code == 1
    problems = answer.document()["problems"]
    assert "trial 1 of run 'r' is running without a pending decision" in problems
    assert f"{len(problems)} problems: " in answer.err
    assert answer.err.count("\n") == 1


# -- options of the families ---------------------------------------------------------------------


def test_no_option_of_our_families_is_left_out_or_hidden() -> None:
    """Nothing is said on stderr, and each option is there under its own name."""
    from importlib import import_module

    from lamps import plugins
    from lamps.cli.main import cli

    done = process("search", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    command = cli.get_command(click.Context(cli), "search")
    assert command is not None
    there = {p.name for p in command.get_params(click.Context(command))}
    for entry in plugins.registry().families.values():
        if (entry.path / "_options.py").is_file():
            options = import_module(f"{entry.package}._options").OPTIONS
            assert {o.name for o in options} <= there, entry.name


def test_an_option_that_would_mean_two_things_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from lamps.cli import family_options
    from lamps.method import ProblemOption

    declared = [
        ("first", ProblemOption(name="of_text", doc="A column.")),
        ("second", ProblemOption(name="of_text", doc="A file.", kind="path")),
        ("third", ProblemOption(name="of_text", doc="A number.", kind="int")),
        ("fourth", ProblemOption(name="own", doc="Not ours.")),
    ]
    monkeypatch.setattr(family_options, "_declared", lambda: iter(declared))
    command = click.Command("c", params=[click.Option(["--own"])])
    with redirect_stderr(io.StringIO()) as told:
        family_options.add_family_options(command)
    own, text = command.params
    assert (own.name, text.name) == ("own", "of_text")
    assert isinstance(text, click.Option)
    assert text.help == "first: A column. second: A file."
    assert told.getvalue() == (
        "option --of-text of family third is left out: that of family first takes other values\n"
    )
