"""Parts that the deep methods share: prior, losses, correlation, start, batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lamps_plugins._views.epochs import seeded
from lamps_plugins.multi_view_clustering._aggregate_correlated import equicorrelated
from lamps_plugins.multi_view_clustering._deep_correlation import Correlation
from lamps_plugins.multi_view_clustering._deep_information import coherence, contrast_of_views
from lamps_plugins.multi_view_clustering._deep_losses import ddc, hsic, info_nce
from lamps_plugins.multi_view_clustering._deep_prior import (
    MixturePrior,
    gaussian_kl,
    gaussian_log_density,
)
from lamps_plugins.multi_view_clustering._deep_start import spread_within, start_centres
from lamps_plugins.multi_view_clustering._deep_views import batches, n_batches
from lamps_plugins.multi_view_clustering.completer import mutual_information_loss
from torch.distributions import Independent, Normal, kl_divergence

from lamps.errors import LampsWarning


@pytest.fixture(autouse=True)
def _seed():
    with seeded(np.random.default_rng(0)):
        yield


def prior(k: int = 3, q: int = 2) -> MixturePrior:
    made = MixturePrior(k, q)
    with torch.no_grad():
        for weight in made.parameters():
            weight.copy_(0.5 * torch.randn_like(weight))
    return made


def test_gaussian_formulas_are_those_of_torch():
    a, b, x = torch.rand(4, 3) + 0.2, torch.rand(4, 3) + 0.2, torch.randn(4, 3)
    one, two = Independent(Normal(x, a), 1), Independent(Normal(x + 0.3, b), 1)
    torch.testing.assert_close(gaussian_kl(x, a**2, x + 0.3, b**2), kl_divergence(one, two))
    torch.testing.assert_close(gaussian_log_density(x + 0.1, x, a), one.log_prob(x + 0.1))


def test_responsibilities_are_posterior_shares():
    p, z = prior(), torch.randn(5, 2)
    dense = torch.stack(
        [gaussian_log_density(z, p.means[k], p.std[k]).exp() for k in range(3)], 1
    ) * p.logits.softmax(0)
    torch.testing.assert_close(p.log_responsibilities(z).exp(), dense / dense.sum(1, keepdim=True))
    far = p.log_responsibilities(1e4 * torch.ones(1, 2))
    assert bool(torch.isfinite(far).all())


def test_the_penalty_of_one_component_is_its_kl():
    p = prior(k=1)
    mean, var = torch.randn(4, 2), torch.rand(4, 2) + 0.1
    got = p.penalty(mean, var, p.log_responsibilities(mean))
    torch.testing.assert_close(got, gaussian_kl(mean, var, p.means[0], p.std[0] ** 2))


def test_a_prior_starts_where_it_is_told():
    p = MixturePrior(2, 3)
    p.start(torch.ones(2, 3), torch.tensor([0.5, 1.0, 2.0]))
    shares, means, stds = p.numbers()
    np.testing.assert_allclose(shares, 0.5)
    np.testing.assert_allclose(means, 1.0)
    np.testing.assert_allclose(stds[1], [0.5, 1.0, 2.0], atol=2e-3)
    assert p.smallest_share() == pytest.approx(0.5)


def test_info_nce_prefers_rows_that_match():
    a = torch.randn(40, 6)
    matched = info_nce(a, a + 0.01 * torch.randn_like(a), temperature=0.2)
    crossed = info_nce(a, a[torch.randperm(40)], temperature=0.2)
    blind = info_nce(torch.ones(40, 6), torch.ones(40, 6), temperature=0.2)
    assert float(matched) < float(blind) < float(crossed)
    assert float(blind) == pytest.approx(np.log(40))
    assert float(info_nce(a[:1], a[:1], temperature=0.2)) == 0.0


def test_contrast_uses_rows_that_show_both_views():
    z = torch.randn(30, 3, 4)
    mask = torch.ones(30, 3, dtype=torch.bool)
    mask[10:, 2] = False
    junk = torch.where(mask[:, :, None], z, 1e6)
    got = contrast_of_views(junk, mask, temperature=0.2)
    torch.testing.assert_close(got, contrast_of_views(z, mask, temperature=0.2))


def test_coherence_is_zero_where_all_views_agree():
    mean, std = torch.randn(5, 1, 2), torch.rand(5, 1, 2) + 0.1
    z, z_std = mean.expand(5, 3, 2), std.expand(5, 3, 2)
    mask = torch.ones(5, 3, dtype=torch.bool)
    got = coherence(mean[:, 0], std[:, 0] ** 2, z, z_std, mask)
    assert float(got) == pytest.approx(0.0, abs=1e-6)


def test_ddc_is_least_for_sharp_clusters_that_follow_the_code():
    labels = torch.arange(60) % 3
    hidden = 10.0 * torch.eye(3)[labels] + 0.1 * torch.randn(60, 3)
    right, wrong = torch.eye(3)[labels], torch.eye(3)[torch.randint(3, (60,))]
    blurred = torch.full((60, 3), 1.0 / 3.0)
    found = [float(ddc(a, hidden)) for a in (right, wrong, blurred)]
    assert found[0] == min(found)
    assert float(ddc(right[:1], hidden[:1])) == 0.0


def test_hsic_tells_dependence():
    a = torch.randn(200, 2)
    assert float(hsic(a, a)) == pytest.approx(1.0)
    assert float(hsic(a, a**2)) > 2.0 * float(hsic(a, torch.randn(200, 2)))


def test_completers_loss_is_least_for_equal_sharp_codes():
    sharp = torch.eye(4)[torch.arange(40) % 4]
    flat = torch.full((40, 4), 0.25)
    best = float(mutual_information_loss(sharp, sharp, alpha=1.0))
    assert best == pytest.approx(-np.log(4) - 2.0 * np.log(4), abs=1e-3)
    assert best < float(mutual_information_loss(flat, flat, alpha=1.0))


def test_structures_of_the_correlation():
    identity = Correlation("identity", 3, learned=True)
    assert torch.equal(identity()[0], torch.eye(3))
    assert not list(identity.parameters())
    one = Correlation("equicorrelated", 4, learned=False, rho=0.3)
    np.testing.assert_allclose(one()[0], equicorrelated(4, 0.3), atol=1e-6)
    one.put(equicorrelated(4, -0.2))
    np.testing.assert_allclose(one()[0], equicorrelated(4, -0.2), atol=1e-6)
    both = Correlation("per-group", 3, learned=True)
    assert both().shape == (2, 3, 3)
    full = Correlation("full", 3, learned=True)
    full.put(equicorrelated(3, 0.5))
    np.testing.assert_allclose(full().detach()[0], equicorrelated(3, 0.5), atol=1e-6)
    full.scatter()
    assert full.facts()["r_min_eigenvalue"] > 0.0


def test_pairs_never_seen_together_stay_at_zero_and_rows_that_show_them_can_be_pooled():
    full = Correlation("full", 3, learned=True)
    full.put(equicorrelated(3, 0.9))
    together = np.ones((3, 3), bool)
    together[0, 2] = together[2, 0] = False
    full.limit_to(together)
    assert float(full()[0, 0, 2].detach()) == 0.0
    assert float(torch.linalg.eigvalsh(full().detach()).min()) < 0.0
    assert float(torch.linalg.eigvalsh(full.usable()).min()) > 0.0


def test_start_falls_back_to_all_rows_and_says_so():
    rng = np.random.default_rng(0)
    latents = rng.normal(size=(40, 2, 3)).astype(np.float32)
    mask = np.ones((40, 2), bool)
    centres, fell_back = start_centres(latents, mask, 4, rng)
    assert centres.shape == (4, 3)
    assert not fell_back
    mask[:35, 0] = False
    with pytest.warns(LampsWarning, match="5 rows show all views"):
        assert start_centres(latents, mask, 4, rng)[1]


def test_spread_within_clusters():
    rng = np.random.default_rng(0)
    centres = 50.0 * np.eye(3, dtype=np.float32)
    points = centres[rng.integers(3, size=900)] + rng.normal(size=(900, 3)) * [0.5, 3.0, 4.0]
    got = spread_within(points.astype(np.float32), centres)
    np.testing.assert_allclose(got[1:], [3.0, 4.0], rtol=0.1)
    assert got[0] == pytest.approx(0.05 * points.std(), rel=0.1)  # the floor


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 300), size=st.sampled_from([1, 7, 64, 128]))
def test_batches_take_every_row_once(n, size):
    made = list(batches(n, size, np.random.default_rng(n)))
    assert sorted(torch.cat(made).tolist()) == list(range(n))
    if size > 1:
        assert len(made) == n_batches(n, size)
        assert min(map(len, made)) > 1 or n == 1
