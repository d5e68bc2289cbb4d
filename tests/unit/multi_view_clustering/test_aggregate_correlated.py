"""Pooling of views with correlated errors: laws, closed forms, exact values of a generator."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lamps_plugins.multi_view_clustering._aggregate_correlated import (
    co_observed,
    correlation_of,
    cosine_correlation,
    difference_correlation,
    equicorrelated,
    free_of,
    lifted,
    pooled,
    pooled_dense,
)
from lamps_plugins.multi_view_clustering._replications._generators import (
    STD,
    correlated_errors,
    optimal_mse,
    true_correlation,
)


def views(seed: int, n: int = 7, n_views: int = 4, q: int = 3, *, missing: bool = True):
    rng = np.random.default_rng(seed)
    mean = torch.from_numpy(rng.normal(size=(n, n_views, q)))
    std = torch.from_numpy(rng.uniform(0.3, 2.0, (n, n_views, q)))
    mask = rng.random((n, n_views)) < 0.6
    mask[np.arange(n), rng.integers(n_views, size=n)] = True
    free = torch.from_numpy(0.7 * rng.normal(size=(n_views, n_views)))
    return mean, std, torch.from_numpy(mask | (not missing)), correlation_of(free)


def close(a, b, tolerance=1e-6):
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y, atol=tolerance, rtol=tolerance)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), block=st.sampled_from(["observed", "masked-inverse"]))
def test_grouped_form_equals_one_inverse_for_each_row_and_dimension(seed, block):
    mean, std, mask, r = views(seed)
    close(pooled(mean, std, mask, r, block=block), pooled_dense(mean, std, mask, r, block=block))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_one_matrix_for_each_group_of_dimensions(seed):
    mean, std, mask, r = views(seed, q=5)
    two = torch.stack([r, torch.eye(4, dtype=r.dtype)])
    close(pooled(mean, std, mask, two), pooled_dense(mean, std, mask, two))
    first = pooled(mean[..., :3], std[..., :3], mask, r)[0]
    torch.testing.assert_close(pooled(mean, std, mask, two)[0][:, :3], first)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_identity_is_the_product_of_experts(seed):
    mean, std, mask, _ = views(seed)
    got = pooled(mean, std, mask, torch.eye(4, dtype=mean.dtype))
    precision = mask[:, :, None] / std**2
    total = precision.sum(1)
    close(got[:2], ((precision * mean).sum(1) / total, 1.0 / total))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_weights_sum_to_one_and_the_variance_is_below_the_best_view(seed):
    mean, std, mask, r = views(seed)
    _, var, weights = pooled(mean, std, mask, r)
    torch.testing.assert_close(weights.sum(1), torch.ones_like(var))
    best = std.masked_fill(~mask[:, :, None], torch.inf).amin(1) ** 2
    assert bool((var <= best * (1 + 1e-6)).all())
    assert float(weights[~mask].abs().max() if (~mask).any() else 0.0) == 0.0


@pytest.mark.parametrize(("rho", "weights"), [(0.5, (1.0, 0.0)), (0.0, (0.8, 0.2))])
def test_two_views_by_hand(rho, weights):
    mean = torch.tensor([[[3.0], [9.0]]], dtype=torch.float64)
    std = torch.tensor([[[1.0], [2.0]]], dtype=torch.float64)
    r = torch.from_numpy(equicorrelated(2, rho))
    got = pooled(mean, std, torch.ones(1, 2, dtype=torch.bool), r)
    np.testing.assert_allclose(got[2][0, :, 0], weights, atol=2e-5)
    if rho == 0.5:
        assert float(got[1]) == pytest.approx(1.0, abs=2e-5)
        assert float(got[0]) == pytest.approx(3.0, abs=1e-4)


def test_a_noisy_view_that_goes_along_with_a_good_one_is_subtracted():
    std = torch.tensor([[[1.0], [2.0]]])
    both = torch.ones(1, 2, dtype=torch.bool)
    r = torch.from_numpy(equicorrelated(2, 0.8)).float()
    assert float(pooled(std, std, both, r)[2][0, 1, 0]) < 0.0


def left_out(seed: int, block) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    mean, std, mask, r = views(seed, missing=False)
    mask[:, 2] = False
    kept = [0, 1, 3]
    with_hole = pooled(mean, std, mask, r, block=block)
    without = pooled(mean[:, kept], std[:, kept], mask[:, kept], r[kept][:, kept], block=block)
    return list(with_hole[:2]), list(without[:2])


@pytest.mark.parametrize("seed", range(5))
def test_leaving_a_view_out_equals_never_having_had_it(seed):
    close(*left_out(seed, "observed"))


@pytest.mark.parametrize("seed", range(5))
def test_masking_the_inverse_is_not_the_marginal(seed):
    got, want = left_out(seed, "masked-inverse")
    assert float((got[0] - want[0]).abs().max()) > 1e-3


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_permuting_views_permutes_the_correlation(seed):
    mean, std, mask, r = views(seed)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(4))
    got = pooled(mean[:, order], std[:, order], mask[:, order], r[order][:, order])
    want = pooled(mean, std, mask, r)
    close(got[:2], want[:2])
    close([got[2]], [want[2][:, order]])
    latents = mean.numpy()
    moved = cosine_correlation(latents[:, order], mask.numpy()[:, order])
    np.testing.assert_allclose(moved, cosine_correlation(latents, mask.numpy())[order][:, order])


def test_what_a_missing_view_says_is_never_read():
    mean, std, mask, r = views(3)
    want = pooled(mean, std, mask, r)
    junk = torch.where(mask[:, :, None], mean, 1e6)
    close(pooled(junk, std, mask, r)[:2], want[:2])


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), size=st.floats(0.1, 3.0))
def test_any_square_matrix_gives_a_correlation(seed, size):
    free = size * np.random.default_rng(seed).normal(size=(5, 5))
    r = correlation_of(torch.from_numpy(free)).numpy()
    np.testing.assert_allclose(np.diag(r), 1.0)
    np.testing.assert_allclose(r, r.T)
    assert np.linalg.eigvalsh(r).min() > 0.0


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_a_correlation_comes_back_from_its_free_matrix(seed):
    r = views(seed)[3].numpy()
    got = correlation_of(torch.from_numpy(free_of(r))).numpy()
    np.testing.assert_allclose(got, lifted(r), atol=1e-9)


def test_gradients_reach_the_free_matrix():
    mean, std, mask, _ = views(0)
    free = torch.zeros(4, 4, dtype=torch.float64, requires_grad=True)
    got, var, _ = pooled(mean, std, mask, correlation_of(free))
    (got.sum() + var.sum()).backward()
    assert free.grad is not None
    assert float(free.grad.tril(-1).abs().sum()) > 0.0


def mse(r: np.ndarray, n: int = 20_000) -> float:
    data = correlated_errors(n, 0)
    mask = torch.ones(n, 4, dtype=torch.bool)
    said, std = torch.from_numpy(data.said), torch.from_numpy(np.array(data.std))
    mean = pooled(said, std, mask, torch.from_numpy(r))[0].numpy()
    return float(((mean - data.latent) ** 2).mean())


def test_the_true_correlation_pools_best_on_the_generator():
    oracle, experts = optimal_mse()
    assert oracle == pytest.approx(0.164, abs=5e-4)
    assert experts == pytest.approx(0.1933, abs=5e-5)
    assert mse(true_correlation()) == pytest.approx(oracle, rel=0.02)
    assert mse(np.eye(4)) == pytest.approx(experts, rel=0.02)


@pytest.mark.parametrize(("n", "far"), [(500, 0.4), (8_000, 0.1)])
def test_moments_of_view_differences_find_the_true_correlation(n, far):
    data = correlated_errors(n, 1)
    found = difference_correlation(data.said, data.std, np.ones((n, 4), bool))
    assert np.linalg.norm(found - true_correlation()) < far
    assert mse(found) < 0.9 * mse(np.eye(4))
    assert mse(found) < 1.02 * mse(true_correlation())


def test_moments_use_the_rows_that_show_both_views():
    data = correlated_errors(8_000, 2)
    mask = np.random.default_rng(0).random((8_000, 4)) < 0.6
    said = np.where(mask[:, :, None], data.said, 1e6)
    found = difference_correlation(said, data.std, mask)
    assert np.linalg.norm(found - true_correlation()) < 0.2
    assert len(STD) == 4


def test_pairs_that_no_row_shows_together_are_uncorrelated():
    mask = np.array([[1, 1, 0], [0, 0, 1], [1, 0, 0]], bool)
    assert co_observed(mask).tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    latents = np.random.default_rng(0).normal(size=(3, 3, 2))
    assert cosine_correlation(latents, mask)[0, 2] == 0.0
    assert difference_correlation(latents, np.ones_like(latents), mask)[1, 2] == 0.0


def test_lifting_leaves_a_good_matrix_alone_and_repairs_a_bad_one():
    good = equicorrelated(3, 0.4)
    np.testing.assert_allclose(lifted(good), good)
    bad = np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])
    assert np.linalg.eigvalsh(bad).min() < 0.0
    assert np.linalg.eigvalsh(lifted(bad)).min() > 0.0
    np.testing.assert_allclose(np.diag(lifted(bad)), 1.0)
