"""Diffusion: schedule, sampler, guidance, and that a view's network never sees the view in z."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.epochs import seeded
from lamps_plugins.multi_view_clustering._deep_disentangled import DisentangledNets, Posteriors
from lamps_plugins.multi_view_clustering._deep_views import Tensors
from lamps_plugins.multi_view_clustering._diffusion_denoiser import Denoiser, time_features
from lamps_plugins.multi_view_clustering._diffusion_imputer import (
    Codes,
    Imputer,
    Settings,
    without,
)
from lamps_plugins.multi_view_clustering._diffusion_schedule import (
    BOUND,
    clean_of,
    cosine_levels,
    ddim,
    noise_levels,
    noise_of,
    noised,
    told_of,
)
from lamps_plugins.multi_view_clustering._diffusion_training import (
    DECAY,
    examples,
    follow,
    view_loss,
)
from lamps_plugins.multi_view_clustering._replications._generators import (
    conditional_draws,
    known_factors,
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


PREDICT = ["v", "x0", "noise"]


@pytest.mark.parametrize("predict", PREDICT)
def test_what_is_told_and_what_is_clean_invert_each_other(predict):
    levels, t = cosine_levels(200).double(), torch.arange(1, 201)
    clean, noise = torch.randn(2, 200, 3, dtype=torch.float64)
    x = noised(clean, t, noise, levels)
    told = told_of(clean, noise, t, levels, predict)
    back = clean_of(told, x, t, levels, predict)
    torch.testing.assert_close(back, clean, atol=1e-6, rtol=0.0)
    torch.testing.assert_close(noise_of(back, x, t, levels), noise, atol=1e-6, rtol=0.0)
    again = told_of(back, noise_of(back, x, t, levels), t, levels, predict)
    torch.testing.assert_close(again, told, atol=1e-6, rtol=0.0)


def test_an_error_of_v_is_never_made_larger_and_one_of_the_noise_is():
    levels, t = cosine_levels(200), torch.arange(1, 201)
    x, told = torch.randn(2, 200, 3)

    def factors(predict):
        gap = clean_of(told + 1.0, x, t, levels, predict) - clean_of(told, x, t, levels, predict)
        return gap.abs()

    assert float(factors("v").max()) <= 1.0 + 1e-5
    assert float(factors("noise").max()) > 10.0


def test_ddim_told_the_data_gives_it_back():
    levels, truth = cosine_levels(200), torch.randn(5, 3).clamp(-3, 3)
    got = ddim(lambda x, t: truth, torch.randn(5, 3), levels, steps=20)
    torch.testing.assert_close(got, truth)


def test_ddim_clips_wild_guesses_to_the_range_of_the_data():
    got = ddim(lambda x, t: 1e6 * x, torch.randn(50, 3), cosine_levels(200), steps=20)
    assert float(got.abs().max()) <= BOUND


@pytest.mark.parametrize("predict", PREDICT)
def test_ddim_finds_a_gaussian_with_a_perfect_denoiser(predict):
    levels, mean, std = cosine_levels(200), 1.5, 0.4

    def clean(x, t):  # what is told on average of x_t, for x_0 ~ N(mean, std^2)
        kept = levels[t][:, None]
        expected = mean + kept.sqrt() * std**2 / (kept * std**2 + 1.0 - kept) * (
            x - kept.sqrt() * mean
        )
        told = told_of(expected, noise_of(expected, x, t, levels), t, levels, predict)
        return clean_of(told, x, t, levels, predict)

    got = ddim(clean, torch.randn(20_000, 1), levels, steps=50)
    assert float(got.mean()) == pytest.approx(mean, abs=0.03)
    assert 0.9 <= float(got.var()) / std**2 <= 1.1


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
        kind=kind,
        hidden=32,
        steps=50,
        ddim_steps=5,
        predict="v",
        guidance=1.0,
        draws=3,
        donors=donors,
    )


def tensors_and_nets(data: ViewData, own: int) -> tuple[Tensors, DisentangledNets]:
    nets = DisentangledNets(
        data.dims, (8,), shared=2, own=own, aggregator="mixture", subsets="singles+full"
    )
    return Tensors(data), nets


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
    tensors, nets = tensors_and_nets(data, own)
    views, mask = tensors.views, tensors.mask
    imputer = Imputer([3, 2], 2 + own, settings_of(kind, donors))
    imputer.start(views, mask, data.names)
    assert set(examples(imputer, nets, tensors)) == {0, 1}
    drawn = imputer.draw(nets, data, views, mask, draws=4, rng=np.random.default_rng(0))
    assert list(drawn) == [1]
    assert drawn[1].shape == (4, 40, 2)
    assert np.isfinite(drawn[1]).all()
    assert np.ptp(drawn[1], axis=0).max() == 0.0 or kind == "diffusion"


def test_views_of_few_rows_take_the_mean_of_their_donors_and_say_so():
    data = two_views(240, 40)
    tensors, nets = tensors_and_nets(data, 0)
    views, mask = tensors.views, tensors.mask
    imputer = Imputer([3, 2], 2, settings_of("diffusion"))
    with pytest.warns(LampsWarning, match="view 'b' is shown by 40 rows"):
        imputer.start(views, mask, data.names)
    assert set(examples(imputer, nets, tensors)) == {0}
    drawn = imputer.draw(nets, data, views, mask, draws=2, rng=np.random.default_rng(0))
    low, high = data.arrays[1][:40].min(0), data.arrays[1][:40].max(0)
    assert bool(((drawn[1] >= low) & (drawn[1] <= high)).all())


def test_what_a_network_learns_from_does_not_see_its_view():
    data = two_views(260, 220)
    tensors, nets = tensors_and_nets(data, 2)
    imputer = Imputer([3, 2], 4, settings_of("diffusion"))
    one = examples(imputer, nets, tensors)[1]
    tensors.views[1][:] = 7.0
    two = examples(imputer, nets, tensors)[1]
    assert torch.equal(one.z, two.z)
    assert not torch.equal(one.code, two.code)
    assert len(one.code) == 220


@pytest.mark.parametrize("kind", ["diffusion", "regression"])
def test_a_perfect_condition_is_learned(kind):
    imputer = Imputer([2], 2, settings_of(kind))
    adam = torch.optim.Adam(imputer.nets.parameters(), lr=3e-3)
    losses = []
    for _ in range(300):
        code = torch.randn(64, 2)
        loss = view_loss(imputer, 0, code, code)
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(float(loss.detach()))
    assert np.mean(losses[-20:]) < 0.3 * np.mean(losses[:5])


@pytest.mark.parametrize("predict", ["v", "x0"])  # told the noise they spread 7 times too far
def test_generated_views_spread_as_known_factors_do(predict):
    """A view given its exact z, its own latent being free; after a short training."""
    factors = known_factors(2000, 0, n_views=1)
    x = torch.from_numpy(factors.views[0] / factors.views[0].std(0))
    told = torch.from_numpy(np.concatenate([factors.shared, factors.own[:, 0]], 1)).float()
    settings = dataclasses.replace(settings_of("diffusion"), predict=predict, hidden=128)
    imputer = Imputer([40], 8, dataclasses.replace(settings, ddim_steps=20))
    adam = torch.optim.Adam(imputer.nets.parameters(), lr=2e-3, fused=True)
    for k in range(400):
        rows = torch.randint(2000, (64,))
        loss = view_loss(imputer, 0, x[rows], told[rows])
        adam.zero_grad()
        loss.backward()
        adam.step()
        follow(list(imputer.averaged.parameters()), list(imputer.nets.parameters()), k)
    rows = np.arange(100)
    z = torch.from_numpy(factors.shared[rows]).float()
    with torch.no_grad():
        drawn = imputer.sample(0, z, torch.randn(20, 100, 4))
    exact = conditional_draws(factors, 0, rows, draws=200, seed=0) / factors.views[0].std(0)
    ratio = drawn.var(0).sum() / exact.var(0).sum()
    assert 0.7 <= ratio <= 1.3
    assert np.corrcoef(drawn.mean(0).ravel(), exact.mean(0).ravel())[0, 1] > 0.9


def test_averaged_weights_follow_and_do_not_learn_themselves():
    imputer = Imputer([2], 2, settings_of("diffusion"))
    averaged, weights = list(imputer.averaged.parameters()), list(imputer.nets.parameters())
    assert not any(w.requires_grad for w in averaged)
    before = [w.clone() for w in averaged]
    follow(averaged, weights, 0)  # weights that stand still are their own average
    assert all(torch.equal(a, b) for a, b in zip(averaged, before, strict=True))
    with torch.no_grad():
        for weight in weights:
            weight.add_(1.0)
    follow(averaged, weights, 10_000)
    for a, b in zip(averaged, before, strict=True):
        torch.testing.assert_close(a, b + 1.0 - DECAY)
    assert any(key.startswith("averaged.") for key in imputer.state_dict())


@pytest.mark.parametrize(
    ("name", "value"), [("kind", "gan"), ("predict", "eps"), ("donors", "nobody")]
)
def test_unknown_settings_are_refused(name, value):
    with pytest.raises(ConfigError, match=f"cannot have {name} '{value}'; expected "):
        dataclasses.replace(settings_of("diffusion"), **{name: value})
