"""Oracles of what the direct methods are made of."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from lamps_plugins._views.data import ViewData, standardised
from lamps_plugins._views.linear import unit_rows
from lamps_plugins._views.masks import missing_mask
from lamps_plugins._views.toy import toy_views
from lamps_plugins.multi_view_clustering import _anchor_graphs, _gmm, _pca, _spectral
from lamps_plugins.multi_view_clustering.coreg_spectral import embeddings
from lamps_plugins.multi_view_clustering.eomsc import consensus, procrustes
from lamps_plugins.multi_view_clustering.fused_spectral import fused
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture

RNG = np.random.default_rng(0)


def views(n: int = 90, protocol: str = "sample-rate") -> ViewData:
    data, _ = toy_views(1, n=n)
    mask = missing_mask(protocol, 0.5, n, data.n_views, 0)
    return standardised(dataclasses.replace(data, mask=mask))


# --- mixtures with missing entries ---------------------------------------------------------------


def mixture(d: int = 4, k: int = 3) -> _gmm.Mixture:
    rng = np.random.default_rng(1)
    a = rng.normal(size=(k, d, d))
    return _gmm.Mixture(
        np.array([0.5, 0.3, 0.2]), rng.normal(size=(k, d)), a @ a.swapaxes(1, 2) + np.eye(d)
    )


def test_a_missing_block_is_the_marginal() -> None:
    rng = np.random.default_rng(2)
    x, m = rng.normal(size=(20, 4)), mixture()
    known = rng.random((20, 4)) < 0.6
    found = _gmm.log_joint(np.where(known, x, np.nan_to_num(np.inf)), known, m)
    for i, seen in enumerate(known):
        for k in range(3):
            density = (
                multivariate_normal(m.means[k][seen], m.covariances[k][np.ix_(seen, seen)]).logpdf(
                    x[i, seen]
                )
                if seen.any()
                else 0.0
            )
            assert found[i, k] == pytest.approx(np.log(m.weights[k]) + density)


def test_em_of_complete_rows_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.normal(size=(60, 3)) + 3 * c for c in np.eye(3)])
    m = _gmm.start(x, np.repeat(np.arange(3), 60), 3, 0.0)
    ours, resp, trace = _gmm.em(x, np.ones(x.shape, bool), m, rounds=5, prior=0.0, ridge=0.0)
    theirs = GaussianMixture(
        3, weights_init=m.weights / m.weights.sum(), means_init=m.means, max_iter=5, tol=0.0,
        precisions_init=np.linalg.inv(m.covariances), reg_covar=0.0,
    )  # fmt: skip
    with pytest.warns(match="did not converge"):
        theirs.fit(x)
    assert ours.means == pytest.approx(theirs.means_, abs=1e-6)
    assert ours.covariances == pytest.approx(theirs.covariances_, abs=1e-6)
    assert trace[-1] == pytest.approx(theirs.score(x), abs=1e-6)
    assert resp.sum(axis=1) == pytest.approx(1.0)


def test_em_raises_the_likelihood_of_what_was_observed() -> None:
    rng = np.random.default_rng(4)
    x = np.concatenate([rng.normal(size=(50, 4)) + 2 * c for c in np.eye(4)[:3]])
    known = rng.random(x.shape) < 0.7
    known[~known.any(axis=1), 0] = True
    first = _gmm.start(np.where(known, x, 0.0), np.repeat(np.arange(3), 50), 3, 0.0)
    _, _, trace = _gmm.em(x, known, first, rounds=15, prior=0.0, ridge=0.0)
    assert (np.diff(trace) > -1e-9).all()


def test_missing_entries_are_expected_under_the_mixture() -> None:
    m = _gmm.Mixture(np.ones(1), np.zeros((1, 2)), np.array([[[1.0, 0.8], [0.8, 1.0]]]))
    x, known = np.array([[2.0, 9.0]]), np.array([[True, False]])
    assert _gmm.expected_rows(x, known, m, np.ones((1, 1)))[0, 1] == pytest.approx(1.6)


def test_components_are_those_of_observed_rows() -> None:
    data = views()
    (centre, directions), *_ = _pca.bases(data, 0.95, 3)
    seen = data.arrays[0][data.mask[:, 0]].astype(np.float64)
    _, values, right = np.linalg.svd(seen - seen.mean(axis=0), full_matrices=False)
    assert np.abs((right[: directions.shape[1]] * directions.T).sum(axis=1)) == pytest.approx(1.0)
    assert centre == pytest.approx(seen.mean(axis=0))
    assert not _pca.project(data, _pca.bases(data, 0.95, 3))[0][~data.mask[:, 0]].any()
    assert values.size >= directions.shape[1]


# --- graphs and spectra --------------------------------------------------------------------------


def test_a_neighbour_graph_by_hand() -> None:
    x = np.array([[0.0], [1.0], [3.0]], np.float32)
    graph = _spectral.neighbour_graph(x, 1).toarray()
    assert graph[0, 1] == graph[1, 0] == pytest.approx(np.exp(-1.0))
    assert graph[1, 2] == graph[2, 1] == pytest.approx(np.exp(-4.0 / 2.0))
    assert graph[0, 2] == graph[0, 0] == 0.0


def test_equal_rows_are_neighbours_and_not_their_own() -> None:
    graph = _spectral.neighbour_graph(np.zeros((5, 2), np.float32), 2).toarray()
    assert not graph.diagonal().any()
    assert (graph.sum(axis=1) > 0).all()


def test_the_fused_graph_averages_over_shared_views() -> None:
    data = views(40)
    whole = fused(data, 5).toarray()
    by_hand = np.zeros_like(whole)
    for v, array in enumerate(data.arrays):
        rows = np.flatnonzero(data.mask[:, v])
        by_hand[np.ix_(rows, rows)] += _spectral.neighbour_graph(array[rows], 5).toarray()
    shared = data.mask.astype(int) @ data.mask.astype(int).T
    assert whole == pytest.approx(by_hand / np.maximum(1, shared))
    assert whole == pytest.approx(whole.T)


def test_lanczos_finds_what_a_full_decomposition_finds() -> None:
    data, _ = toy_views(0, n=600)
    graph = _spectral.normalised(_spectral.neighbour_graph(data.arrays[0], 10))
    found = _spectral.leading(graph, 4)
    values = np.linalg.eigvalsh(graph.toarray())[::-1][:4]
    assert np.diag(found.T @ graph @ found) == pytest.approx(values, abs=1e-6)
    assert found.T @ found == pytest.approx(np.eye(4), abs=1e-8)


def test_coregularised_embeddings_come_closer() -> None:
    data = views(120, "none")

    def disagreement(lam: float) -> float:
        found = embeddings(data, 8, lam, 4)
        pairs = itertools.combinations(found, 2)
        return float(np.mean([3 - np.linalg.norm(u.T @ w) ** 2 for u, w in pairs]))

    alone, drawn = disagreement(1e-9), disagreement(0.5)
    assert drawn < alone
    for u in embeddings(data, 8, 0.5, 2):
        assert u.T @ u == pytest.approx(np.eye(3), abs=1e-8)


def test_stacking_weighs_rows_alike_whatever_they_lack() -> None:
    part = unit_rows(np.random.default_rng(0).normal(size=(30, 5)))
    mask = missing_mask("sample-rate", 0.5, 30, 2, 0)
    parts = [part * mask[:, v, None] for v in range(2)]
    z = np.concatenate(parts, axis=1) / np.sqrt(mask.sum(axis=1))[:, None]
    assert np.linalg.norm(z, axis=1) == pytest.approx(1.0)
    found = _spectral.stacked(parts, mask, 3)
    left = np.linalg.svd(z, full_matrices=False)[0][:, :3]
    assert np.abs((found * left).sum(axis=0)) == pytest.approx(1.0, abs=1e-6)


# --- anchors -------------------------------------------------------------------------------------


def test_adaptive_weights_by_hand() -> None:
    x = np.array([[0.0]], np.float32)
    anchors = np.array([[1.0], [2.0], [3.0], [9.0]])
    # Squared distances 1, 4, 9; with k = 2: (9 - 1) and (9 - 4) over 2 * 9 - 5.
    found = _anchor_graphs.adaptive_weights(x, anchors, 2)
    assert found[0] == pytest.approx([8 / 13, 5 / 13, 0.0, 0.0])
    equal = _anchor_graphs.adaptive_weights(x, np.ones((4, 1)), 2)
    assert sorted(equal[0]) == pytest.approx([0.0, 0.0, 0.5, 0.5])


def test_regressed_weights_solve_the_programme() -> None:
    from scipy.optimize import minimize

    rng = np.random.default_rng(0)
    x, anchors = rng.normal(size=(5, 4)).astype(np.float32), rng.normal(size=(3, 4))
    found = _anchor_graphs.regressed_weights(x, anchors, 0.1)
    penalty = 0.1 * np.trace(anchors @ anchors.T) / 3
    for row, z in zip(x.astype(np.float64), found, strict=True):
        loss = lambda w, row=row: ((row - w @ anchors) ** 2).sum() + penalty * (w**2).sum()  # noqa: E731
        best = minimize(
            loss, np.full(3, 1 / 3), bounds=[(0, 1)] * 3,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        )  # fmt: skip
        assert z == pytest.approx(best.x, abs=1e-3)
        assert z.sum() == pytest.approx(1.0)


def test_every_turn_of_consensus_anchors_lowers_the_objective() -> None:
    z, trace = consensus(views(), 6, 15, np.random.default_rng(0))
    assert (np.diff(trace) <= 1e-9 * trace[0]).all()
    assert (z >= 0).all()
    assert z.sum(axis=1) == pytest.approx(1.0)


def test_procrustes_is_the_best_rotation() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 3))
    best = procrustes(x)
    assert best.T @ best == pytest.approx(np.eye(3), abs=1e-12)
    for _ in range(20):
        other = np.linalg.qr(rng.normal(size=(5, 3)))[0]
        assert (best * x).sum() >= (other * x).sum()
