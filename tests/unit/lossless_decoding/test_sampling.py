"""Sampling is an exact draw, and the same one for every way of decoding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lamps_plugins.lossless_decoding._decode import decode
from lamps_plugins.lossless_decoding._lm import FrozenLm
from lamps_plugins.lossless_decoding._sampling import GREEDY, Sampler
from lamps_plugins.lossless_decoding.esp import EspDrafter
from scipy.stats import chisquare

from lamps.errors import ConfigError, MethodFailed

from ._oracles import Counter


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 1.0), (1.0, 0.8)])
def test_draws_have_the_distribution_of_the_softmax(temperature: float, top_p: float) -> None:
    logits = torch.tensor([[1.0, 0.2, -0.5, 2.0, -3.0]])
    p = (logits[0].double() / temperature).softmax(0).numpy()
    if top_p < 1.0:
        order = np.argsort(-p)
        kept = order[: int(np.searchsorted(np.cumsum(p[order]), top_p)) + 1]
        p = np.where(np.isin(np.arange(5), kept), p, 0.0)
        p /= p.sum()
    n = 4000
    counts = np.zeros(5)
    for seed in range(n):
        counts[
            Sampler(temperature=temperature, top_p=top_p, seed=seed).choose(logits, [3])[0]
        ] += 1
    possible = p > 0
    assert counts[~possible].sum() == 0
    assert chisquare(counts[possible], n * p[possible]).pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_tokens_of_five_are_drawn_exactly() -> None:
    """The distribution of the first two tokens over 50,000 texts decoded with trees."""
    model = Counter(5, step=0)  # its state names the last token, whatever came before
    table = torch.from_numpy(np.random.default_rng(2).normal(size=(5, 5))).float()
    model.head.weight.data = table.T / 10.0
    lm = FrozenLm(model, name="chain")
    chances = table.double().softmax(-1)
    exact = (chances[2][:, None] * chances).flatten().numpy()
    n = 50_000
    seen = np.zeros(25)
    accepted = 0
    for seed in range(n):
        sampler = Sampler(temperature=1.0, seed=seed)
        # Three tokens, so that a call may accept the second and the third is its bonus.
        found = decode(lm, EspDrafter(k=1, rows=10), [1, 2], max_new=3, sampler=sampler)
        seen[5 * found.tokens[0] + found.tokens[1]] += 1
        accepted += found.lengths[0] == 2
    assert accepted > n / 4
    assert n * exact.min() >= 5
    assert chisquare(seen, n * exact).pvalue > 0.01


@given(st.integers(0, 2**40), st.integers(0, 2**20))
def test_noise_depends_on_seed_and_place_alone(seed: int, position: int) -> None:
    logits = torch.zeros(3, 11)
    sampler = Sampler(temperature=1.0, seed=seed)
    a, b, c = sampler.choose(logits, [position, position + 1, position])
    assert a == c
    assert sampler.choose(logits[:1], [position + 1]) == [b]


def test_greedy_is_the_limit_of_sampling() -> None:
    logits = torch.tensor([[0.3, 2.0, 1.0]])
    assert GREEDY.choose(logits, [0]) == [1]
    assert Sampler(temperature=1e-4, seed=3).choose(logits, [0]) == [1]
    assert Sampler(temperature=5.0, top_p=1e-6, seed=3).choose(logits, [0]) == [1]


@pytest.mark.parametrize(
    ("values", "culprit"),
    [({"temperature": -0.1}, "temperature"), ({"temperature": float("nan")}, "temperature"),
     ({"top_p": 0.0}, "top_p"), ({"top_p": 1.1}, "top_p"), ({"seed": -1}, "seed")],
)  # fmt: skip
def test_settings_out_of_range_are_refused(values: dict[str, float], culprit: str) -> None:
    with pytest.raises(ConfigError, match=culprit):
        Sampler(**values)  # type: ignore[arg-type]


def test_logits_that_are_no_numbers_are_refused() -> None:
    logits = torch.tensor([[0.0, float("nan")]])
    for sampler in (GREEDY, Sampler(temperature=1.0)):
        with pytest.raises(MethodFailed, match="position 4"):
            sampler.choose(logits, [4])
