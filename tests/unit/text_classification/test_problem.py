"""From a file to a problem: what is kept, dropped, said, and what stays equal."""

from __future__ import annotations

import io
import json
import pickle
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from lamps_plugins.text_classification._columns import read_texts
from lamps_plugins.text_classification._problem import FAMILY, TextProblem
from sklearn.dummy import DummyClassifier
from sklearn.metrics import log_loss

from lamps.errors import ConfigError, ProblemError
from lamps.types import Candidate

SPLITS: tuple[Any, ...] = ("train", "val", "test")


def write(path: Path, rows: Iterable[tuple[Any, ...]], header: str = "text,label") -> str:
    import csv

    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header.split(","))
        writer.writerows(rows)
    return str(path)


def plain(n: int = 200, classes: str = "ab") -> list[tuple[str, ...]]:
    return [(f"some text number {i}", classes[i % len(classes)]) for i in range(n)]


def opened(path: str, **options: Any) -> TextProblem:
    return FAMILY.open_problem(path, {"target": "label", **options})


def everything(problem: TextProblem) -> dict[str, list[tuple[str, Any]]]:
    return {
        s: list(zip(problem.texts(s), problem.targets(s).tolist(), strict=True)) for s in SPLITS
    }


def test_importing_the_family_loads_nothing_heavy() -> None:
    code = (
        "import sys, lamps_plugins.text_classification._problem as p;"
        "print([m for m in ('torch', 'pandas', 'pyarrow', 'datasets', 'transformers', 'scipy')"
        " if m in sys.modules], p.FAMILY.toy_problem().n_train)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "72"]


def test_default_shares_and_sizes(tmp_path: Path) -> None:
    problem = opened(write(tmp_path / "films.csv", plain()))
    assert problem.name == "films"
    assert [len(problem.texts(s)) for s in SPLITS] == [140, 30, 30]
    assert problem.class_counts.tolist() == [70, 70]
    assert problem.labels == ("a", "b")
    assert problem.targets("val").dtype == np.int64


def test_the_order_of_the_file_does_not_matter(tmp_path: Path) -> None:
    rows = [*plain(), *plain(30), ("some text number 3", "a")]
    first = opened(write(tmp_path / "a.csv", rows))
    random.Random(1).shuffle(rows)
    second = opened(write(tmp_path / "b.csv", rows))
    assert everything(first) == everything(second)
    assert first.fingerprint() == second.fingerprint()
    assert opened(str(tmp_path / "a.csv"), split_seed=1).fingerprint() != first.fingerprint()
    assert opened(str(tmp_path / "a.csv"), max_length=64).fingerprint() != first.fingerprint()


def test_formats_give_the_same_problem(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = plain()
    one = opened(write(tmp_path / "a.csv", rows))
    (tmp_path / "b.jsonl").write_text(
        "".join(json.dumps({"text": t, "label": y}) + "\n" for t, y in rows)
    )
    texts, labels = zip(*rows, strict=True)
    pq.write_table(pa.table({"label": labels, "text": texts}), tmp_path / "c.parquet")
    for name in ("b.jsonl", "c.parquet"):
        assert opened(str(tmp_path / name)).fingerprint() == one.fingerprint()


def test_duplicates_never_lie_in_two_splits_and_contradictions_are_noted(tmp_path: Path) -> None:
    rows = [(t, y) for t, y in plain(100) for t in (t, f" {t.replace(' ', '  ')}\n")]
    rows += [("a contradiction", "a"), ("a contradiction", "b")] * 2
    problem = opened(write(tmp_path / "a.csv", rows))
    found = {s: {" ".join(t.split()) for t in problem.texts(s)} for s in SPLITS}
    assert sum(map(len, found.values())) == len(set.union(*found.values()))
    assert sum(len(problem.texts(s)) for s in SPLITS) == len(rows)
    assert any("1 texts occur with different labels" in note for note in problem.notes)


def test_dropped_rows_are_counted(tmp_path: Path) -> None:
    rows = [*plain(50), ("", "a"), ("  \n ", "a"), ("no label", ""), ("\u00a0", "b")]
    card = opened(write(tmp_path / "a.csv", rows)).card()
    assert card["rows_read"] == 54
    assert card["rows_usable"] == 50
    assert card["dropped"] == {"empty_text": 3, "missing_label": 1}
    json.dumps(card)


def test_card_states_what_was_detected(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    text = "text;label\r\n" + "".join(f"größe {i};{'x' if i % 2 else 'y'}\r\n" for i in range(40))
    path.write_bytes(text.encode("utf-8-sig"))
    (facts,) = cast(list[dict[str, Any]], opened(str(path)).card()["files"])
    found = {k: facts[k] for k in ("delimiter", "encoding", "bom", "newline", "quote", "gzipped")}
    assert found == {
        "delimiter": ";", "encoding": "utf-8-sig", "bom": True, "newline": "CRLF", "quote": '"',
        "gzipped": False,
    }  # fmt: skip
    assert len(facts["sha256"]) == 64


def test_the_text_column_is_the_longest_and_named_in_the_notes(tmp_path: Path) -> None:
    rows = [
        (i, f"short {i}", f"a rather longer text {i}", "ab"[i % 2], 1e20 + i) for i in range(40)
    ]
    path = write(tmp_path / "a.csv", rows, "id,title,body,label,number")
    problem = opened(path)
    assert problem.texts("val")[0].startswith("a rather")
    assert "'body'" in problem.notes[0]
    assert opened(path, text="title").texts("val")[0].startswith("short")


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (("0", "1"), (0, 1)),
        (("01", "02"), ("01", "02")),
        (("NA", "None"), ("NA", "None")),
        (("True", "False"), (False, True)),
        (("0.5", "1.5"), (0.5, 1.5)),
        (("größer", "日本"), ("größer", "日本")),
    ],
)
def test_labels_keep_value_and_type(tmp_path: Path, values: Any, labels: Any) -> None:
    rows = [(f"text {i}", values[i % 2]) for i in range(40)]
    problem = opened(write(tmp_path / "a.csv", rows))
    assert problem.labels == labels
    assert [type(v) for v in problem.labels] == [type(v) for v in labels]
    wanted = dict(zip((f"text {i}" for i in range(40)), (v for _, v in rows), strict=True))
    for text, target in zip(problem.texts("train"), problem.targets("train"), strict=True):
        assert str(problem.labels[target]) == wanted[text]


def test_split_column(tmp_path: Path) -> None:
    words = ["train", "TRAIN ", "valid", "test", "dev"]
    rows = [(f"text {i}", "ab"[i // 5 % 2], words[i % 5]) for i in range(100)]
    rows += [("text 3", "a", "train"), ("nowhere", "a", "")]
    problem = opened(write(tmp_path / "a.csv", rows, "text,label,part"), split_column="part")
    assert [len(problem.texts(s)) for s in SPLITS] == [40, 40, 20]
    assert problem.card()["dropped"] == {"missing_split": 1, "train_text_also_held_out": 1}
    rows.append(("text", "a", "holdout"))
    path = write(tmp_path / "a.csv", rows, "text,label,part")
    with pytest.raises(ProblemError, match="line 104: column 'part' says 'holdout'"):
        opened(path, split_column="part")


def test_a_split_that_is_not_given_is_carved_from_train(tmp_path: Path) -> None:
    rows = [(f"text {i}", "ab"[i % 2]) for i in range(100)]
    main = write(tmp_path / "a.csv", rows)
    test = write(tmp_path / "t.csv", [*rows[:10], ("new text", "a"), ("another", "b")])
    problem = opened(main, test=test)
    assert set(problem.texts("test")) == {*(t for t, _ in rows[:10]), "new text", "another"}
    assert not set(problem.texts("train")) & set(problem.texts("test"))
    assert [len(problem.texts(s)) for s in SPLITS] == [76, 14, 12]
    with pytest.raises(ConfigError, match="exclude each other"):
        opened(main, test=test, split_column="part")


def test_groups_stay_whole(tmp_path: Path) -> None:
    rows = [(f"text {i}", "ab"[i % 2], f"user {i % 23}") for i in range(300)]
    problem = opened(write(tmp_path / "a.csv", rows, "text,label,user"), group="user", text="text")
    user = {t: g for t, _, g in rows}
    groups = [{user[t] for t in problem.texts(s)} for s in SPLITS]
    assert sum(map(len, groups)) == 23
    assert all(groups)
    few = write(tmp_path / "b.csv", [(t, y, y) for t, y, _ in rows], "text,label,user")
    with pytest.raises(ProblemError, match="has 2 groups of column 'user'; expected at least 3"):
        opened(few, group="user", text="text")


@pytest.mark.parametrize("separator", ["|", None])
def test_several_labels(tmp_path: Path, separator: str | None) -> None:
    rng = random.Random(0)
    rows = [(f"text {i}", "|".join(rng.sample(["x", "y", "z"], 1 + i % 3))) for i in range(200)]
    path = write(tmp_path / "a.csv", rows)
    chosen: dict[str, Any] = {"label_separator": separator} if separator else {"multi_label": True}
    problem = opened(path, **chosen)
    assert problem.multi_label
    assert problem.labels == ("x", "y", "z")
    expected = {t: [float(v in y.split("|")) for v in "xyz"] for t, y in rows}
    for split in SPLITS:
        assert problem.targets(split).dtype == np.float32
        pairs = zip(problem.texts(split), problem.targets(split).tolist(), strict=True)
        assert all(expected[t] == y for t, y in pairs)
    assert problem.class_counts.sum() == problem.targets("train").sum()


def test_lists_make_a_problem_multi_label(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    records = [{"text": f"text {i}", "label": [i % 2, 2][: i % 3]} for i in range(60)]
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    problem = opened(str(path))
    assert problem.multi_label
    assert problem.labels == (0, 1, 2)
    assert problem.floor("val").keys() == {"val_error", "val_logloss", "val_macro_f1_error"}
    assert 0.0 <= problem.floor("val")["val_error"] < 1.0


def test_imbalance_and_rare_classes_are_noted(tmp_path: Path) -> None:
    rows = [(f"text {i}", "big" if i % 50 else "small") for i in range(200)] + [("odd", "once")]
    problem = opened(write(tmp_path / "a.csv", rows))
    big, small = problem.labels.index("big"), problem.labels.index("small")
    for split in SPLITS:
        assert {big, small} <= set(problem.targets(split).tolist())
    assert any("no val rows of 1 class(es): 'once'" in n for n in problem.notes)
    assert any("of one class" in n for n in problem.notes)
    assert "once" in problem.labels


def test_labels_that_look_alike_stay_apart_and_are_noted(tmp_path: Path) -> None:
    rows = [(f"text {i}", ["pos", "Pos ", "neg"][i % 3]) for i in range(60)]
    problem = opened(write(tmp_path / "a.csv", rows))
    assert problem.labels == ("Pos ", "neg", "pos")
    assert any("differ only in case" in note for note in problem.notes)


def test_one_text_many_times_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", [("same", "ab"[i % 2]) for i in range(50)])
    with pytest.raises(ProblemError, match="has 1 different texts; expected at least 3"):
        opened(path)


def test_an_id_as_target_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", [(f"text {i}", f"id-{i}") for i in range(50)])
    with pytest.raises(ProblemError, match="50 different labels in 50 rows; it looks like an id"):
        opened(path)


def test_texts_of_100_000_characters(tmp_path: Path) -> None:
    rows = [(f"{i} " + "wörd " * 20_000, "ab"[i % 2]) for i in range(60)]
    start = time.perf_counter()
    problem = opened(write(tmp_path / "a.csv", rows))
    assert time.perf_counter() - start < 20
    assert cast(dict[str, float], problem.card()["text_chars"])["p50"] > 100_000


def test_halves_of_surrogate_pairs_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join(f'{{"text": "bad \\ud800 {i}", "label": {i % 2}}}\n' for i in range(20))
    )
    problem = opened(str(path))
    assert all("\ufffd" in text for text in problem.texts("train"))
    assert any("surrogate" in note for note in problem.notes)


def test_fidelities_are_nested_prefixes(tmp_path: Path) -> None:
    problem = opened(write(tmp_path / "a.csv", plain(2_000)))
    assert problem.fidelities == (0.0, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
    assert [problem.prefix(f) for f in problem.fidelities] == [0, 88, 175, 350, 700, 1400]
    assert problem.unit == "examples"
    assert problem.amount(0.5) == 700
    for f in problem.fidelities[1:]:
        inside = problem.targets("train")[: problem.prefix(f)]
        assert inside.mean() == pytest.approx(0.5, abs=0.02)
    with pytest.raises(ProblemError, match="outside"):
        problem.prefix(1.5)


@pytest.mark.parametrize(("n", "expected"), [(20, 1), (91, 1), (92, 2), (400, 4), (5_000, 5)])
def test_small_data_has_fewer_landmarks(tmp_path: Path, n: int, expected: int) -> None:
    problem = opened(write(tmp_path / "a.csv", plain(n)))
    assert len(problem.fidelities) == 1 + expected
    assert expected == 1 or problem.prefix(problem.fidelities[1]) >= 32


def test_landmarks_can_be_chosen(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", plain(100))
    assert opened(path, landmarks=7).fidelities[1] == 2**-6
    with pytest.raises(ConfigError, match="at most 7"):
        opened(path, landmarks=8)


def test_floor_is_the_majority_class_of_train(tmp_path: Path) -> None:
    rows = [(f"text {i}", "abc"[min(i % 6, 2)]) for i in range(300)]
    problem = opened(write(tmp_path / "a.csv", rows))
    train, val = problem.targets("train"), problem.targets("val")
    dummy = DummyClassifier(strategy="prior").fit(np.zeros((len(train), 1)), train)
    floor = problem.floor("val")
    assert floor["val_error"] == pytest.approx(1 - dummy.score(np.zeros((len(val), 1)), val))
    prior = log_loss(val, dummy.predict_proba(np.zeros((len(val), 1))))
    assert floor["val_logloss"] == pytest.approx(prior, abs=0.01)


def test_a_reference_reopens_the_same_problem(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", plain())
    problem = opened(path, max_train=50, landmarks=2)
    reference = json.loads(json.dumps(problem.reference()))
    again = FAMILY.reopen(reference)
    assert everything(again) == everything(problem)
    assert again.fidelities == problem.fidelities
    write(tmp_path / "a.csv", plain(201))
    with pytest.raises(ProblemError, match=r"a\.csv changed") as caught:
        FAMILY.reopen(reference)
    assert problem.fingerprint() in str(caught.value)
    (tmp_path / "a.csv").unlink()
    with pytest.raises(ProblemError, match="does not exist"):
        FAMILY.reopen(reference)


def test_a_pickle_is_equal_compact_and_read_only(tmp_path: Path) -> None:
    problem = opened(write(tmp_path / "a.csv", plain(20_000)))
    start = time.perf_counter()
    data = pickle.dumps(problem, protocol=5)
    again = pickle.loads(data)
    assert time.perf_counter() - start < 2
    assert len(data) < 1.5 * (tmp_path / "a.csv").stat().st_size + 8 * 20_000
    assert again.fingerprint() == problem.fingerprint()
    with pytest.raises(ValueError, match="read-only"):
        again.targets("train")[0] = 1


def test_opening_test_is_counted() -> None:
    problem = FAMILY.toy_problem()
    problem.card(), problem.fingerprint(), problem.floor("val")
    assert problem.test_opened == 0
    problem.texts("test")
    problem.targets("test")
    assert problem.test_opened == 2
    with pytest.raises(ProblemError, match="no split 'dev'"):
        problem.texts("dev")  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(4))
def test_the_toy_problem_is_learnable_but_not_perfectly(seed: int) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    problem = FAMILY.toy_problem(seed=seed)
    words = TfidfVectorizer().fit(problem.texts("train"))
    model = LogisticRegression(C=10).fit(
        words.transform(problem.texts("train")), problem.targets("train")
    )
    held = [*problem.texts("val"), *problem.texts("test")]
    truth = np.concatenate([problem.targets("val"), problem.targets("test")])
    assert 0.6 < model.score(words.transform(held), truth) < 1.0
    assert FAMILY.reopen(problem.reference()).fingerprint() == problem.fingerprint()
    assert FAMILY.open_problem("toy", {"split_seed": seed}).fingerprint() == problem.fingerprint()


BAD = list(FAMILY.bad_inputs())


@pytest.mark.parametrize(("name", "call", "culprit"), BAD, ids=[name for name, _, _ in BAD])
def test_bad_inputs_are_refused_by_name(name: str, call: Callable[[], Any], culprit: str) -> None:
    with pytest.raises(ProblemError) as caught:
        call()
    assert culprit in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tagret": "label"}, "Did you mean 'target'"),
        ({"max_train": 3}, "at least 8"),
        ({"val_share": 0.0}, r"in \(0, 0.5\]"),
        ({"max_length": "many"}, "kind int"),
        ({"delimiter": "::"}, "one character"),
        ({"data_format": "xls"}, "Known: csv"),
        ({"text": ""}, "empty"),
        ({"split_seed": 2**63}, "less than"),
        ({"landmarks": 3}, "takes split_seed only"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FAMILY.open_problem("toy", options)


def test_texts_to_predict_keep_their_rows(tmp_path: Path, monkeypatch: Any) -> None:
    path = write(tmp_path / "a.csv", [("one text", 1), ("", 2), ("another, text", 3)], "body,id")
    expected = ["one text", "", "another, text"]
    assert list(read_texts(Path(path), {})) == expected
    assert list(read_texts(Path(path), {"text": "body"})) == expected
    with pytest.raises(ProblemError, match="Did you mean 'body'"):
        list(read_texts(Path(path), {"text": "boddy"}))
    with pytest.raises(ConfigError, match="'max_train' has no meaning"):
        list(read_texts(Path(path), {"max_train": 9}))
    monkeypatch.setattr("sys.stdin", io.StringIO("first\n\nlast"))
    assert list(read_texts(None, {})) == ["first", "", "last"]


def test_size_hints_order_candidates() -> None:
    problem = FAMILY.toy_problem()
    catalogue = FAMILY.models()
    deep = next(m for m in catalogue.list() if m.n_layers > 1)

    def hint(**params: Any) -> float:
        return problem.size_hint(Candidate(FAMILY.name, "any", params))

    assert 0 < hint() < hint(model=deep.name, n_layers=1) < hint(model=deep.name)
    assert hint(model=deep.name) == deep.parameters
    assert np.isnan(hint(model="/no/such/model"))


def test_files_of_this_family_are_recognised(tmp_path: Path) -> None:
    assert FAMILY.opens(Path("a.csv.gz"))
    assert FAMILY.opens(Path("A.PARQUET"))
    assert not FAMILY.opens(Path("a.png"))
    assert not FAMILY.opens(tmp_path)


_MEASURE = """
import json, sys
from lamps_plugins.text_classification._columns import read_texts
from lamps_plugins.text_classification._problem import FAMILY
problem = FAMILY.open_problem(sys.argv[1], {"target": "label", "max_train": 2000})
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
peak = int(status["VmHWM"].split()[0]) * 1024
sizes = [len(problem.texts(s)) for s in ("train", "val", "test")]
print(json.dumps([peak, sizes, problem.class_counts.tolist(), problem.fingerprint()]))
"""


def _peak(path: Path) -> tuple[int, list[int], list[int], str]:
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(path)], capture_output=True, text=True, check=True
    )
    peak, sizes, counts, fingerprint = json.loads(done.stdout)
    return peak, sizes, counts, fingerprint


def _big_csv(path: Path, n_bytes: int) -> None:
    """Rows of about 400 bytes; one in fifty of class ``b``."""
    words = " ".join(f"word{i}" for i in range(45))
    block = 20_000
    with path.open("w") as file:
        file.write("id,text,label\n")
        row = 0
        while file.tell() < n_bytes:
            file.write(
                "".join(
                    f'{i},"text {i}, {words}",{"b" if i % 50 == 0 else "a"}\n'
                    for i in range(row, row + block)
                )
            )
            row += block


def test_a_row_limit_bounds_memory(tmp_path: Path) -> None:
    _big_csv(tmp_path / "big.csv", 60_000_000)
    peak, sizes, counts, _ = _peak(tmp_path / "big.csv")
    assert sizes == [2000, 429, 500]
    assert counts[1] == pytest.approx(40, abs=20)
    assert peak < 150_000_000


def test_a_row_limit_takes_the_same_rows_in_any_order(tmp_path: Path) -> None:
    rows = plain(3_000, "aaab")
    one = opened(write(tmp_path / "a.csv", rows), max_train=200)
    other = opened(write(tmp_path / "b.csv", rows[::-1]), max_train=200)
    assert [len(one.texts(s)) for s in SPLITS] == [200, 200, 200]
    assert one.fingerprint() == other.fingerprint()
    assert one.class_counts.tolist() == pytest.approx([150, 50], abs=20)
    assert one.n_train + 400 <= cast(int, one.card()["rows_usable"]) == 3_000


def test_a_row_limit_above_the_data_changes_nothing_but_the_repeats(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", plain(300))
    assert opened(path, max_train=1_000).fingerprint() == opened(path).fingerprint()


def test_a_row_limit_holds_with_given_splits(tmp_path: Path) -> None:
    rows = [(f"text {i}", "ab"[i % 2], ["train", "val", "test"][i % 3]) for i in range(3_000)]
    path = write(tmp_path / "a.csv", rows, "text,label,part")
    problem = opened(path, max_train=100, max_val=50, split_column="part", text="text")
    assert [len(problem.texts(s)) for s in SPLITS] == [100, 50, 100]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_one_gigabyte_with_a_row_limit_stays_under_two_gigabytes(tmp_path: Path) -> None:
    _big_csv(tmp_path / "big.csv", 1_000_000_000)
    peak, sizes, _, _ = _peak(tmp_path / "big.csv")
    (tmp_path / "big.csv").unlink()
    assert sizes == [2000, 500, 500]
    assert peak < 2_000_000_000
