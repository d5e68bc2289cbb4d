"""IDCD: losses against their closed forms, stages, imputation, refusals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from lamps_plugins._views.data import ViewData, standardised
from lamps_plugins._views.epochs import seeded
from lamps_plugins._views.masks import missing_mask
from lamps_plugins._views.metrics import accuracy
from lamps_plugins._views.problem import ClusterProblem
from lamps_plugins.multi_view_clustering._deep_information import Critics, dependence
from lamps_plugins.multi_view_clustering._deep_refine import mixture_of, moved, refined_labels
from lamps_plugins.multi_view_clustering._problem import FAMILY
from lamps_plugins.multi_view_clustering._replications._generators import (
    conditional_draws,
    known_factors,
)
from lamps_plugins.multi_view_clustering.idcd import Idcd, Params

from lamps.errors import ConfigError, LampsWarning, ProblemError

SHORT = {"pretrain_epochs": 5, "epochs": 15, "shared": 8, "own": 2, "batch": 128}


@pytest.fixture(autouse=True)
def _seed():
    with seeded(np.random.default_rng(0)):
        yield


def blobs(n: int = 300, *, hidden: float = 0.3, seed: int = 0) -> tuple[ViewData, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n)
    centres = 3.0 * rng.normal(size=(3, 3, 5))
    arrays = tuple(
        (centres[v][truth] + rng.normal(size=(n, 5))).astype(np.float32) for v in (0, 1, 2)
    )
    mask = rng.random((n, 3)) >= hidden
    mask[np.arange(n), rng.integers(3, size=n)] = True
    whole = ViewData(names=("a", "b", "c"), arrays=arrays, mask=np.ones_like(mask), n_clusters=3)
    return dataclasses.replace(standardised(whole), mask=mask), truth


def test_critics_bound_dependence_and_not_independence():
    z = torch.randn(800, 1, 2)
    noise = 0.3 * torch.randn(800, 1, 2)
    mask = torch.ones(800, 1, dtype=torch.bool)
    found = {}
    for name, s in (("dependent", z + noise), ("independent", torch.randn(800, 1, 2))):
        critics = Critics(1, 2, 2)
        adam = torch.optim.Adam(critics.parameters(), lr=2e-2)
        for _ in range(100):
            loss = critics.nll(z, s, mask)
            adam.zero_grad()
            loss.backward()
            adam.step()
        found[name] = float(critics.bound(z, s, mask)[0].detach())
    truth = -2 * 0.5 * np.log(1 - 1 / (1 + 0.3**2))  # mutual information of the Gaussians, nats
    assert found["dependent"] >= 0.9 * truth
    assert found["independent"] < 0.3
    assert float(dependence(z, z, mask)) == pytest.approx(1.0)
    small = slice(0, 300)
    unrelated = dependence(z[small], torch.randn(300, 1, 2), mask[small])
    assert float(unrelated) < 0.1


def test_a_critic_worse_than_no_critic_gives_no_gradient():
    critics = Critics(1, 2, 2)  # untrained
    z, s = torch.randn(50, 1, 2, requires_grad=True), 9.0 + 0.1 * torch.randn(50, 1, 2)
    bound, usable = critics.bound(z, s, torch.ones(50, 1, dtype=torch.bool))
    bound.backward()
    assert usable == 0.0
    assert float(bound.detach()) == 0.0
    assert float(z.grad.abs().sum()) == 0.0


def test_it_clusters_blobs_and_assigns_rows_alike():
    data, truth = blobs()
    method = Idcd(Params(**SHORT | {"epochs": 30}))
    found = method.cluster(data, rng=np.random.default_rng(0))
    assert accuracy(truth, found.labels) > 0.9
    labels, soft = method.assign(data)
    np.testing.assert_array_equal(labels, found.labels)
    np.testing.assert_allclose(soft.sum(1), 1.0, rtol=1e-5)


@pytest.mark.parametrize(
    "variant",
    [
        {"aggregator": "barycentre"},
        {"aggregator": "poe"},
        {"aggregator": "moe"},
        {"aggregator": "correlated"},
        {"lambda_d": 0.0},
        {"own": 0},
        {"contrast": False},
        {"prior": "normal"},
        {"dependence": "hsic"},
        {"subsets": "all"},
    ],
    ids=str,
)
def test_every_ablation_runs(variant):
    data, truth = blobs(160)
    found = Idcd(Params(**SHORT | variant)).cluster(data, rng=np.random.default_rng(0))
    assert accuracy(truth, found.labels) > 0.7
    assert found.imputed is None


@pytest.mark.parametrize("kind", ["diffusion", "regression"])
def test_missing_views_are_filled_better_than_by_the_mean(kind):
    whole, _ = blobs(500, hidden=0.0)
    data, _ = blobs(500)
    params = {"imputation": kind, "diffusion_epochs": 20, "denoiser": 32}
    method = Idcd(Params(**SHORT, **params))
    assert [name for name, _ in method.stages()] == ["autoencoder", "joint", "diffusion"]
    found = method.cluster(data, rng=np.random.default_rng(0))
    for v, array in enumerate(data.arrays):
        shown = data.mask[:, v]
        np.testing.assert_array_equal(found.imputed[v][shown], array[shown])
        gap = found.imputed[v][~shown] - whole.arrays[v][~shown]
        mean = whole.arrays[v][~shown] - array[shown].mean(0)
        assert np.linalg.norm(gap) < 0.8 * np.linalg.norm(mean)


@pytest.mark.slow
def test_the_spread_of_generated_views_is_that_of_known_factors():
    factors = known_factors(1000, 0)
    mask = missing_mask("sample-rate", 0.5, 1000, 3, 0)
    raw = ViewData(names=("a", "b", "c"), arrays=factors.views, mask=mask, n_clusters=5)
    data = standardised(raw)
    params = {"imputation": "diffusion", "diffusion_epochs": 40, "denoiser": 128}
    method = Idcd(Params(pretrain_epochs=10, epochs=50, **params))
    method.cluster(data, rng=np.random.default_rng(0))
    drawn = method.draw(data, draws=20, rng=np.random.default_rng(0))
    for v in range(3):
        rows = np.flatnonzero(~mask[:, v])
        exact = conditional_draws(factors, v, rows, draws=20, seed=0)
        scale = factors.views[v][mask[:, v]].std(0)
        assert 0.7 <= (drawn[v].var(0) * scale**2).sum() / exact.var(0).sum() <= 1.3


def test_clustering_alone_never_pays_for_diffusion():
    method = Idcd(Params())
    assert [name for name, _ in method.stages()] == ["autoencoder", "joint"]
    problem = FAMILY.toy_problem()
    method = Idcd(Params(**SHORT)).partial_fit(problem, 0.25, rng=np.random.default_rng(0))
    assert set(method.modules()) == {"nets", "prior", "critics"}


def test_stages_stop_anywhere_and_go_on():
    data, truth = blobs(300, hidden=0.2)
    problem = ClusterProblem(name="blobs", raw=data, truth=truth)
    brief = {"pretrain_epochs": 2, "epochs": 3, "diffusion_epochs": 20}
    params = Params(**SHORT | brief, imputation="diffusion", denoiser=16)
    leap = Idcd(params).partial_fit(problem, 1.0, rng=np.random.default_rng(1))
    steps = Idcd(params)
    for fidelity in problem.fidelities[1:]:  # after 1, 6 and 25 epochs: the last stage is split
        twin = Idcd(params)
        if steps.fidelity_ is not None:
            twin.load_state_dict(steps.state_dict(), problem)
        steps = twin.partial_fit(problem, fidelity, rng=np.random.default_rng(1))
    np.testing.assert_array_equal(leap.result_.labels, steps.result_.labels)
    for one, two in zip(leap.result_.imputed, steps.result_.imputed, strict=True):
        np.testing.assert_array_equal(one, two)
    pairs = zip(leap.imputer_.averaged.parameters(), leap.imputer_.nets.parameters(), strict=True)
    assert any(not torch.equal(average, weight) for average, weight in pairs)


def test_views_of_few_rows_are_filled_by_donors_with_a_warning():
    params = Params(**SHORT, imputation="diffusion", diffusion_epochs=1, denoiser=16)
    with pytest.warns(LampsWarning, match="fewer than the 200"):
        found = Idcd(params).cluster(blobs(220)[0], rng=np.random.default_rng(0))
    assert all(np.isfinite(array).all() for array in found.imputed)


def test_unknown_ways_to_impute_are_refused():
    with pytest.raises(ConfigError, match="cannot have kind 'gan'; expected diffusion, reg"):
        Idcd(Params(**SHORT, imputation="gan")).cluster(blobs()[0], rng=np.random.default_rng(0))


def test_a_second_look_moves_the_latents_by_the_weight():
    place, said = np.ones((2, 3), np.float32), 4.0 * np.ones((2, 2, 3), np.float32)
    mask = np.array([[True, False], [True, True]])
    np.testing.assert_allclose(moved(place, said, mask, 0.0), place)
    np.testing.assert_allclose(moved(place, said, mask, 1.0)[0], 2.5)
    np.testing.assert_allclose(moved(place, said, mask, 1.0)[1], 1.0)


def test_em_keeps_well_separated_clusters():
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=200)
    points = (10.0 * np.eye(3)[truth] + rng.normal(size=(200, 3))).astype(np.float32)
    labels, soft = refined_labels(points, *mixture_of(points, truth, 3))
    np.testing.assert_array_equal(labels, truth)
    np.testing.assert_allclose(soft.sum(1), 1.0, rtol=1e-5)


def test_a_second_look_runs():
    data, truth = blobs()
    params = Params(**SHORT, imputation="regression", diffusion_epochs=5, denoiser=16, w_imp=0.3)
    found = Idcd(params).cluster(data, rng=np.random.default_rng(0))
    assert accuracy(truth, found.labels) > 0.8


@pytest.mark.parametrize(
    ("edit", "params", "message"),
    [
        ("alone", {"imputation": "diffusion"}, "view 'c' is never seen with another view"),
        ("one", {}, "needs 2 views, the data has 1"),
        ("blind", {}, "row 4 shows no view"),
        ("unseen", {}, "view 'b' is shown by no row"),
        ("many", {}, "cannot find 200 clusters in 300 rows"),
    ],
)
def test_refusals(edit, params, message):
    data, _ = blobs()
    mask = np.array(data.mask)
    if edit == "alone":
        mask[:, 2] = False
        mask[:50] = [False, False, True]
        mask[50:, :2] = True
    elif edit == "one":
        data, mask = data.only([0]), np.ones((300, 1), bool)
    elif edit == "blind":
        mask[4] = False
    elif edit == "unseen":
        mask[:, 1], mask[:, 0] = False, True
    data = dataclasses.replace(
        data, mask=mask, n_clusters=200 if edit == "many" else data.n_clusters
    )
    with pytest.raises(ProblemError, match=message) as caught:
        Idcd(Params(**params)).cluster(data, rng=np.random.default_rng(0))
    assert "\n" not in str(caught.value)
