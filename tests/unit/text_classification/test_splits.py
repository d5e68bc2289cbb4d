"""Splits are disjoint, stratified, whole by unit, and independent of the order of the file."""

from __future__ import annotations

import unicodedata
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lamps_plugins.text_classification._splits import (
    Reservoir,
    Sample,
    assign,
    normalised,
    spread,
    text_key,
    units_of,
)


def sample(text: str, *labels: Any, group: str | None = None, seed: int = 0) -> Sample:
    return Sample(text, labels, group, text_key(normalised(text), seed))


def split(
    rows: list[Sample], shares: dict[str, float], **more: bool
) -> tuple[dict[str, list[int]], list[Sample]]:
    rows = sorted(rows, key=Sample.order)
    units = units_of(rows, [row.labels for row in rows])
    return assign(units, shares, **more), rows


HALF = {"val": 0.15, "test": 0.15}

datasets = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from("abc"), st.sampled_from(["x", "y", "z", None])),
    min_size=1,
    max_size=80,
)


@settings(deadline=None)
@given(datasets, st.booleans(), st.booleans())
def test_every_row_goes_to_one_split_and_no_text_or_group_to_two(
    data: list[tuple[int, str, str | None]], grouped: bool, greedy: bool
) -> None:
    rows = [sample(f"text {i}", y, group=g if grouped else None) for i, y, g in data]
    taken, rows = split(rows, HALF, greedy=greedy)
    assert sorted(i for ids in taken.values() for i in ids) == list(range(len(rows)))
    for kind in ("key", "group"):
        owners: dict[Any, set[str]] = {}
        for name, ids in taken.items():
            for i in ids:
                if getattr(rows[i], kind) is not None:
                    owners.setdefault(getattr(rows[i], kind), set()).add(name)
        assert all(len(names) == 1 for names in owners.values())


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("n", [40, 1_000])
def test_shares_hold_in_every_class(n: int, greedy: bool) -> None:
    rows = [sample(f"text {i}", "ab"[i % 5 == 0]) for i in range(n)]
    taken, rows = split(rows, HALF, greedy=greedy)
    for label, total in (("a", n * 4 // 5), ("b", n // 5)):
        for name, share in (("train", 0.7), ("val", 0.15), ("test", 0.15)):
            count = sum(rows[i].labels[0] == label for i in taken[name])
            assert abs(count - total * share) <= 1.5


def test_rare_classes() -> None:
    rows = [sample(f"text {i}", "common") for i in range(100)]
    for n, label in ((1, "one"), (2, "two"), (3, "three")):
        rows += [sample(f"{label} {i}", label) for i in range(n)]
    taken, rows = split(rows, HALF)
    where = {
        label: [name for name, ids in taken.items() for i in ids if rows[i].labels[0] == label]
        for label in ("one", "two", "three")
    }
    assert where == {
        "one": ["train"], "two": ["train", "val"], "three": ["train", "val", "test"]
    }  # fmt: skip


def test_imbalance_98_to_2_has_both_classes_everywhere() -> None:
    rows = [sample(f"text {i}", int(i % 50 == 0)) for i in range(200)]
    taken, rows = split(rows, HALF)
    assert all({rows[i].labels[0] for i in ids} == {0, 1} for ids in taken.values())


def test_multi_label_rows_keep_rare_labels_in_train() -> None:
    rng = np.random.default_rng(0)
    rows = [
        sample(f"text {i}", *(int(v) for v in np.flatnonzero(rng.random(5) < 0.3)))
        for i in range(300)
    ]
    rows.append(sample("rare", 3, 9))
    taken, rows = split(rows, HALF, greedy=True)
    sizes = {name: len(ids) for name, ids in taken.items()}
    assert abs(sizes["val"] - 45) <= 3
    assert abs(sizes["test"] - 45) <= 3
    assert any(9 in rows[i].labels for i in taken["train"])
    for label in range(5):
        counts = {n: sum(label in rows[i].labels for i in ids) for n, ids in taken.items()}
        assert counts["val"] == pytest.approx(0.15 * sum(counts.values()), abs=5)


def test_equal_texts_in_other_dress_are_equal() -> None:
    assert normalised(" a\u00a0 b\n") == "a b"
    decomposed = unicodedata.normalize("NFD", "déjà vu")
    assert text_key(normalised(decomposed), 0) == text_key(normalised("déjà  vu"), 0)
    assert text_key("a", 0) != text_key("a", 1)


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=300), st.integers(0, 99))
def test_every_prefix_is_nearly_stratified_and_classes_come_early(
    strata: list[int], seed: int
) -> None:
    keys = [text_key(str(i), seed) for i in range(len(strata))]
    order = spread(keys, strata)
    assert sorted(order) == list(range(len(strata)))
    n, counts = len(strata), Counter(strata)
    assert {strata[i] for i in order[: len(counts)]} == set(counts)
    for k in (n // 4, n // 2, 3 * n // 4):
        inside = Counter(strata[i] for i in order[:k])
        for label, total in counts.items():
            assert abs(inside[label] - k * total / n) <= len(counts) + 1


def test_a_reservoir_is_a_bounded_sample_that_ignores_order_and_repeats() -> None:
    rows = [sample(f"text {i % 900}", "ab"[i % 300 == 7]) for i in range(1_800)]
    one, other = Reservoir(100), Reservoir(100)
    for row in rows:
        one.add(row)
    for row in reversed(rows):
        other.add(row)
    assert one.rows() == other.rows()
    kept = one.rows()
    assert 100 <= len(kept) <= 108
    assert one.seen == 1_800
    smallest = sorted({row.key for row in rows})[:100]
    assert set(smallest) <= {row.key for row in kept}
    assert sum(row.labels == ("b",) for row in kept) >= 3


def test_a_sample_shows_the_classes_in_their_shares() -> None:
    pool = Reservoir(2_000)
    for i in range(20_000):
        pool.add(sample(f"text {i}", int(i % 10 == 0)))
    share = np.mean([row.labels[0] for row in pool.rows()])
    assert share == pytest.approx(0.1, abs=0.02)


def test_without_capacity_everything_is_kept() -> None:
    pool = Reservoir(None)
    for i in range(50):
        pool.add(sample(f"text {i % 10}", "a"))
    assert len(pool.rows()) == 50
