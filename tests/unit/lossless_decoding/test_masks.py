"""Mask tokens: where they start, how they follow, and what teacher forcing counts."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import pytest
import torch
from lamps_plugins.lossless_decoding._decode import decode
from lamps_plugins.lossless_decoding._lm import FrozenLm
from lamps_plugins.lossless_decoding._masks import MaskTokens
from lamps_plugins.lossless_decoding._teacher import mask_hits
from lamps_plugins.lossless_decoding.esp import EspDrafter, Params, check_budget, parse_shape
from lamps_plugins.lossless_decoding.plain import PlainDrafter

from lamps.errors import ConfigError

from ._oracles import Counter


def test_inits_are_what_they_say(llama: FrozenLm) -> None:
    own = llama.embed([3, 4, 5])
    made = {
        init: MaskTokens(llama, [3, 4, 5], k=2, init=init, rate=0.1).vectors  # type: ignore[arg-type]
        for init in ("mean", "last-k", "sample", "random", "zero")
    }
    assert all(v.shape == (2, llama.width) for v in made.values())
    torch.testing.assert_close(made["mean"][0], own.mean(0))
    torch.testing.assert_close(made["last-k"], own[1:])
    torch.testing.assert_close(made["random"][0].norm(), own.mean(0).norm())
    assert not made["zero"].any()
    turned = torch.cosine_similarity(made["random"][0], own.mean(0), dim=0)
    assert abs(turned.item()) < 0.6


def test_last_k_of_a_short_prompt_repeats_its_first(llama: FrozenLm) -> None:
    made = MaskTokens(llama, [7], k=3, init="last-k", rate=0.1).vectors
    torch.testing.assert_close(made, llama.embed([7, 7, 7]))


def test_masks_follow_emitted_tokens_one_by_one(llama: FrozenLm) -> None:
    masks = MaskTokens(llama, [1, 2], k=1, init="mean", rate=0.25)
    m = llama.embed([1, 2]).mean(0)
    for token in (9, 8):
        m = m + 0.25 * (llama.embed([token])[0] - m)
    masks.follow([9, 8])
    torch.testing.assert_close(masks.vectors[0], m)


def test_a_control_does_not_follow(llama: FrozenLm) -> None:
    masks = MaskTokens(llama, [1, 2], k=1, init="random", rate=0.25)
    before = masks.vectors.clone()
    masks.follow([9, 8])
    assert torch.equal(before, masks.vectors)


def test_a_counter_foresees_everything(counter: FrozenLm) -> None:
    tokens = [i % 23 for i in range(6, 26)]
    hits = mask_hits(counter, [3, 4, 5], tokens, k=3, init="mean", rate=0.1)
    assert {hits[f"mask{i}_top1"] for i in (1, 2, 3)} == {(17.0, 17.0)}
    assert mask_hits(counter, [3], [4], k=1, init="mean", rate=0.1) == {}


def test_blank_and_repeated_aims_are_not_plain(counter: FrozenLm) -> None:
    tokens = [5, 5, 6, 7, 7, 8]
    hits = mask_hits(
        counter, [4], tokens, k=1, init="mean", rate=0.0, blank=lambda token: token == 6
    )
    assert hits["mask1_top1"][1] == 5.0
    assert hits["mask1_top1_plain"][1] == 2.0  # aims 7 and 8


def test_hits_are_those_of_decoding(counter: FrozenLm) -> None:
    """A tree of one node is accepted at the places at which teacher forcing counts a hit."""
    prompt, n = [5, 9, 11, 2], 30
    reference = decode(counter, PlainDrafter(), prompt, max_new=n).tokens
    lm = FrozenLm(_Forgetful(counter.model), name="forgetful")
    totals = [0.0] + [
        mask_hits(lm, prompt, reference[: i + 2], k=1, init="mean", rate=0.1)["mask1_top1"][0]
        for i in range(n - 1)
    ]
    hits = [b - a for a, b in itertools.pairwise(totals)]
    assert 0 < sum(hits) < n - 1
    lengths, at = [], 0
    while at < n - 1:
        lengths.append(2 if hits[at] else 1)
        at += lengths[-1]
    found = decode(lm, EspDrafter(k=1, rows=4, rate=0.1), prompt, max_new=n)
    assert found.tokens == reference
    assert found.lengths == lengths


class _Forgetful(Counter):
    """A counter whose masks are wrong behind every fifth token."""

    def __init__(self, whole: Counter) -> None:
        super().__init__(23)
        body = self.base_model
        inner = body.forward

        def forward(**given: Any) -> Any:
            found = inner(**given)
            x = given.get("inputs_embeds")
            if x is not None:
                answers = found.last_hidden_state
                masks = x[0].max(-1).values < 0.999
                wrong = masks & (answers[0].argmax(-1) % 5 == 0)
                answers[0, wrong] = answers[0, wrong].roll(4, -1)
            return found

        forward.__signature__ = inspect.signature(inner)  # type: ignore[attr-defined]
        body.forward = forward  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("call", "culprit"),
    [
        (lambda: check_budget(3, 6), "at least 8"),
        (lambda: check_budget(0, 6), "k is 0"),
        (lambda: EspDrafter(rate=1.5), r"\[0, 1\]"),
        (lambda: EspDrafter(k=2, rows=5), "rows is 5"),
        (lambda: parse_shape("7-x", 2, 60), "7-x"),
        (lambda: parse_shape("1-1-1", 2, 60), "up to 2"),
        (lambda: parse_shape("9", 1, 8), "at most 3"),
    ],
)
def test_budgets_that_hold_nothing_are_refused(call: object, culprit: str) -> None:
    with pytest.raises(ConfigError, match=culprit):
        call()  # type: ignore[operator]


def test_a_shape_of_ones_own_is_taken() -> None:
    assert parse_shape("7-5-3", 3, 64) == (7, 5, 3)
    assert parse_shape("", 2, 60) == (15, 4)
    assert Params().shape == ""
