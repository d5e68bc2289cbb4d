"""The common measurement equals scikit-learn, and says NaN where scores are not finite."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lamps_plugins.text_classification._measure import (
    OBJECTIVES,
    evaluate_classifier,
    latencies_ms,
    scores,
)
from lamps_plugins.text_classification._problem import FAMILY, TextProblem
from scipy.special import expit, softmax
from sklearn import metrics

from lamps.errors import ContractError


@pytest.fixture(scope="module")
def toy() -> TextProblem:
    return FAMILY.toy_problem()


def noisy(problem: TextProblem, seed: int = 0) -> Any:
    """A classifier that depends on nothing but the text."""

    def logits_of(texts: Sequence[str]) -> np.ndarray[Any, Any]:
        rows = [
            np.random.default_rng([seed, sum(text.encode())]).normal(size=problem.n_labels)
            for text in texts
        ]
        return np.array(rows, dtype=np.float32)

    return logits_of


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(1, 60))
def test_single_label_scores_equal_sklearn(seed: int, classes: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=3.0, size=(n, classes)).astype(np.float32)
    targets = rng.integers(0, classes, n)
    found = scores(logits, targets)
    predicted = logits.argmax(axis=1)
    assert found["error"] == pytest.approx(1 - metrics.accuracy_score(targets, predicted))
    assert found["macro_f1_error"] == pytest.approx(
        1 - metrics.f1_score(targets, predicted, average="macro")
    )
    assert found["logloss"] == pytest.approx(
        metrics.log_loss(
            targets, softmax(logits.astype(np.float64), axis=1), labels=range(classes)
        ),
        rel=1e-9,
    )


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(1, 60))
def test_multi_label_scores_equal_sklearn(seed: int, classes: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=3.0, size=(n, classes)).astype(np.float32)
    targets = (rng.random((n, classes)) < 0.4).astype(np.float32)
    found = scores(logits, targets)
    truth, predicted = targets.astype(int), (logits > 0).astype(int)
    present = np.flatnonzero((truth + predicted).sum(axis=0))
    if len(present):
        assert found["error"] == pytest.approx(
            1 - metrics.f1_score(truth, predicted, average="micro")
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", metrics._classification.UndefinedMetricWarning)
            macro = metrics.f1_score(truth, predicted, average="macro", labels=present)
        assert found["macro_f1_error"] == pytest.approx(1 - macro)
    binary = metrics.log_loss(
        truth.ravel(), expit(logits.astype(np.float64)).ravel(), labels=[0, 1]
    )
    assert found["logloss"] == pytest.approx(binary, rel=1e-6)


@pytest.mark.parametrize("multi_label", [False, True])
def test_logloss_is_exact_where_probabilities_underflow(multi_label: bool) -> None:
    logits = np.array([[1e30, 0.0]], dtype=np.float32)
    targets = np.array([[0.0, 1.0]], dtype=np.float32) if multi_label else np.array([1])
    expected = (1e30 + np.log(2)) / 2 if multi_label else 1e30
    assert scores(logits, targets)["logloss"] == pytest.approx(expected, rel=1e-6)


@given(st.integers(0, 1_000))
def test_scores_ignore_the_order_of_texts_and_shifts_of_logits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits, targets = rng.normal(size=(30, 4)), rng.integers(0, 4, 30)
    order = rng.permutation(30)
    shift = rng.normal(size=(30, 1))
    one, other = scores(logits, targets), scores((logits + shift)[order], targets[order])
    assert one == pytest.approx(other)


def test_an_evaluation_is_complete(toy: TextProblem) -> None:
    found = evaluate_classifier(toy, "val", noisy(toy), n_params=12, size_bytes=345)
    measured_by_worker = {"train_s", "peak_bytes"}
    assert set(found.objectives) == {o.name for o in OBJECTIVES} - measured_by_worker
    assert found.is_finite()
    assert found.objectives["params"] == 12
    assert found.objectives["size_bytes"] == 345
    assert found.signals["latency_p90_ms"] >= found.objectives["latency_ms"] > 0


def test_only_the_test_split_opens_test(toy: TextProblem) -> None:
    before = toy.test_opened
    evaluate_classifier(toy, "val", noisy(toy), n_params=1, size_bytes=1)
    assert toy.test_opened == before
    found = evaluate_classifier(toy, "test", noisy(toy), n_params=1, size_bytes=1)
    assert toy.test_opened > before
    for name in ("test_error", "test_logloss", "test_macro_f1_error"):
        low, high = found.signals[f"{name}_low"], found.signals[f"{name}_high"]
        assert low <= found.objectives[name] <= high


@pytest.mark.parametrize("split", ["val", "test"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite_give_nan_and_never_raise(
    toy: TextProblem, split: Any, bad: float
) -> None:
    def broken(texts: Sequence[str]) -> np.ndarray[Any, Any]:
        logits = np.array(noisy(toy)(texts))
        logits[0, 0] = bad
        return logits

    found = evaluate_classifier(toy, split, broken, n_params=1, size_bytes=1)
    assert np.isnan(found.objectives[f"{split}_error"])
    assert np.isnan(found.objectives[f"{split}_logloss"])
    assert not found.is_finite()


def test_a_wrong_shape_breaks_the_contract(toy: TextProblem) -> None:
    with pytest.raises(ContractError, match=r"shape \(24, 2\), expected \(24, 3\)"):
        evaluate_classifier(
            toy, "val", lambda texts: noisy(toy)(texts)[:, :2], n_params=1, size_bytes=1
        )


def test_latency_is_taken_one_text_at_a_time_on_the_same_texts(toy: TextProblem) -> None:
    calls: list[list[str]] = []

    def logits_of(texts: Sequence[str]) -> np.ndarray[Any, Any]:
        calls.append(list(texts))
        return np.asarray(noisy(toy)(texts))

    assert len(latencies_ms(toy, logits_of)) == 20
    first, calls[:] = list(calls), []
    latencies_ms(toy, logits_of)
    assert calls == first
    assert len(first) == 23
    assert all(len(texts) == 1 for texts in first)


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    from lamps_plugins.text_classification._measure import _intervals

    rng = np.random.default_rng(5)
    covered = 0
    for seed in range(60):
        targets = rng.integers(0, 2, 200)
        wrong = rng.random(200) < 0.3
        logits = np.eye(2)[np.where(wrong, 1 - targets, targets)]
        ends = _intervals(logits, targets, seed=seed)
        covered += ends["test_error_low"] <= 0.3 <= ends["test_error_high"]
    assert covered >= 50
