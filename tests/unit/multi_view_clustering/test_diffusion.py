"""Diffusion: schedule, sampler, guidance, and that a view's network never sees the view in z."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.epochs import seeded
from lamps_plugins.multi_view_clustering._deep_disentangled import DisentangledNets, Posteriors
from lamps_plugins.multi_view_clustering._diffusion_denoiser import Denoiser, time_features
from lamps_plugins.multi_view_clustering._diffusion_imputer import (
    Codes,
    Imputer,
    Settings,
    without,
)
from lamps_plugins.multi_view_clustering._diffusion_schedule import (
    cosine_levels,
    ddim,
    noise_levels,
    noised,
)

from lamps.errors import ConfigError, LampsWarning


@pytest.fixture(autouse=True)
def _seed():
    with seeded(np.random.default_rng(0)):
        yield


@pytest.mark.parametrize("steps", [50, 100, 200])
def test_the_cosine_schedule_falls_to_pure_noise(steps):
    levels = cosine_levels(steps)
    assert len(levels) == steps + 1
    assert float(levels[0]) == 1.0
    assert bool((levels.diff() < 0.0).all())
    assert float(levels[-1]) < 0.01


def test_a_schedule_that_does_not_reach_noise_is_refused():
    with pytest.raises(ConfigError, match=r"ends with abar 0\.36"):
        noise_levels(torch.linspace(1e-4, 0.02, 100, dtype=torch.float64))


def test_noising_keeps_the_variance_of_standardised_data():
    levels, x = cosine_levels(100), torch.randn(20_000, 1)
    for t in (1, 30, 70, 100):
        got = noised(x, torch.full((20_000,), t), torch.randn_like(x), levels)
        assert float(got.var()) == pytest.approx(1.0, abs=0.05)


def test_ddim_with_the_exact_noise_gives_the_data_back():
    levels, truth = cosine_levels(200), torch.randn(5, 3).clamp(-3, 3)

    def exact(x, t):
        kept = levels[t][:, None]
        return (x - kept.sqrt() * truth) / (1.0 - kept).sqrt()

    got = ddim(exact, torch.randn(5, 3), levels, steps=20)
    torch.testing.assert_close(got, truth, atol=1e-3, rtol=1e-3)


def test_ddim_finds_a_gaussian_from_its_exact_noise():
    levels, mean, std = cosine_levels(200), 1.5, 0.4

    def exact(x, t):  # E[eps | x_t] for x_0 ~ N(mean, std^2)
        kept = levels[t][:, None]
        var = kept * std**2 + 1.0 - kept
        return (1.0 - kept).sqrt() * (x - kept.sqrt() * mean) / var

    got = ddim(exact, torch.randn(20_000, 1), levels, steps=50)
    assert float(got.mean()) == pytest.approx(mean, abs=0.03)
    assert float(got.std()) == pytest.approx(std, rel=0.1)


def test_ddim_is_deterministic_given_its_start():
    net, levels, start = Denoiser(3, 2, 16), cosine_levels(50), torch.randn(4, 3)
    condition = torch.randn(4, 2)
    with torch.no_grad():
        runs = [
            ddim(lambda x, t: net.guided(x, t, condition, 1.5), start, levels, steps=10)
            for _ in range(2)
        ]
    assert torch.equal(*runs)


def test_guidance_one_is_the_condition_alone_and_zero_is_none():
    net, x, t = Denoiser(3, 2, 16), torch.randn(4, 3), torch.tensor([1, 2, 3, 4])
    condition, yes = torch.randn(4, 2), torch.ones(4, dtype=torch.bool)
    torch.testing.assert_close(net.guided(x, t, condition, 1.0), net(x, t, condition, yes))
    torch.testing.assert_close(net.guided(x, t, condition, 0.0), net(x, t, condition, ~yes))
    other = net(x, t, condition + 1.0, ~yes)
    torch.testing.assert_close(net(x, t, condition, ~yes), other)
    assert time_features(t).shape == (4, 64)


AGGREGATORS = ["mixture", "barycentre", "poe", "moe", "correlated"]


@pytest.mark.parametrize("aggregator", AGGREGATORS)
def test_the_condition_of_a_view_does_not_see_the_view(aggregator):
    nets = DisentangledNets(
        (4, 5, 6), (8,), shared=3, own=2, aggregator=aggregator, subsets="singles+full"
    )
    views = tuple(torch.randn(10, d) for d in (4, 5, 6))
    mask = torch.ones(10, 3, dtype=torch.bool)
    mask[:4, 2] = False
    changed = (views[0], 1e3 * torch.randn(10, 5), views[2])
    with torch.no_grad():
        one = without(nets, nets.encode(views), mask, 1)
        two = without(nets, nets.encode(changed), mask, 1)
        whole = nets.consensus(nets.encode(views), mask)
        leaking = nets.consensus(nets.encode(changed), mask)
    assert torch.equal(one, two)
    assert not torch.allclose(whole, leaking)  # without leaving it out the view would be seen


def test_leaving_a_view_out_is_what_a_row_without_it_gives():
    nets = DisentangledNets(
        (4, 5), (8,), shared=3, own=0, aggregator="mixture", subsets="singles+full"
    )
    views = tuple(torch.randn(10, d) for d in (4, 5))
    mask = torch.ones(10, 2, dtype=torch.bool)
    lacking = mask.clone()
    lacking[:, 1] = False
    with torch.no_grad():
        said = nets.encode(views)
        assert isinstance(said, Posteriors)
        torch.testing.assert_close(without(nets, said, mask, 1), nets.consensus(said, lacking))


def test_codes_of_narrow_views_are_the_views_and_wide_ones_come_back_nearly():
    narrow, x = Codes(5), torch.randn(30, 5)
    narrow.fit(x)
    assert torch.equal(narrow.code(x), x)
    wide = Codes(300)
    x = torch.randn(400, 20) @ torch.randn(20, 300) + 3.0
    wide.fit(x)
    code = wide.code(x)
    assert code.shape == (400, 256)
    torch.testing.assert_close(wide.back(code), x, atol=1e-2, rtol=1e-2)
    torch.testing.assert_close(code[:, :20].std(0), torch.ones(20), atol=0.05, rtol=0.05)


def settings_of(kind: str, donors: str = "knn") -> Settings:
    return Settings(
        kind=kind, hidden=32, steps=50, ddim_steps=5, guidance=1.0, draws=3, donors=donors
    )


def two_views(n: int, shown: int) -> ViewData:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(n, 3)).astype(np.float32)
    mask = np.ones((n, 2), bool)
    mask[shown:, 1] = False
    return ViewData(names=("a", "b"), arrays=(a, a[:, :2] + 1.0), mask=mask, n_clusters=2)


@pytest.mark.parametrize("kind", ["diffusion", "regression"])
@pytest.mark.parametrize("donors", ["knn", "prior", "regressor"])
@pytest.mark.parametrize("own", [0, 2])
def test_draws_have_their_shape_and_the_twin_is_deterministic(kind, donors, own):
    data = two_views(260, 220)
    views = tuple(torch.from_numpy(np.array(a)) for a in data.arrays)
    mask = torch.from_numpy(np.array(data.mask))
    nets = DisentangledNets(
        (3, 2), (8,), shared=2, own=own, aggregator="mixture", subsets="singles+full"
    )
    imputer = Imputer([3, 2], 2 + own, settings_of(kind, donors))
    imputer.start(views, mask, data.names)
    assert set(imputer.loss(nets, views, mask, mask.sum(0))) == {0, 1}
    drawn = imputer.draw(nets, data, views, mask, draws=4, rng=np.random.default_rng(0))
    assert list(drawn) == [1]
    assert drawn[1].shape == (4, 40, 2)
    assert np.isfinite(drawn[1]).all()
    assert np.ptp(drawn[1], axis=0).max() == 0.0 or kind == "diffusion"


def test_views_of_few_rows_take_the_mean_of_their_donors_and_say_so():
    data = two_views(240, 40)
    views = tuple(torch.from_numpy(np.array(a)) for a in data.arrays)
    mask = torch.from_numpy(np.array(data.mask))
    nets = DisentangledNets((3, 2), (8,), shared=2, own=0, aggregator="barycentre", subsets="full")
    imputer = Imputer([3, 2], 2, settings_of("diffusion"))
    with pytest.warns(LampsWarning, match="view 'b' is shown by 40 rows"):
        imputer.start(views, mask, data.names)
    drawn = imputer.draw(nets, data, views, mask, draws=2, rng=np.random.default_rng(0))
    low, high = data.arrays[1][:40].min(0), data.arrays[1][:40].max(0)
    assert bool(((drawn[1] >= low) & (drawn[1] <= high)).all())
