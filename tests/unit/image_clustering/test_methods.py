"""The methods of the family on the toy: what they read, refuse and learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lamps_plugins._views import metrics
from lamps_plugins._views.clusterer import Clusterer
from lamps_plugins._views.data import ViewData
from lamps_plugins.image_clustering._guided import neighbours
from lamps_plugins.image_clustering._opening import open_any, with_hidden_texts
from lamps_plugins.image_clustering._problem import ImageProblem
from lamps_plugins.image_clustering.image_kmeans import ImageKmeans
from lamps_plugins.image_clustering.image_spectral import ImageSpectral
from lamps_plugins.image_clustering.joint_kmeans import JointKmeans
from lamps_plugins.image_clustering.magic import Magic
from lamps_plugins.image_clustering.scan import Scan
from lamps_plugins.image_clustering.tac import Tac
from lamps_plugins.image_clustering.text_kmeans import TextKmeans

from lamps.errors import ProblemError

QUICK = {"epochs": 10, "rate": 1e-3, "batch": 128, "neighbours": 10}
TRAINED = (Magic, Tac, Scan)
PLAIN = (ImageKmeans, ImageSpectral, TextKmeans, JointKmeans)


@pytest.fixture(scope="module")
def toy() -> ImageProblem:
    return open_any("toy", {})


def fitted(kind: type[Clusterer[Any]], data: ViewData, seed: int = 0, **params: Any) -> Any:
    method = kind.from_params(params)
    return method, method.cluster(data, rng=np.random.default_rng(seed))


def truth_of(problem: ImageProblem) -> Any:
    return problem._evaluator._truth


def with_texts(data: ViewData, make: Any) -> ViewData:
    arrays = (data.arrays[0], *(make(a) for a in data.arrays[1:]))
    return ViewData(names=data.names, arrays=arrays, mask=data.mask, n_clusters=3)


def test_neighbours_are_the_nearest_others() -> None:
    x = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    near = neighbours(x, 6)
    similar = x @ x.T
    np.fill_diagonal(similar, -np.inf)
    for row, found in enumerate(near):
        assert set(found) == set(np.argsort(-similar[row])[:6])


@pytest.mark.parametrize("kind", PLAIN)
def test_plain_methods_find_the_toys_classes(kind: Any, toy: ImageProblem) -> None:
    assert metrics.nmi(truth_of(toy), fitted(kind, toy.data)[1].labels) > 0.4


def test_training_improves_the_loss_and_the_answer(toy: ImageProblem) -> None:
    for kind in TRAINED:
        method, found = fitted(kind, toy.data, **{**QUICK, "epochs": 40})
        assert method.trace_[-1]["loss"] < method.trace_[0]["loss"]
        assert metrics.nmi(truth_of(toy), found.labels) > 0.3
        assert 0.0 < method.signals_["evenness"] <= 1.0


@pytest.mark.parametrize("kind", [ImageKmeans, ImageSpectral])
def test_image_methods_read_no_text(kind: Any, toy: ImageProblem) -> None:
    other = with_texts(toy.data, lambda a: a[::-1].copy())
    np.testing.assert_array_equal(fitted(kind, toy.data)[1].labels, fitted(kind, other)[1].labels)


def test_scan_reads_no_text(toy: ImageProblem) -> None:
    other = with_texts(toy.data, lambda a: a[::-1].copy())
    np.testing.assert_array_equal(
        fitted(Scan, toy.data, **QUICK)[1].soft, fitted(Scan, other, **QUICK)[1].soft
    )


@pytest.mark.parametrize("kind", TRAINED)
def test_answers_need_the_image_alone(kind: Any, toy: ImageProblem) -> None:
    method, found = fitted(kind, toy.data, **QUICK)
    blind = ViewData(
        names=toy.data.names,
        arrays=toy.data.arrays,
        mask=np.repeat([[True, False, False]], toy.data.n, axis=0),
        n_clusters=3,
    )
    labels, soft = method.assign(blind)
    np.testing.assert_array_equal(labels, found.labels)
    np.testing.assert_allclose(soft, found.soft, atol=1e-6)
    one = method.assign(blind.take(np.array([4])))[1]  # batch norm must not see the batch
    np.testing.assert_allclose(one[0], found.soft[4], atol=1e-5)


def test_hidden_texts_are_never_read(toy: ImageProblem) -> None:
    half = with_hidden_texts(toy.data, 0.5, 0)
    gone = ~half.mask[:, 1]
    assert gone.mean() == 0.5

    def junk(a: np.ndarray) -> np.ndarray:
        b = a.copy()
        b[gone] = 1e6
        return b

    other = ViewData(
        names=half.names, arrays=(half.arrays[0], *map(junk, half.arrays[1:])), mask=half.mask,
        n_clusters=3,
    )  # fmt: skip
    for kind, params in ((Magic, QUICK), (JointKmeans, {}), (TextKmeans, {})):
        np.testing.assert_array_equal(
            fitted(kind, half, **params)[1].labels, fitted(kind, other, **params)[1].labels
        )


@pytest.mark.parametrize(
    "changes",
    [{"granularities": "fine"}, {"granularities": "coarse"}, {"adapters": False},
     {"consensus": False}],
)  # fmt: skip
def test_every_part_of_magic_can_be_switched_off(changes: Any, toy: ImageProblem) -> None:
    whole = fitted(Magic, toy.data, **QUICK)[1]
    less = fitted(Magic, toy.data, **QUICK, **changes)[1]
    assert np.abs(whole.soft - less.soft).max() > 1e-3


def test_one_granularity_leaves_the_other_unread(toy: ImageProblem) -> None:
    arrays = (*toy.data.arrays[:1], toy.data.arrays[1][::-1].copy(), toy.data.arrays[2])
    other = ViewData(names=toy.data.names, arrays=arrays, mask=toy.data.mask, n_clusters=3)
    for kind, name in (
        (Magic, "granularities"),
        (Tac, "granularity"),
        (TextKmeans, "granularities"),
    ):
        params = {name: "fine", **({} if kind is TextKmeans else QUICK)}
        np.testing.assert_array_equal(
            fitted(kind, toy.data, **params)[1].labels, fitted(kind, other, **params)[1].labels
        )


def test_rows_beyond_the_last_whole_batch_join_it(toy: ImageProblem) -> None:
    odd = toy.data.take(np.arange(129))  # 128 and one more
    method, _ = fitted(Magic, odd, **QUICK)
    assert np.isfinite(method.trace_[-1]["loss"])


def test_neighbours_are_capped_by_an_even_cluster(toy: ImageProblem) -> None:
    method, _ = fitted(Magic, toy.data, **{**QUICK, "neighbours": 50})
    assert method.signals_["neighbours"] == 30.0


@pytest.mark.parametrize("kind", TRAINED)
def test_too_few_images_are_refused(kind: Any, toy: ImageProblem) -> None:
    with pytest.raises(ProblemError, match="expected more than 10"):
        fitted(kind, toy.data.take(np.arange(10)), **QUICK)


def test_a_batch_smaller_than_k_is_refused(toy: ImageProblem) -> None:
    many = ViewData(
        names=toy.data.names, arrays=toy.data.arrays, mask=toy.data.mask, n_clusters=140
    )
    with pytest.raises(ProblemError, match="batch 128 is smaller than the 140 clusters"):
        fitted(Magic, many, **QUICK)


def test_a_choice_among_one_text_is_refused(toy: ImageProblem) -> None:
    with pytest.raises(ProblemError, match="one kind only"):
        fitted(Magic, toy.data.only([0, 1]), granularities="fine", **QUICK)


def test_new_images_without_features_are_refused(toy: ImageProblem) -> None:
    method, _ = fitted(Scan, toy.data, **QUICK)
    mask = toy.data.mask.copy()
    mask[3, 0] = False
    holes = ViewData(names=toy.data.names, arrays=toy.data.arrays, mask=mask, n_clusters=3)
    with pytest.raises(ProblemError, match="image 3"):
        method.assign(holes)
