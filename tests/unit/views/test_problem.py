from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
from lamps_plugins._views import metrics
from lamps_plugins._views.clusterer import Clusterer, Clustering
from lamps_plugins._views.evaluation import DEV_SHARE
from lamps_plugins._views.masks import missing_mask
from lamps_plugins._views.problem import ClusterProblem
from lamps_plugins._views.toy import toy_views
from lamps_plugins.multi_view_clustering.concat_kmeans import ConcatKmeans, Params

from lamps.errors import ConfigError, ContractError, MethodFailed, ProblemError


def problem(track: str = "internal", n: int = 400, **more: Any) -> ClusterProblem:
    data, truth = toy_views(1, n=n)
    mask = missing_mask("sample-rate", 0.5, n, data.n_views, 0)
    given: dict[str, Any] = {"truth": truth, "complete": data} | more
    return ClusterProblem(name="t", raw=dataclasses.replace(data, mask=mask), track=track, **given)


def fitted(at: ClusterProblem, fidelity: float = 1.0, seed: int = 0) -> ConcatKmeans:
    return ConcatKmeans(Params()).partial_fit(at, fidelity, rng=np.random.default_rng(seed))


def permuted(at: ClusterProblem) -> ClusterProblem:
    _, truth = toy_views(1, n=at.raw.n)
    return problem(at.track, truth=np.random.default_rng(9).permutation(truth))


def test_rows_are_nested_prefixes() -> None:
    at = problem(n=1000)
    sizes = [len(at.rows(f)) for f in at.fidelities]
    assert sizes == [0, 200, 250, 1000]
    for small, large in zip(at.fidelities, at.fidelities[1:], strict=False):
        assert (at.rows(large)[: len(at.rows(small))] == at.rows(small)).all()
    assert sorted(at.rows(1.0)) == list(range(1000))


def test_every_prefix_holds_each_group_in_its_share() -> None:
    data, truth = toy_views(0, n=1000)
    group = (np.arange(1000) < 100).astype(np.int64)
    at = ClusterProblem(name="g", raw=dataclasses.replace(data, group=group), truth=truth)
    for fidelity in (0.05, 0.25, 0.6):
        assert group[at.rows(fidelity)].mean() == pytest.approx(0.1, abs=0.006)


def test_labels_of_one_class_are_told() -> None:
    assert problem().notes == ()
    (note,) = problem(truth=np.zeros(400, dtype=np.int64)).notes
    assert "of one class" in note


def test_the_remembered_score_is_no_part_of_the_problem() -> None:
    at = problem()
    before = dict(vars(at))
    fitted(at).evaluate(at)
    assert {k: v for k, v in vars(at).items() if k in before and v is not before[k]} == {}
    assert set(vars(at)) == set(before)


def test_truth_is_no_part_of_what_methods_see() -> None:
    at = problem()
    names = {f.name for f in dataclasses.fields(at.data)}
    assert names == {"names", "arrays", "mask", "n_clusters", "group"}
    assert at.data.digest() == permuted(at).data.digest()
    assert at.fingerprint() != permuted(at).fingerprint()


def test_permuted_truth_changes_nothing_before_the_test_split_opens() -> None:
    first, second = problem(), permuted(problem())
    for fidelity in first.fidelities:
        a, b = fitted(first, fidelity).evaluate(first), fitted(second, fidelity).evaluate(second)
        assert a.objectives == b.objectives
        assert a.signals == b.signals
    assert first.test_opened == 0
    errors = [fitted(p).evaluate(p, "test").objectives["test_error"] for p in (first, second)]
    assert errors[0] < 0.2 < errors[1]
    assert first.test_opened == 1


def test_shown_labels_are_a_fifth_equal_for_all_and_never_in_the_test_score() -> None:
    at = problem("labelled")
    dev = at._evaluator.dev_rows
    assert len(dev) == round(DEV_SHARE * 400)
    assert (problem("labelled")._evaluator.dev_rows == dev).all()
    assert len(problem()._evaluator.dev_rows) == 0
    _, truth = toy_views(1, n=400)
    rest = np.setdiff1d(np.arange(400), dev)
    method = fitted(at)
    labels = method.labels_of_all(at)
    val, test = method.evaluate(at).objectives, method.evaluate(at, "test").objectives
    assert val["val_loss"] == pytest.approx(1 - metrics.accuracy(truth[dev], labels[dev]))
    assert test["test_error"] == pytest.approx(1 - metrics.accuracy(truth[rest], labels[rest]))
    wrong = truth.copy()
    wrong[rest] = np.random.default_rng(0).permutation(wrong[rest])
    blind = problem("labelled", truth=wrong)
    assert fitted(blind).evaluate(blind).objectives == val  # other labels have no say


def test_early_landmarks_answer_for_the_same_shown_rows() -> None:
    at = problem("labelled", n=1200)
    method = fitted(at, 0.05)
    assert len(method.rows_) == 200
    assert len(method.labels_of_all(at)) == 1200
    _, truth = toy_views(1, n=1200)
    dev = at._evaluator.dev_rows
    loss = 1 - metrics.accuracy(truth[dev], method.labels_of_all(at)[dev])
    assert method.evaluate(at).objectives["val_loss"] == pytest.approx(loss)


def test_test_losses_are_external_and_carry_an_interval() -> None:
    at = problem()
    found = fitted(at).evaluate(at, "test")
    assert set(found.objectives) == {
        "test_error", "test_nmi_loss", "test_ari_loss", "test_purity_loss"
    }  # fmt: skip
    low, high = found.signals["test_error_low"], found.signals["test_error_high"]
    assert low <= found.objectives["test_error"] <= high
    unknown = problem(truth=None)
    assert fitted(unknown).evaluate(unknown, "test").objectives == {}


def test_the_floor_is_one_cluster() -> None:
    at = problem()
    assert at.floor() == {"val_loss": 1.0, "val_view_loss": 1.0}
    assert at.floor("test")["test_error"] == pytest.approx(2 / 3, abs=0.01)
    assert problem(truth=None).floor("test") == {}
    start = fitted(at, 0.0).evaluate(at).objectives
    assert start["val_loss"] == 1.0


def test_imputation_is_measured_on_hidden_cells_alone() -> None:
    at = problem()
    found = at.imputation(at.data.arrays, np.arange(at.raw.n))
    assert set(found) == {"nrmse.view0", "nrmse.view1", "nrmse.view2"}
    assert found["nrmse.view0"] == pytest.approx(1.0, abs=0.05)
    assert problem(complete=None).imputation(at.data.arrays, np.arange(at.raw.n)) == {}


def test_pickling_keeps_arrays_read_only() -> None:
    at = pickle.loads(pickle.dumps(problem()))
    with pytest.raises(ValueError, match="read-only"):
        at.data.arrays[0][0] = 1.0


def test_what_cannot_be_a_problem_is_refused() -> None:
    with pytest.raises(ProblemError, match="3 labels for 400 rows"):
        problem(truth=np.zeros(3, dtype=np.int64))
    with pytest.raises(ConfigError, match="--labels"):
        problem("labelled", truth=None)
    with pytest.raises(ConfigError, match="labelled"):
        problem("labeled")
    with pytest.raises(ProblemError, match=r"0\.5 is no landmark"):
        fitted(problem(), 0.5)


class _Odd(Clusterer[Params]):
    """Gives back what a test tells it to."""

    spec = ConcatKmeans.spec

    def __init__(self, found: Clustering) -> None:
        super().__init__(Params())
        self.found = found

    def cluster(self, data: Any, *, rng: np.random.Generator) -> Clustering:
        return self.found


@pytest.mark.parametrize(
    ("labels", "embedding", "error", "culprit"),
    [
        (np.zeros(7, np.int64), np.zeros((400, 2)), ContractError, r"\[7\]"),
        (np.zeros(400, np.int64), np.zeros((400,)), ContractError, r"\[400\]"),
        (np.full(400, 3), np.zeros((400, 2)), ContractError, "from 3 to 3"),
        (np.full(400, -1), np.zeros((400, 2)), ContractError, "from -1"),
        (np.zeros(400), np.zeros((400, 2)), ContractError, "float64"),
        (np.zeros(400, np.int64), np.full((400, 2), np.nan), MethodFailed, "not finite"),
    ],
)
def test_what_is_no_clustering_is_refused(
    labels: Any, embedding: Any, error: type[Exception], culprit: str
) -> None:
    at = problem()
    odd = _Odd(Clustering(labels=labels, embedding=embedding))
    with pytest.raises(error, match=culprit):
        odd.partial_fit(at, 1.0, rng=np.random.default_rng(0))


def test_an_unfitted_method_says_so() -> None:
    with pytest.raises(MethodFailed, match="never fitted"):
        ConcatKmeans(Params()).evaluate(problem())
