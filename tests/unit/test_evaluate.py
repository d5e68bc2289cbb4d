"""Replays of policies: laws of the scores, worst tables, ablations, resuming."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from _curves import curves, write_csv

from lamps.errors import ConfigError, ProblemError, UnknownMethod
from lamps.policy import contest, material, training, weights
from lamps.policy.cases import (
    Case,
    Rule,
    cases,
    objective_sets,
    with_permuted_sizes,
    without_landmarks,
)
from lamps.policy.curve_samples import curves_of
from lamps.policy.evaluate import MEASURES, Score, averaged, evaluate, sampled_curve, score
from lamps.policy.features import FEATURE_VERSION
from lamps.policy.scorebook import Scorebook, as_dict, from_dict, from_record, to_record
from lamps.policy.summaries import paired, summarise, task_of
from lamps.tables import LandmarkTable

RULES = ("random", "smallest-first", "round-robin", "front-racing", "mo-asha", "oracle")
SHARES = [m for m in MEASURES if m != "decision_ms"]


def case_of(table: LandmarkTable, workers: int = 1, **options: int) -> Case:
    return next(cases([table], workers=(workers,), **options))  # type: ignore[arg-type]


def timeless(some: Score) -> Score:
    return dataclasses.replace(some, decision_ms=0.0)


def plan(*names: str, **options: object) -> contest.Plan:
    return contest.Plan(policies=names, seeds=1, **options)  # type: ignore[arg-type]


# --- laws --------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(RULES), st.integers(2, 9), st.integers(1, 3), st.integers(0, 99))
def test_scores_are_shares_and_levels_come_in_order(
    name: str, n: int, workers: int, seed: int
) -> None:
    found = score(Rule.named(name), case_of(curves(n=n, seed=seed), workers))
    for measure in SHARES:
        assert 0 <= getattr(found, measure) <= 1 + 1e-9, measure
    assert found.time_99 <= found.time_999 <= found.time_100
    assert found.zero_99 <= found.zero_999 <= found.zero_100


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(RULES), st.integers(0, 99), st.floats(1e-3, 1e3))
def test_scores_do_not_depend_on_units(name: str, seed: int, factor: float) -> None:
    table = curves(seed=seed)
    other = dataclasses.replace(
        table, values=table.values * [2.0**5, 2.0**-3], cost_s=table.cost_s * factor
    )
    a, b = (score(Rule.named(name), case_of(t)) for t in (table, other))
    for measure in SHARES:
        assert getattr(a, measure) == pytest.approx(getattr(b, measure), abs=1e-9), measure


def test_exhaustive_ends_with_everything_and_takes_all_the_time() -> None:
    for workers in (1, 2, 8):
        found = score(Rule.named("exhaustive"), case_of(curves(), workers))
        assert found.stop_value == pytest.approx(1)
        assert found.stop_time == pytest.approx(1)


def test_the_oracle_finds_everything_and_nobody_is_done_sooner() -> None:
    for seed in range(8):
        case = case_of(curves(n=7, seed=seed))
        best = score(Rule("o", "oracle(zero_shot=0)"), case)
        assert best.stop_value == pytest.approx(1)
        for name in RULES[:-1]:
            assert best.time_100 <= score(Rule.named(name), case).time_100 + 1e-9


def test_a_replay_is_repeatable_and_named() -> None:
    case = case_of(curves())
    a, b = (score(Rule("mine", "random"), case) for _ in range(2))
    assert timeless(a) == timeless(b)
    assert (a.policy, a.fingerprint, a.weights) == ("mine", curves().fingerprint(), "")


def test_a_sampled_curve_rises_to_what_was_found() -> None:
    case = case_of(curves())
    share = sampled_curve(Rule.named("exhaustive"), case, points=33)
    assert len(share) == 33
    assert share == sorted(share)
    assert (share[0], share[-1]) == (0.0, pytest.approx(1))
    area = score(Rule.named("exhaustive"), case).area
    assert np.mean(share) == pytest.approx(area, abs=0.1)


def test_objective_sets_hold_pairs_and_a_triple() -> None:
    assert objective_sets(curves(objectives=1)) == [("error",)]
    assert objective_sets(curves(objectives=2)) == [("error", "mb")]
    assert objective_sets(curves(objectives=3)) == [
        ("error", "mb"), ("error", "loss"), ("error", "mb", "loss"),
    ]  # fmt: skip
    assert objective_sets(curves(objectives=3), 1) == [("error", "mb")]
    assert objective_sets(curves(), wanted=[("mb",), ("speed", "mb")]) == [("mb",)]


def test_large_tables_are_sampled_and_curves_thinned() -> None:
    found = list(cases([curves(n=9)], largest_pool=4, samples=2, most_landmarks=3))
    assert [c.pool.n for c in found] == [4, 4]
    assert [c.pool.name for c in found] == ["t~0", "t~1"]
    assert len({c.digest() for c in found}) == 2
    assert len(found[0].pool.fidelities) == 3
    assert case_of(curves(n=9), largest_pool=0).pool.n == 9


# --- ablations ---------------------------------------------------------------------------------


def test_without_landmarks_the_whole_costs_and_ends_the_same() -> None:
    case = case_of(curves())
    cut = without_landmarks(case).pool
    assert cut.values.shape[1] == 2
    assert (cut.values[:, -1] == case.pool.values[:, -1]).all()
    assert cut.cost_s.sum(axis=1) == pytest.approx(case.pool.cost_s.sum(axis=1))


def test_permuted_sizes_keep_curves_and_deal_costs_anew() -> None:
    case = case_of(curves(n=8))
    dealt = with_permuted_sizes(case).pool
    assert (dealt.values[:, :, 0] == case.pool.values[:, :, 0]).all()
    for name in ("size", "cost_s"):
        before, after = getattr(case.pool, name), getattr(dealt, name)
        assert not (before == after).all()
        assert np.sort(before, axis=0) == pytest.approx(np.sort(after, axis=0))
    assert (dealt.values[:, -1, 1] == dealt.size).all()  # the constant objective goes along
    assert with_permuted_sizes(case).digest() == with_permuted_sizes(case).digest()


def test_a_failed_candidate_lends_its_short_bill_to_nobody() -> None:
    table = curves(n=8)
    values, cost = table.values.copy(), table.cost_s.copy()
    values[3, 1:], cost[3, 2:] = np.nan, np.nan
    measured = ~np.isnan(cost)
    broken = dataclasses.replace(table, values=values, cost_s=cost, measured=measured)
    dealt = with_permuted_sizes(case_of(broken)).pool
    assert (dealt.cost_s[3] == case_of(broken).pool.cost_s[3]).all()
    others = np.arange(8) != 3
    assert (dealt.cost_s[others] > 0).all()


# --- worst tables ------------------------------------------------------------------------------


def test_worst_tables_have_defined_scores() -> None:
    table = curves()
    all_pareto = table.values.copy()
    all_pareto[:, -1] = np.stack([np.arange(6.0), -np.arange(6.0)], axis=1)
    same = np.ones_like(table.values)
    for values in (all_pareto, same, table.values * 1e300, table.values * 1e-300):
        odd = dataclasses.replace(table, values=values)
        for name in RULES:
            found = score(Rule.named(name), case_of(odd))
            assert all(np.isfinite(getattr(found, m)) for m in MEASURES), name
    free = dataclasses.replace(table, cost_s=np.zeros_like(table.cost_s))
    assert score(Rule.named("exhaustive"), case_of(free)).stop_value == pytest.approx(1)


def test_what_cannot_be_judged_is_said_and_left_out() -> None:
    table = curves("good")
    nan = dataclasses.replace(table, name="nan", values=np.full_like(table.values, np.nan))
    measured = np.repeat([[True, False, False, False]], 6, axis=0)
    censored = dataclasses.replace(table, name="cut", measured=measured)
    said: list[str] = []
    found = contest.chosen_cases(
        [curves("one", 1), nan, censored, table], plan("random"), said.append
    )
    assert [c.pool.name for c in found] == ["good"]
    assert "one is left out: 1 candidate, expected two or more" in said[0]
    assert "nan is left out for error, mb: no candidate has a finite value" in said[1]
    assert "cut is left out: the end of 0 of 6 curves is known" in said[2]
    with pytest.raises(ProblemError, match="none of 1 landmark tables"):
        contest.prepare([nan], plan("random"))
    with pytest.raises(ProblemError, match="give --tables DIR"):
        contest.prepare([], plan("random"))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"policies": ("lampz",)}, UnknownMethod, "Did you mean 'lamps'"),
        ({"policies": ("front-racing(dept=1)",)}, ConfigError, "Did you mean 'depth'"),
        ({"policies": ()}, ConfigError, "no policy was named"),
        ({"objectives": (("speed",),)}, ConfigError, "no table has an objective 'speed'. Known"),
        ({"workers": (0,)}, ConfigError, "expected numbers of 1 or more"),
        ({"seeds": 0}, ConfigError, "seeds is 0, expected 1 or more"),
        ({"largest_pool": 1}, ConfigError, "largest_pool is 1"),
        ({"leave_out": "seed"}, ConfigError, "expected one of table, task, family"),
        ({"leave_out": "table"}, ConfigError, "give --out DIR"),
        (
            {"leave_out": "task", "policies": ("lamps(doubt=0.1)",)},
            ConfigError,
            "may have seen what it is judged on",
        ),
        ({"weights": "missing.safetensors"}, ConfigError, "no policy weights at missing"),
    ],
)
def test_plans_that_cannot_be_followed(
    options: dict[str, object], error: type[Exception], message: str
) -> None:
    wanted = contest.Plan(**{"policies": ("random",), **options})  # type: ignore[arg-type]
    with pytest.raises(error, match=message):
        contest.prepare([curves()], wanted)


def test_landmarks_that_a_candidate_skipped_repeat_the_one_before() -> None:
    table = curves()
    measured = table.measured.copy()
    measured[0, 1] = measured[1, 2] = False
    gaps = dataclasses.replace(
        table,
        measured=measured,
        values=np.where(measured[:, :, None], table.values, np.nan),
        cost_s=np.where(measured, table.cost_s, np.nan),
    )
    said: list[str] = []
    (case,) = contest.chosen_cases([gaps], plan("random"), said.append)
    assert case.pool.whole.all()
    assert case.pool.cost_s.sum() == pytest.approx(np.nansum(gaps.cost_s))
    np.testing.assert_array_equal(case.pool.values[0, 1], case.pool.values[0, 0])
    assert case.fingerprint == gaps.fingerprint()
    assert said == ["t: 2 landmarks that candidates skipped repeat the one before, at no cost"]
    assert table.without_gaps() is table


# --- material ----------------------------------------------------------------------------------


def test_a_folder_is_read_as_far_as_it_can_be(tmp_path: Path) -> None:
    write_csv(tmp_path, [curves("p"), curves("q", seed=1)])
    write_csv(tmp_path / "deep", [curves("p", seed=2)], "more")
    (tmp_path / "broken.csv").write_text("a,b\n1,2\n")
    (tmp_path / "notes.txt").write_text("nothing")
    lines = (tmp_path / "made.csv").read_text().splitlines()
    cells = lines[3].split(",")
    cells[4] = "0.0"  # the cost of a candidate decreases
    (tmp_path / "down.csv").write_text("\n".join([*lines[:3], ",".join(cells), *lines[4:]]))
    found = material.gather([tmp_path])
    sizes = {t.name: len(t.candidates) for t in found.tables}
    assert sizes == {"p": 6, "down/p": 6, "q": 6, "made/p": 6}
    text = "\n".join(found.left_out)
    assert "broken.csv: landmark table 'broken' has no column 'candidate'" in text
    assert "down.csv" in text
    assert "line 4" in text
    assert "table 'q' came before" in text


def test_directions_are_flipped_where_the_objective_is(tmp_path: Path) -> None:
    write_csv(tmp_path, [curves(objectives=1)], "one")
    write_csv(tmp_path, [curves("u", objectives=3)], "three")
    found = material.gather([tmp_path], ["loss"])
    directions = [{o.name: o.direction for o in t.objectives} for t in found.tables]
    assert directions == [
        {"error": "minimize"},
        {"error": "minimize", "mb": "minimize", "loss": "maximize"},
    ]
    with pytest.raises(ConfigError, match=r"cannot maximise 'los', no table has it.*'loss'"):
        material.gather([tmp_path], ["los"])
    with pytest.raises(ProblemError, match="no file or folder"):
        material.gather([tmp_path / "nowhere"])


def test_a_card_keeps_tables_out_of_training(tmp_path: Path) -> None:
    from lamps.tables import write_tables

    about = {"tasks": {"p": {"held_out": True}, "q": {"held_out": False}}}
    write_tables(tmp_path / "some.parquet", [curves("p"), curves("q", seed=1)], about)
    assert material.gather([tmp_path]).held_out == {"p"}


# --- keeping and going on ----------------------------------------------------------------------


def test_a_second_call_replays_only_what_is_new(tmp_path: Path) -> None:
    work = contest.prepare([curves("p"), curves("q", seed=1)], plan("random", "front-racing"))
    first = contest.play(work, folder=tmp_path)
    lines = (tmp_path / "scores.jsonl").read_text().splitlines()
    assert len(first) == len(work) == len(lines) == 4
    (tmp_path / "scores.jsonl").write_text("\n".join(lines[:2]) + "\n" + lines[2][:40])
    counts: list[tuple[int, int]] = []
    second = contest.play(work, folder=tmp_path, progress=lambda *n: counts.append(n))
    assert counts == [(2, 4), (3, 4), (4, 4)]
    assert [timeless(s) for s in second] == [timeless(s) for s in first]
    assert len(Scorebook(tmp_path)) == 4


def test_a_file_that_holds_no_scores_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "scores.jsonl").write_text('{"key": "a"}\n')
    with pytest.raises(ConfigError, match=r"scores.jsonl line 1 is no score"):
        Scorebook(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot hold results"):
        Scorebook(tmp_path / "file" / "inside")


def test_two_processes_find_what_one_finds() -> None:
    work = contest.prepare([curves()], plan("random", "front-racing", workers=(1, 2)))
    one, two = (contest.play(work, jobs=jobs) for jobs in (1, 2))
    assert [timeless(s) for s in one] == [timeless(s) for s in two]


def test_a_worker_that_vanishes_costs_nothing_but_its_own_replay() -> None:
    work = contest.prepare([curves(seed=i) for i in range(6)], plan("random", "front-racing"))
    said: list[str] = []
    killed: list[int] = []

    def kill_one(*_: object) -> None:
        if not killed:
            child = multiprocessing.active_children()[0]
            killed.append(child.pid or 0)
            child.kill()

    found = evaluate(work, jobs=2, keep=kill_one, say=said.append)
    assert [timeless(s) for s in found if s] == [timeless(s) for s in evaluate(work) if s]
    assert len(found) == len(work)
    assert all(found)
    assert "a worker vanished with" in said[0]


def test_scores_survive_json_and_the_store() -> None:
    found = score(Rule.named("random"), case_of(curves()))
    assert from_dict(json.loads(json.dumps(as_dict(found)))) == found
    assert from_record(to_record(found, "0")) == found
    with pytest.raises(ConfigError, match="is no score of this release"):
        from_dict({"policy": "random", "objectives": []})


# --- summaries ---------------------------------------------------------------------------------


def made(policy: str, table: str, time: float, **more: object) -> Score:
    base = score(Rule.named("random"), case_of(curves()))
    return dataclasses.replace(base, policy=policy, table=table, time_99=time, **more)  # type: ignore[arg-type]


def test_a_summary_compares_with_the_oracle_and_the_best_rule_of_each_case() -> None:
    scores = [
        made("lamps", "a", 0.2), made("random", "a", 0.4), made("front-racing", "a", 0.1),
        made("oracle", "a", 0.1), made("lamps", "b", 0.4, stop_value=0.5),
        made("random", "b", 0.5), made("front-racing", "b", 0.8), made("oracle", "b", 0.2),
    ]  # fmt: skip
    lamps = summarise(scores)[0]
    assert (lamps.cases, lamps.tables, lamps.worse_by) == (2, 2, 1)
    assert lamps.mean["time_99"] == pytest.approx(0.3)
    assert lamps.to_oracle == pytest.approx(2)
    assert (lamps.to_best_simple, lamps.worse_on) == (pytest.approx(2), "a")
    assert (lamps.worst_table, lamps.worst_stop_table) == ("b", "b")
    assert lamps.worst["stop_value"] == 0.5
    assert lamps.interval[0] <= 0.3 <= lamps.interval[1]


def test_changed_cases_are_compared_among_themselves() -> None:
    scores = [
        made("lamps, permuted sizes", "a", 0.5), made("oracle, permuted sizes", "a", 0.25),
        made("smallest-first, permuted sizes", "a", 0.8), made("smallest-first", "a", 0.1),
        made("oracle", "a", 0.05), made("lamps, random weights", "a", 0.5),
    ]  # fmt: skip
    found = {s.policy: s for s in summarise(scores)}
    assert found["lamps, permuted sizes"].to_oracle == pytest.approx(2)
    assert found["lamps, permuted sizes"].to_best_simple == pytest.approx(0.625)
    assert found["lamps, random weights"].to_oracle == pytest.approx(10)


def test_pairs_are_counted_over_tasks() -> None:
    scores = [made("lamps", f"a#{i}", 0.2) for i in range(5)]
    scores += [made("random", f"a#{i}", 0.3) for i in range(5)]
    (pair,) = paired(scores, "lamps")
    assert pair.difference == pytest.approx(-0.1)
    assert (pair.cases, pair.better) == (5, 1.0)
    assert pair.pvalue == 1.0  # one task, however many seeds, proves nothing
    assert task_of("a#3~1") == "a"
    with pytest.raises(ConfigError, match="was not evaluated"):
        paired(scores, "ehvi")


def test_seeds_are_averaged() -> None:
    scores = [made("random", "a", t, seed=i) for i, t in enumerate((0.2, 0.4))]
    (mean,) = averaged(scores)
    assert (mean.seed, mean.time_99) == (-1, pytest.approx(0.3))


def test_curves_are_taken_from_one_table_of_each_family_first() -> None:
    tables = [curves(f"{f}{i}", family=f, seed=i) for f in ("x", "y") for i in range(3)]
    tables = [dataclasses.replace(t, cost_s=t.cost_s * (1 + i)) for i, t in enumerate(tables)]
    work = contest.prepare(tables, plan("random", "exhaustive", "oracle"))
    found = curves_of(work, most=3)
    assert [c["table"] for c in found] == ["x0", "x0", "x1", "x1", "y0", "y0"]
    assert {c["policy"] for c in found} == {"random", "oracle"}
    assert all(len(c["share"]) == 101 for c in found)


# --- learned -----------------------------------------------------------------------------------


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings on pools of one small shape; everything else as in a real one."""
    train = pytest.importorskip("lamps.policy.train")
    monkeypatch.setattr(train, "GROUPS", ((6, 4, 2, 4),))


def test_a_policy_never_learns_from_what_it_is_judged_on(tmp_path: Path, tiny: None) -> None:
    tables = [curves("p", seed=1), curves("q", seed=2), curves("r", seed=3)]
    tables.append(dataclasses.replace(tables[0], name="copy of p"))
    wanted = plan(
        "lamps", "random", leave_out="table", iterations=1, ablations=True, synthetic=0.5
    )
    said: list[str] = []
    work = contest.prepare(tables, wanted, folder=tmp_path, say=said.append)
    for rule, case in work:
        if rule.weights:
            about = weights.load(Path(rule.weights)).metadata["tables"]
            assert about
            assert case.fingerprint not in {t["fingerprint"] for t in about}
    labels = {rule.label for rule, _ in work}
    assert labels == {
        "lamps", "random", "lamps, no landmarks", "lamps, random weights",
        "lamps, no extrapolation", "lamps, permuted sizes", "oracle, permuted sizes",
        "smallest-first, permuted sizes", "front-racing, permuted sizes",
    }  # fmt: skip
    again: list[str] = []
    contest.prepare(tables, wanted, folder=tmp_path, say=again.append)
    assert any("iterations" in line for line in said)
    assert not any("iterations" in line for line in again)  # nothing was trained twice
    scores = contest.play([w for w in work if w[1].pool.name == "p"], folder=tmp_path)
    by = {s.policy: s for s in scores}
    assert len(by["lamps"].weights) == 64
    assert by["lamps"].weights != by["lamps, random weights"].weights


def test_random_weights_keep_shape_and_metadata(tmp_path: Path, tiny: None) -> None:
    settings_ = training.settings_of(iterations=1, synthetic=1.0)
    made_ = training.train_weights([], settings_, tmp_path / "w.safetensors")
    other = weights.load(training.untrained(made_, tmp_path / "random.safetensors"))
    assert other.metadata == made_.metadata
    assert {k: v.shape for k, v in other.tensors.items()} == {
        k: v.shape for k, v in made_.tensors.items()
    }
    assert other.sha256 != made_.sha256


def test_weights_of_another_feature_version_are_refused_with_both(
    tmp_path: Path, tiny: None
) -> None:
    from safetensors.numpy import save_file

    file = tmp_path / "old.safetensors"
    save_file({"score.weight": np.zeros((1, 1), np.float32)}, file, {"lamps": '{"features": "0"}'})
    with pytest.raises(ConfigError, match=f"features of version 0, .* version {FEATURE_VERSION}"):
        contest.prepare([curves()], plan("lamps", weights=str(file)))


def test_a_training_goes_on_only_with_the_same_tables(tmp_path: Path, tiny: None) -> None:
    settings_ = training.settings_of(iterations=1)
    out, folder = tmp_path / "w.safetensors", tmp_path / "folder"
    first = training.train_weights([curves("p")], settings_, out, folder=folder)
    assert training.iterations_done(folder) == 1
    assert training.iterations_done(tmp_path) == 0
    again = training.train_weights([curves("p")], settings_, out, folder=folder)
    assert again.sha256 == first.sha256
    with pytest.raises(ConfigError, match=r"training on other tables \(p, q\)"):
        training.train_weights([curves("q", seed=1)], settings_, out, folder=folder)
