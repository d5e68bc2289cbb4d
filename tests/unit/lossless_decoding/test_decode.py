"""The law: whatever is tried, the text is that of plain decoding; and what oracles must reach."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lamps_plugins.lossless_decoding._decode import Decoded, accepted_path, decode
from lamps_plugins.lossless_decoding._drafter import Draft, Drafter, Outcome
from lamps_plugins.lossless_decoding._lm import FrozenLm
from lamps_plugins.lossless_decoding._sampling import GREEDY, Sampler
from lamps_plugins.lossless_decoding._tree import Tree, layout, static_shape
from lamps_plugins.lossless_decoding.adaptive_ngram import AdaptiveDrafter
from lamps_plugins.lossless_decoding.draft_lm import DraftLmDrafter
from lamps_plugins.lossless_decoding.esp import EspDrafter
from lamps_plugins.lossless_decoding.lookahead import LookaheadDrafter
from lamps_plugins.lossless_decoding.oracle_tree import OracleDrafter
from lamps_plugins.lossless_decoding.plain import PlainDrafter
from lamps_plugins.lossless_decoding.prompt_lookup import LookupDrafter
from lamps_plugins.lossless_decoding.unigram_prior import PriorDrafter

from lamps.errors import MethodFailed, ProblemError

from ._oracles import random_llama

Make = Callable[[FrozenLm, FrozenLm], Drafter]

DRAFTERS: dict[str, Make] = {
    "esp-static": lambda lm, draft: EspDrafter(k=2, rows=12, shape=static_shape(2, 3)),
    "esp-dynamic": lambda lm, draft: EspDrafter(k=3, rows=24),
    "esp-one-mask": lambda lm, draft: EspDrafter(k=1, rows=8, rate=0.3, init="last-k"),
    "esp-hybrid": lambda lm, draft: EspDrafter(k=2, rows=20, ngrams=2, p_min=0.01),
    "esp-random": lambda lm, draft: EspDrafter(k=2, rows=12, init="random"),
    "prompt-lookup": lambda lm, draft: LookupDrafter(),
    "lookahead": lambda lm, draft: LookaheadDrafter(window=4, ngram=4, guesses=3),
    "adaptive-ngram": lambda lm, draft: AdaptiveDrafter(rows=12),
    "unigram-prior": lambda lm, draft: PriorDrafter(rows=12),
    "bigram-prior": lambda lm, draft: PriorDrafter(rows=8, order=2, depth=4),
    "draft-lm": lambda lm, draft: DraftLmDrafter(draft, ahead=3),
    "own-draft": lambda lm, draft: DraftLmDrafter(lm, ahead=3),
}
SAMPLED = Sampler(temperature=1.5, top_p=0.9, seed=5)
PROMPTS = ([7], [1, 2, 3, 1, 2, 3, 1, 2], [40, 3, 9, 9, 9, 40, 3, 11, 60, 5])


def plain(lm: FrozenLm, prompt: Sequence[int], n: int, sampler: Sampler = GREEDY) -> Decoded:
    return decode(lm, PlainDrafter(), prompt, max_new=n, sampler=sampler)


@pytest.mark.parametrize("sampler", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("name", DRAFTERS)
def test_no_drafter_changes_a_token(
    name: str, sampler: Sampler, llama: FrozenLm, small_draft: FrozenLm
) -> None:
    for prompt in PROMPTS:
        found = decode(
            llama, DRAFTERS[name](llama, small_draft), prompt, max_new=40, sampler=sampler
        )
        assert found.tokens == plain(llama, prompt, 40, sampler).tokens
        assert sum(found.lengths) == 39
        assert found.calls <= 39


@pytest.mark.parametrize("sampler", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_plain_decoding_is_one_full_pass_a_token(llama: FrozenLm, sampler: Sampler) -> None:
    text = [5, 9, 2]
    for _ in range(12):
        with torch.inference_mode():
            logits = llama.model(input_ids=torch.tensor([text])).logits[0, -1:]
        text += sampler.choose(logits, [len(text)])
    assert plain(llama, text[:3], 12, sampler).tokens == text[3:]


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("tree", ["static", "dynamic"])
def test_a_counter_emits_k_and_one_tokens_a_call(counter: FrozenLm, k: int, tree: str) -> None:
    shape = (1,) * k if tree == "static" else None
    rows = (k + 1) * (k + 1)
    n = 1 + 6 * (k + 1)
    found = decode(counter, EspDrafter(k=k, rows=rows, shape=shape), [3, 4, 5, 6], max_new=n)
    assert found.tokens == [(7 + i) % 23 for i in range(n)]
    assert found.lengths == [k + 1] * 6
    assert found.calls == math.ceil((n - 1) / (k + 1))
    assert found.rows == found.calls * rows


def test_masks_that_answer_one_place_off_are_never_accepted(counter: FrozenLm) -> None:
    """The control of the test above: what mask 2 says is wrong at depth 1."""

    class Off(EspDrafter):
        def observe(self, outcome: Outcome) -> None:
            super().observe(outcome)
            self._logits = self._logits.roll(-1, 0)

    found = decode(counter, Off(k=2, rows=9, shape=(1, 1)), [3, 4, 5, 6], max_new=13)
    assert found.tokens == [(7 + i) % 23 for i in range(13)]
    assert found.calls == 12


def test_an_oracle_emits_depth_and_one_tokens_a_call(llama: FrozenLm) -> None:
    reference = plain(llama, [1, 2, 3], 41)
    oracle = OracleDrafter(depth=4)
    oracle.foresee(reference.tokens)
    found = decode(llama, oracle, [1, 2, 3], max_new=41)
    assert found.tokens == reference.tokens
    assert found.lengths == [5] * 8


def test_a_model_is_its_own_perfect_draft(llama: FrozenLm) -> None:
    for sampler in (GREEDY, SAMPLED):
        found = decode(llama, DraftLmDrafter(llama, ahead=3), [1, 2], max_new=21, sampler=sampler)
        assert found.lengths == [4] * 5
        # Three single rows a call, and one more where the last word had not been read.
        assert found.extra_rows == 3 * 5 + 4


def test_a_full_draft_model_falls_silent(llama: FrozenLm) -> None:
    short = FrozenLm(random_llama(width=16, layers=1, seed=1))
    short.context = 16
    wanted = plain(llama, [1, 2], 30).tokens
    assert decode(llama, DraftLmDrafter(short, ahead=3), [1, 2], max_new=30).tokens == wanted
    with pytest.raises(ProblemError, match="context of 16"):
        decode(llama, DraftLmDrafter(short, ahead=3), [1] * 16, max_new=4)


def test_a_repeating_text_is_copied_whole(counter: FrozenLm) -> None:
    prompt = [i % 23 for i in range(60)]
    found = decode(counter, LookupDrafter(copied=10), prompt, max_new=1 + 44)
    assert found.lengths == [11] * 4


def test_lookahead_learns_the_rule_of_a_counter(counter: FrozenLm) -> None:
    prompt = [20, 21, 22]
    found = decode(
        counter,
        LookaheadDrafter(window=6, ngram=3, guesses=4, prompt_pool=False),
        prompt,
        max_new=60,
    )
    assert found.tokens == [i % 23 for i in range(60)]
    assert found.calls < 40


def test_siblings_may_stand_in_any_order(llama: FrozenLm) -> None:
    truth = plain(llama, [4, 4, 8], 30).tokens
    rng = np.random.default_rng(0)

    class Shuffled(Drafter):
        reach = 2

        def begin(self, lm: FrozenLm, prompt: Sequence[int], sampler: Sampler) -> Draft:
            self.at = 0
            return Draft()

        def observe(self, outcome: Outcome) -> None:
            self.at += len(outcome.emitted)

        def propose(self) -> Draft:
            right = [*truth[self.at : self.at + 2], 0, 0][:2]
            tokens = [right[0], (right[0] + 1) % 61, (right[0] + 2) % 61]
            order = rng.permutation(3)
            first = int(np.flatnonzero(order == 0)[0]) + 1
            return Draft([*(tokens[i] for i in order), right[1]], [0, 0, 0, first])

    found = decode(llama, Shuffled(), [4, 4, 8], max_new=30)
    assert found.tokens == truth
    assert set(found.lengths[:-1]) == {3}


def test_a_chain_is_a_tree_like_any_other(llama: FrozenLm) -> None:
    """[1, 1] by the static rule and by the dynamic one with the same nodes."""
    chain = decode(llama, EspDrafter(k=2, rows=9, shape=(1, 1)), [5, 6, 7, 8], max_new=30)
    generic = decode(llama, _Chained(k=2, rows=9), [5, 6, 7, 8], max_new=30)
    assert (chain.tokens, chain.lengths) == (generic.tokens, generic.lengths)


class _Chained(EspDrafter):
    """The best node of each depth, put together by hand."""

    def propose(self) -> Draft:
        (first, second) = self._levels()
        a = next(t for t in first[0] if t != self._root)
        b = next(t for t in second[0] if t != a)
        return self._with_masks(Tree([a, b], [0, 1]))


def test_masks_change_nothing_that_is_verified(llama: FrozenLm) -> None:
    prompt, nodes, parents = [5, 1, 9, 9], [7, 8, 3], (0, 1, 0)
    with torch.inference_mode():
        found = []
        for probes in (False, True):
            cache = llama.new_cache(32)
            llama.prompt_states(llama.embed(prompt), layout(()), cache)
            embeds = llama.embed([2, *nodes])
            above = parents
            if probes:
                embeds = torch.cat([embeds, torch.full((8, llama.width), 0.7)])
                above = (*parents, 0, 4, 1, 6, 2, 8, 3, 10)
            found.append(llama.logits(llama.states(embeds, layout(above), 4, cache)[:4]))
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=0)


def test_a_gathered_cache_equals_a_full_pass(llama: FrozenLm) -> None:
    """Fifty rounds of random trees of which random paths are accepted."""
    rng = np.random.default_rng(3)
    text = [1, 2, 3]
    with torch.inference_mode():
        cache = llama.new_cache(4)
        llama.prompt_states(llama.embed(text[:-1]), layout(()), cache)
        for _ in range(50):
            n = int(rng.integers(1, 7))
            tokens = rng.integers(0, 61, n).tolist()
            parents = [int(rng.integers(0, row)) for row in range(1, n + 1)]
            start = len(text) - 1
            states = llama.states(
                llama.embed([text[-1], *tokens]), layout(tuple(parents)), start, cache
            )
            path: list[int] = []
            row = int(rng.integers(0, n + 1))
            while row:
                path.insert(0, row)
                row = parents[row - 1]
            accepted = [tokens[row - 1] for row in path]
            cache.keep(start, (0, *path))
            text += accepted
            whole = llama.model(input_ids=torch.tensor([text])).logits[0, -1]
            own = llama.logits(states[path[-1] if path else 0])
            torch.testing.assert_close(own, whole, atol=2e-4, rtol=1e-4)
            text.append(int(rng.integers(0, 61)))
            text = text[:]
            assert cache.length == len(text) - 1


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_stop_inside_a_path_ends_the_text(counter: FrozenLm, place: int) -> None:
    stop = {(7 + place) % 23}
    found = decode(
        counter, EspDrafter(k=2, rows=9, shape=(1, 1)), [4, 5, 6], max_new=20, stop=stop
    )
    assert found.tokens == [7 + i for i in range(place + 1)]


@given(st.integers(1, 12))
@settings(max_examples=12)
def test_max_new_is_kept_inside_a_path(counter: FrozenLm, n: int) -> None:
    found = decode(counter, EspDrafter(k=3, rows=16), [4, 5, 6], max_new=n)
    assert found.tokens == [(7 + i) % 23 for i in range(n)]


def test_extra_rows_of_keys_and_values_are_told(llama: FrozenLm) -> None:
    found = decode(llama, EspDrafter(k=1, rows=8), [1, 2, 3], max_new=10)
    # keys and values, 2 layers, 2 heads of width 8, 4 bytes
    assert llama.row_bytes == 2 * 2 * 2 * 8 * 4
    assert found.extra_kv_bytes == 7 * llama.row_bytes
    assert plain(llama, [1, 2, 3], 10).extra_kv_bytes == 0


def test_the_path_ends_where_no_child_is_right() -> None:
    draft = Draft(tokens=[7, 8, 9, 5], parents=[0, 0, 2, 3])
    assert accepted_path(draft, [8, 0, 9, 4, 0]) == [2, 3]
    assert accepted_path(draft, [1, 8, 9, 5, 0]) == []


@pytest.mark.parametrize(
    ("prompt", "max_new", "culprit"),
    [
        ([], 4, "empty"),
        ([61], 4, "token 61"),
        ([1] * 500, 20, "context of 512"),
        ([1], 0, "max_new"),
    ],
)
def test_what_cannot_be_continued_is_refused(
    llama: FrozenLm, prompt: list[int], max_new: int, culprit: str
) -> None:
    with pytest.raises(ProblemError, match=culprit):
        decode(llama, EspDrafter(), prompt, max_new=max_new)


def test_the_tree_counts_towards_the_context(llama: FrozenLm) -> None:
    decode(llama, PlainDrafter(), [1] * 500, max_new=12)
    with pytest.raises(ProblemError, match=r"12 new \+ 4 of the tree"):
        decode(llama, EspDrafter(k=2, rows=9), [1] * 500, max_new=12)


def test_broken_weights_are_named() -> None:
    broken = FrozenLm(random_llama(width=16, layers=1))
    broken.model.model.norm.weight.data[3] = float("nan")
    with pytest.raises(MethodFailed, match="not finite"):
        decode(broken, PlainDrafter(), [1, 2], max_new=4)
