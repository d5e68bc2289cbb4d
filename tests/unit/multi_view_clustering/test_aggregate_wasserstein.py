"""Wasserstein barycentres of diagonal Gaussians: closed form, sets of views, and their mixture."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lamps_plugins.multi_view_clustering._aggregate_wasserstein import (
    barycentre,
    drawn_subsets,
    membership,
    mixture_mean,
    subsets_of,
)
from scipy.optimize import minimize


def views(seed: int, n: int = 6, n_views: int = 3, q: int = 2):
    rng = np.random.default_rng(seed)
    mask = rng.random((n, n_views)) < 0.6
    mask[np.arange(n), rng.integers(n_views, size=n)] = True
    mean, std = rng.normal(size=(n, n_views, q)), rng.uniform(0.2, 2.0, (n, n_views, q))
    return tuple(map(torch.from_numpy, (mean, std, rng.normal(size=n_views), mask)))


@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_least_mean_squared_distance(seed):
    mean, std, logits, mask = views(seed, n=1)
    mask[:] = True
    weights = logits.softmax(0).numpy()

    def cost(guess):
        m, s = guess[:2], guess[2:]
        each = ((mean[0].numpy() - m) ** 2 + (std[0].numpy() - s) ** 2).sum(1)
        return float(weights @ each)  # squared distance of diagonal Gaussians

    best = minimize(cost, np.array([0.0, 0.0, 1.0, 1.0]), tol=1e-12).x
    got = barycentre(mean, std, logits, mask)
    np.testing.assert_allclose(torch.cat(got, 1)[0], best, atol=1e-5)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_equal_views_are_their_own_barycentre(seed):
    mean, std, logits, mask = views(seed)
    mean, std = mean[:, :1].expand_as(mean), std[:, :1].expand_as(std)
    got = barycentre(mean, std, logits, mask)
    torch.testing.assert_close(got[0], mean[:, 0])
    torch.testing.assert_close(got[1], std[:, 0])  # it does not get sharper with more views


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), family=st.sampled_from(["full", "singles+full", "all"]))
def test_the_mixture_mean_is_the_mean_over_a_rows_sets(seed, family):
    mean, std, logits, mask = views(seed, n_views=4)
    got = mixture_mean(mean, logits, mask, family)
    for i, shown in enumerate(mask.numpy()):
        fit = [c for c in subsets_of(4, family) if shown[list(c)].all() and shown.sum() > len(c)]
        parts = []
        for chosen in [*fit, tuple(np.flatnonzero(shown))]:
            row = torch.zeros(1, 4, dtype=torch.bool)
            row[0, list(chosen)] = True
            parts.append(barycentre(mean[i : i + 1], std[i : i + 1], logits, row)[0])
        torch.testing.assert_close(got[i], torch.cat(parts).mean(0))


def test_families_of_sets():
    assert subsets_of(3, "full") == ()
    assert subsets_of(3, "singles+full") == ((0,), (1,), (2,))
    assert len(subsets_of(4, "all")) == 2**4 - 2
    assert len(subsets_of(6, "all")) == 6 + 15


def test_drawn_sets_are_observed_and_half_are_full():
    torch.manual_seed(0)
    mask = views(1, n=200, n_views=4)[3]
    drawn = drawn_subsets(mask, "singles+full")
    assert not bool((drawn & ~mask).any())
    assert bool(drawn.any(1).all())
    several = mask.sum(1) > 1
    full = (drawn == mask).all(1)[several].float().mean()
    assert 0.5 <= float(full) < 0.75
    sets, has = membership(mask, "singles+full")
    assert bool((sets[:, -1] == mask).all())
    assert bool(has[:, -1].all())
    assert bool((has.sum(1)[~several] == 1).all())


def test_what_a_missing_view_says_is_never_read():
    mean, std, logits, mask = views(2)
    junk = torch.where(mask[:, :, None], mean, 1e6)
    torch.testing.assert_close(
        barycentre(junk, std, logits, mask)[0], barycentre(mean, std, logits, mask)[0]
    )
    torch.testing.assert_close(
        mixture_mean(junk, logits, mask, "all"), mixture_mean(mean, logits, mask, "all")
    )
