"""The page of results: every number from the scores, demands held or missed by how much."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from _curves import curves

from lamps.errors import ConfigError
from lamps.markdown import table
from lamps.policy import contest
from lamps.policy.curve_samples import curves_of
from lamps.policy.demands import demands
from lamps.policy.evaluate import Score
from lamps.policy.live_page import live_rows, load_live
from lamps.policy.results import (
    Results,
    file_name,
    load_results,
    page,
    parse_results,
    write_report,
)
from lamps.policy.scorebook import as_dict

RULES = ("random", "smallest-first", "front-racing", "mo-asha", "oracle")


@pytest.fixture(scope="module")
def evaluated() -> Results:
    """Rules on four tables of two families, two numbers of workers; `lamps` is front-racing."""
    tables = [curves(f"pythia/{i}", family="pythia", seed=i) for i in range(2)]
    tables += [curves(f"v|{i}", family="vision", seed=9 + i, objectives=3) for i in range(2)]
    plan = contest.Plan(policies=RULES, seeds=1, workers=(1, 2))
    work = contest.prepare(tables, plan)
    scores = contest.play(work)
    scores += [
        dataclasses.replace(s, policy="lamps") for s in scores if s.policy == "front-racing"
    ]
    settings = {
        "command": "lamps policy evaluate", "leave_out": "task", "seeds": 1, "train_seed": 0,
        "code": "0.1.0+abc", "versions": {"numpy": "2.4"},
    }  # fmt: skip
    return Results(settings, scores, curves_of(work), ["one is left out: 1 candidate"])


def score(policy: str, name: str, time: float, stop: float = 1.0, family: str = "pythia") -> Score:
    return Score(
        policy, name, family, ("error",), 4, 3, 1, 0, 1, time, time, time, time, time, time, 0.5,
        stop, 0.5, 0.1,
    )  # fmt: skip


def results(kind: str, scores: list[Score]) -> Results:
    return Results({"leave_out": kind}, scores, [], [])


def test_demands_name_what_was_found_and_by_how_much_it_was_missed() -> None:
    task = results(
        "task",
        [
            score("lamps", "a", 0.20, 0.99), score("oracle", "a", 0.10), score("random", "a", 0.4),
            score("lamps", "b", 0.40, 0.90), score("oracle", "b", 0.30), score("random", "b", 0.3),
        ],
    )  # fmt: skip
    family = results(
        "family",
        [score("lamps", "a", 0.5), score("random", "a", 0.6), score("mo-asha", "a", 0.4)],
    )
    found = {d.what.split(" (")[0]: d for d in demands([task, family])}
    first = found["mean time to 99 %"]
    assert (first.found, first.held, first.verdict) == ("20.0 %", True, "held")
    assert found["the same over all cases"].verdict == "missed by 3.0 %"
    assert found["goal: mean time over the oracle's"].found == "1.50 x"
    worse = found["largest ratio to the best simple rule of a table"]
    assert (worse.found, worse.verdict) == ("1.33 x", "missed by 0.23 x")
    assert "on b" in worse.what
    assert found["mean value at the policy's own stop"].verdict == "missed by 3.5 %"
    stop = found["value at its own stop on the worst table"]
    assert (stop.found, stop.verdict) == ("90.0 %", "missed by 5.0 %")
    assert found["mean time to 99 % less than that of random"].held is True
    assert found["mean time to 99 % less than that of mo-asha"].verdict == "missed by 10.0 %"
    assert found["mean time to 99 % less than that of smallest-first"].held is None


def test_what_was_not_evaluated_is_not_held() -> None:
    found = demands([results("", [score("lamps", "a", 0.1)])])
    assert {d.held for d in found} == {None}
    assert {d.verdict for d in found} == {"not evaluated"}


def test_the_page_says_where_it_comes_from_and_holds_every_table(evaluated: Results) -> None:
    text = page([evaluated], ["figures/time-to-99.png"])
    for part in (
        "`lamps policy evaluate`", "0.1.0+abc, numpy 2.4", "![time to 99](figures/time-to-99.png)",
        "## Trained without the task", "### With several workers", "### By family",
        "pythia/0", "v\\|1", "one is left out: 1 candidate", "missed by",
    ):  # fmt: skip
        assert part in text, part
    assert "nan" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    for block in text.split("\n\n"):
        lines = [line.replace("\\|", "") for line in block.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) <= 1
    assert len(rows) > 30


def test_report_writes_small_figures_and_the_same_page_again(
    evaluated: Results, tmp_path: Path
) -> None:
    document = {
        "settings": evaluated.settings, "notes": evaluated.notes, "curves": evaluated.curves,
        "scores": [as_dict(s) for s in evaluated.scores],
    }  # fmt: skip
    (tmp_path / "results.json").write_text(json.dumps(document))
    (loaded,) = load_results(tmp_path)
    assert loaded == evaluated
    out = tmp_path / "RESULTS.md"
    written = write_report([loaded], out)
    assert [p.name for p in written] == [
        "RESULTS.md", "time-to-99.png", "hypervolume-over-cost.png", "ratio-to-oracle.png",
    ]  # fmt: skip
    assert sum(p.stat().st_size for p in written[1:]) < 300_000
    before = [p.read_bytes() for p in written]
    assert [p.read_bytes() for p in write_report([evaluated], out)] == before


def test_documents_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no results in .*; write some with"):
        load_results(tmp_path)
    for text in ("{", "[]", '{"settings": {}, "scores": []}'):
        (tmp_path / "results.json").write_text(text)
        with pytest.raises(ConfigError, match="is no document of lamps policy evaluate"):
            load_results(tmp_path)
    with pytest.raises(ValueError, match="no scores"):
        parse_results({"settings": {"leave_out": "seed"}, "scores": []})


def test_a_folder_holds_one_document_per_way_to_leave_out(
    evaluated: Results, tmp_path: Path
) -> None:
    for kind in ("family", "", "task", "held-out"):
        settings = {"leave_out": kind} if kind != "held-out" else {"held_out": True}
        document = {"settings": settings, "scores": [as_dict(s) for s in evaluated.scores]}
        (tmp_path / file_name(kind)).write_text(json.dumps(document))
    assert [r.kind for r in load_results(tmp_path)] == ["", "held-out", "task", "family"]


def test_the_title_says_what_the_weights_have_seen() -> None:
    settings = {"seen": 2, "tables": [{}, {}, {}]}
    one = Results(settings, [], [], [])
    assert one.title == "As they are (the weights were trained on 2 of 3 tables)"


def test_cells_cannot_break_a_table() -> None:
    assert table(("a", "b"), [("x|y", "1\n2")]).splitlines() == [
        "| a | b |", "| --- | ---: |", "| x\\|y | 1 2 |",
    ]  # fmt: skip


def live_scores() -> list[dict[str, Any]]:
    """Two searches of one task, as ``make bench-live`` writes them."""
    common = {"task": "mail", "exhaustive_wall_s": 200.0, "landmarks": 9, "failed": 0}
    kind = "mail-n12-t160-s0-w2-val_error+latency_ms"
    return [
        {
            **common, "key": f"{kind}/exhaustive", "policy": "exhaustive",
            "wall_s": [150.0], "device_s": [90.0], "total_device_s": 120.0,
            "stop_s": None, "stop_share": None,
        },
        {
            **common, "key": f"{kind}/lamps", "policy": "lamps",
            "wall_s": [50.0], "device_s": [30.0], "total_device_s": 60.0,
            "stop_s": 80.0, "stop_share": 0.995,
        },
    ]  # fmt: skip


def test_real_searches_are_shares_of_the_exhaustive_one() -> None:
    head, rows = live_rows(live_scores())
    by_policy = {row[2]: dict(zip(head, row, strict=True)) for row in rows[:2]}
    lamps = by_policy["lamps"]
    assert lamps["settings"] == "n12-t160-s0-w2-val_error+latency_ms"
    assert (lamps["to 99 %, wall"], lamps["to 99 %, CPU"]) == ("25.0", "25.0")
    assert (lamps["found at own stop"], lamps["stops at, wall"]) == ("99.5", "40.0")
    assert by_policy["exhaustive"]["stops at, wall"] == "-"
    assert [row[1:4] for row in rows[2:]] == [
        ["mean of 1", "exhaustive", "75.0"],
        ["mean of 1", "lamps", "25.0"],
    ]


def test_the_page_holds_real_searches_where_there_are_some() -> None:
    assert "In real searches" in page([], live=live_scores())
    assert "In real searches" not in page([])


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"key": "a"}]'])
def test_what_is_no_result_of_real_searches_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ConfigError, match=r"x\.json is no result of make bench-live"):
        load_live(tmp_path / "x.json")
