"""The methods of the family: what each promises on data whose groups are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lamps_plugins._views import metrics
from lamps_plugins._views.clusterer import Clusterer
from lamps_plugins._views.data import ViewData
from lamps_plugins.fair_multi_view_clustering import _anchors as anchors
from lamps_plugins.fair_multi_view_clustering._groupwise import GroupScale, directions, without
from lamps_plugins.fair_multi_view_clustering._opening import open_any
from lamps_plugins.fair_multi_view_clustering._problem import FairProblem
from lamps_plugins.fair_multi_view_clustering.blind_kmeans import BlindKmeans
from lamps_plugins.fair_multi_view_clustering.cdal import Cdal
from lamps_plugins.fair_multi_view_clustering.consensus_anchors import ConsensusAnchors
from lamps_plugins.fair_multi_view_clustering.group_standardised_kmeans import (
    GroupStandardisedKmeans,
)
from lamps_plugins.fair_multi_view_clustering.lda_projection import LdaProjection
from lamps_plugins.fair_multi_view_clustering.sinkhorn_kmeans import (
    SinkhornKmeans,
    balanced_plan,
)

from lamps.errors import ProblemError


@pytest.fixture(scope="module")
def toy() -> FairProblem:
    return open_any("toy", {})


def labels_of(kind: type[Clusterer[Any]], data: ViewData, seed: int = 0, **params: Any) -> Any:
    method = kind.from_params(params)
    return method.cluster(data, rng=np.random.default_rng(seed)).labels


def truth_of(problem: FairProblem) -> Any:
    return problem._evaluator._truth


@pytest.mark.parametrize("step", anchors.ZU_STEPS)
@pytest.mark.parametrize("paper_scale", [False, True])
def test_cdal_runs_with_every_step(toy: FairProblem, step: str, paper_scale: bool) -> None:
    method = Cdal.from_params({"zu_step": step, "paper_scale": paper_scale, "restarts": 5})
    found = method.cluster(toy.data, rng=np.random.default_rng(0))
    assert found.soft is not None
    np.testing.assert_array_equal(found.soft.argmax(axis=1), found.labels)
    assert metrics.nmi(truth_of(toy), found.labels) > 0.3
    totals = [row["total"] for row in found.trace]
    assert totals[-1] < totals[0]
    assert set(method.signals()) == {
        "sweeps", "objective_left", "dependence", "overlap", "balance_of_codes"
    }  # fmt: skip


def test_cdal_is_fairer_than_its_blind_half(toy: FairProblem) -> None:
    fair = [metrics.mnce(labels_of(Cdal, toy.data, s), toy.group) for s in range(2)]
    blind = [metrics.mnce(labels_of(ConsensusAnchors, toy.data, s), toy.group) for s in range(2)]
    assert np.mean(fair) > np.mean(blind) + 0.1


def test_blind_methods_do_not_read_the_group(toy: FairProblem) -> None:
    other = ViewData(
        names=toy.data.names, arrays=toy.data.arrays, mask=toy.data.mask,
        n_clusters=3, group=toy.group[::-1].copy(),
    )  # fmt: skip
    for kind in (BlindKmeans, ConsensusAnchors):
        np.testing.assert_array_equal(labels_of(kind, toy.data), labels_of(kind, other))


@pytest.mark.parametrize("kind", [Cdal, GroupStandardisedKmeans, SinkhornKmeans, LdaProjection])
def test_names_of_groups_do_not_matter(kind: Any, toy: FairProblem) -> None:
    swapped = ViewData(
        names=toy.data.names, arrays=toy.data.arrays, mask=toy.data.mask,
        n_clusters=3, group=1 - toy.group,
    )  # fmt: skip
    agreement = metrics.ari(labels_of(kind, toy.data), labels_of(kind, swapped))
    assert agreement > 0.95


def test_group_standardised_kmeans_takes_a_planted_shift_out(toy: FairProblem) -> None:
    labels = labels_of(GroupStandardisedKmeans, toy.data)
    assert metrics.mnce(labels, toy.group) > 0.8
    assert metrics.accuracy(truth_of(toy), labels) > 0.8


def test_group_standardised_kmeans_assigns_with_and_without_a_group(toy: FairProblem) -> None:
    method = GroupStandardisedKmeans.from_params({})
    method.partial_fit(toy, 1.0, rng=np.random.default_rng(0))
    found = method.require_fitted()
    assert (method.assign(toy.data.take(method.rows_))[0] == found.labels).mean() > 0.99
    nobody = ViewData(
        names=toy.data.names, arrays=toy.data.arrays, mask=toy.data.mask, n_clusters=3
    )
    assert method.assign(nobody)[0].shape == found.labels.shape


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), t=st.integers(2, 4))
def test_group_scale_gives_every_group_the_same_moments(seed: int, t: int) -> None:
    rng = np.random.default_rng(seed)
    group = np.resize(np.arange(t), 60)
    x = (rng.normal(size=(60, 3)) * rng.uniform(1, 9, (t, 3))[group] + group[:, None]).astype(
        np.float32
    )
    z = GroupScale.fit(x, group).apply(x, group)
    for g in range(t):
        np.testing.assert_allclose(z[group == g].mean(axis=0), 0.0, atol=1e-4)
        np.testing.assert_allclose(z[group == g].std(axis=0), 1.0, atol=1e-3)


@pytest.mark.parametrize("t", [2, 3])
def test_projection_on_means_makes_them_equal(t: int) -> None:
    rng = np.random.default_rng(0)
    group = np.resize(np.arange(t), 90)
    x = (rng.normal(size=(90, 6)) + rng.normal(size=(t, 6))[group]).astype(np.float32)
    away = directions(x, group, "mean", 0.1)
    assert away.shape == (6, t - 1)
    np.testing.assert_allclose(away.T @ away, np.eye(t - 1), atol=1e-5)
    left = without(x, away)
    means = np.stack([left[group == g].mean(axis=0) for g in range(t)])
    np.testing.assert_allclose(means, means[:1].repeat(t, axis=0), atol=1e-4)


def test_discriminant_of_two_groups_is_that_of_scikit_learn() -> None:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    rng = np.random.default_rng(1)
    group = np.resize([0, 1], 400)
    mix = rng.normal(size=(4, 4))
    x = (rng.normal(size=(400, 4)) @ mix + np.outer(group, rng.normal(size=4))).astype(np.float32)
    ours = directions(x, group, "lda", 1e-6)[:, 0]
    theirs = LinearDiscriminantAnalysis(solver="eigen").fit(x, group).coef_[0]
    cosine = abs(float(ours @ theirs)) / float(np.linalg.norm(ours) * np.linalg.norm(theirs))
    assert cosine > 0.999


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), t=st.integers(2, 3))
def test_balanced_plans_meet_their_margins(seed: int, t: int) -> None:
    rng = np.random.default_rng(seed)
    group = np.resize(np.arange(t), 45)
    shares = rng.dirichlet(np.full(4, 5.0))
    plan = balanced_plan(rng.uniform(0, 5, (45, 4)), group, shares, 0.1, steps=500)
    np.testing.assert_allclose(plan.sum(axis=1), 1.0, atol=1e-9)
    for g in range(t):
        mass = plan[group == g].sum(axis=0)
        np.testing.assert_allclose(mass, shares * (group == g).sum(), rtol=0.02, atol=0.02)


def test_a_plan_survives_a_cluster_that_nobody_is_in() -> None:
    cost = np.random.default_rng(0).uniform(size=(10, 3))
    plan = balanced_plan(cost, np.zeros(10, dtype=np.int64), np.array([0.5, 0.5, 0.0]), 0.1)
    assert np.isfinite(plan).all()
    assert plan[:, 2].max() == 0.0


def test_sinkhorn_kmeans_is_balanced(toy: FairProblem) -> None:
    assert metrics.balance(labels_of(SinkhornKmeans, toy.data), toy.group) > 0.7


def test_anchors_assign_new_rows_as_they_labelled(toy: FairProblem) -> None:
    method = ConsensusAnchors.from_params({"restarts": 5})
    method.partial_fit(toy, 1.0, rng=np.random.default_rng(0))
    labels, soft = method.assign(toy.data.take(method.rows_))
    assert (labels == method.require_fitted().labels).mean() > 0.9
    np.testing.assert_allclose(soft.sum(axis=1), 1.0, atol=1e-5)


def test_new_rows_with_a_missing_view_are_refused_by_name(toy: FairProblem) -> None:
    method = Cdal.from_params({"restarts": 5})
    method.partial_fit(toy, 1.0, rng=np.random.default_rng(0))
    mask = toy.data.mask.copy()
    mask[7, 1] = False
    holes = ViewData(names=toy.data.names, arrays=toy.data.arrays, mask=mask, n_clusters=3)
    with pytest.raises(ProblemError, match="'right' of row 7"):
        method.assign(holes)


def test_too_many_anchors_and_groups_are_refused(toy: FairProblem) -> None:
    few = toy.data.take(np.arange(25))
    with pytest.raises(ProblemError, match="15 anchors for 25 rows"):
        labels_of(Cdal, few, anchors_per_cluster=5)
    many = ViewData(
        names=toy.data.names, arrays=toy.data.arrays, mask=toy.data.mask, n_clusters=3,
        group=np.resize(np.arange(10), 240),
    )  # fmt: skip
    with pytest.raises(ProblemError, match="10 groups for 3 anchors"):
        labels_of(Cdal, many, anchors_per_cluster=1)


def test_no_group_is_refused(toy: FairProblem) -> None:
    nobody = ViewData(
        names=toy.data.names, arrays=toy.data.arrays, mask=toy.data.mask, n_clusters=3
    )
    with pytest.raises(ProblemError, match="--group"):
        labels_of(Cdal, nobody)
