from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lamps_plugins._views import metrics
from sklearn import metrics as sk

LABELS = st.integers(1, 40).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 4), min_size=n, max_size=n),
        st.lists(st.integers(0, 3), min_size=n, max_size=n),
    )
)


@given(LABELS)
@settings(max_examples=80, deadline=None)
def test_indices_equal_those_of_scikit_learn(pair: tuple[list[int], list[int]]) -> None:
    truth, labels = pair
    assert metrics.ari(truth, labels) == pytest.approx(sk.adjusted_rand_score(truth, labels))
    if len(set(truth)) > 1 and len(set(labels)) > 1:
        expected = sk.normalized_mutual_info_score(truth, labels)
        assert metrics.nmi(truth, labels) == pytest.approx(expected, abs=1e-12)


@given(LABELS)
@settings(max_examples=60, deadline=None)
def test_accuracy_is_the_best_one_to_one_map(pair: tuple[list[int], list[int]]) -> None:
    truth, labels = np.array(pair[0]), np.array(pair[1])
    best = max(
        np.mean(np.array(image)[labels] == truth) for image in itertools.permutations(range(5), 4)
    )
    assert metrics.accuracy(truth, labels) == pytest.approx(best)


@given(LABELS)
@settings(max_examples=60, deadline=None)
def test_pairs_and_purity_equal_brute_force(pair: tuple[list[int], list[int]]) -> None:
    truth, labels = np.array(pair[0]), np.array(pair[1])
    same_y = [a == b for a, b in itertools.combinations(truth, 2)]
    same_c = [a == b for a, b in itertools.combinations(labels, 2)]
    both = sum(y and c for y, c in zip(same_y, same_c, strict=True))
    below = sum(same_y) + sum(same_c)
    assert metrics.pairwise_f(truth, labels) == pytest.approx(2 * both / below if below else 0.0)
    pure = sum(np.bincount(truth[labels == k]).max() for k in set(labels.tolist()))
    assert metrics.purity(truth, labels) == pytest.approx(pure / len(truth))


@given(LABELS, st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_names_of_clusters_and_order_of_rows_do_not_count(
    pair: tuple[list[int], list[int]], seed: int
) -> None:
    truth, labels = np.array(pair[0]), np.array(pair[1])
    rng = np.random.default_rng(seed)
    order, names = rng.permutation(len(truth)), rng.permutation(4)
    for measure in (metrics.accuracy, metrics.nmi, metrics.ari, metrics.purity, metrics.balance):
        moved = measure(truth[order], names[labels][order])
        if measure is metrics.balance:
            moved = measure(names[labels][order], truth[order])
            assert moved == pytest.approx(metrics.balance(labels, truth))
        else:
            assert moved == pytest.approx(measure(truth, labels), abs=1e-12)


@given(LABELS)
@settings(max_examples=60, deadline=None)
def test_fairness_lies_in_its_bounds(pair: tuple[list[int], list[int]]) -> None:
    labels, group = pair
    assert 0.0 <= metrics.balance(labels, group) <= metrics.balance_ceiling(group) + 1e-12
    assert metrics.mnce(labels, group) >= 0.0
    assert 0.0 <= metrics.weighted_tv(labels, group) <= 1.0


def test_fairness_by_hand() -> None:
    labels, group = [0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 0, 0, 1, 1]
    assert metrics.balance(labels, group) == pytest.approx(1 / 3)
    assert metrics.balance_ceiling(group) == pytest.approx(3 / 5)
    h = lambda p: -(p * np.log(p) + (1 - p) * np.log(1 - p))  # noqa: E731
    assert metrics.mnce(labels, group) == pytest.approx(h(1 / 4) / h(3 / 8))
    assert metrics.weighted_tv(labels, group) == pytest.approx(1 / 8)
    assert metrics.f_beta(0.5, 1.0) == pytest.approx(2 / 3)
    assert metrics.f_beta(0.0, 0.0) == 0.0


def test_a_group_that_a_cluster_lacks_makes_balance_zero() -> None:
    assert metrics.balance([0, 0, 1, 1], [0, 1, 0, 0]) == 0.0
    assert metrics.mnce([0, 0, 1, 1], [0, 1, 0, 0]) == 0.0


def test_constant_labellings_tell_nothing() -> None:
    assert metrics.nmi([0, 0, 1], [0, 0, 0]) == 0.0
    assert metrics.nmi([0, 0, 0], [0, 0, 0]) == 0.0
    assert metrics.mnce([0, 1], [0, 0]) == 0.0


def test_more_clusters_than_classes_count_as_wrong() -> None:
    assert metrics.accuracy([0, 0, 0, 0], [0, 1, 2, 3]) == 0.25


def test_nrmse_is_one_for_the_mean() -> None:
    truth = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    hidden = np.arange(30) < 10
    filled = truth.copy()
    filled[hidden] = truth[~hidden].mean(axis=0)
    assert metrics.nrmse(filled, truth, hidden) == pytest.approx(1.0, abs=1e-5)
    assert metrics.nrmse(truth, truth, hidden) == 0.0


def test_other_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="2 and 3 rows"):
        metrics.accuracy([0, 1, 1], [0, 1])
    with pytest.raises(ValueError, match="not 0"):
        metrics.nmi([], [])
