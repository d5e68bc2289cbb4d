"""Cross-checks with the decoding of transformers: plain, prompt lookup, and an assistant."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from lamps_plugins.lossless_decoding._decode import decode
from lamps_plugins.lossless_decoding._lm import FrozenLm
from lamps_plugins.lossless_decoding.draft_lm import DraftLmDrafter
from lamps_plugins.lossless_decoding.esp import EspDrafter
from lamps_plugins.lossless_decoding.plain import PlainDrafter
from lamps_plugins.lossless_decoding.prompt_lookup import LookupDrafter

PROMPTS = ([3, 4, 5, 3, 4], [9, 1, 60, 2, 9, 1])


def generated(lm: FrozenLm, prompt: list[int], n: int, **how: Any) -> list[int]:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        found = lm.model.generate(
            torch.tensor([prompt]), max_new_tokens=n, do_sample=False, pad_token_id=0, **how
        )
    return found[0, len(prompt) :].tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_all_agree_with_generate(
    llama: FrozenLm, small_draft: FrozenLm, prompt: list[int]
) -> None:
    wanted = generated(llama, prompt, 40)
    for drafter in (
        PlainDrafter(), EspDrafter(k=2, rows=12), LookupDrafter(), DraftLmDrafter(small_draft)
    ):  # fmt: skip
        assert decode(llama, drafter, prompt, max_new=40).tokens == wanted
    assert generated(llama, prompt, 40, prompt_lookup_num_tokens=5) == wanted
    assert generated(llama, prompt, 40, assistant_model=small_draft.model) == wanted


def test_a_model_with_learned_positions_is_usable() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=61, n_embd=32, n_layer=2, n_head=4, n_positions=128,
                initializer_range=0.3, eos_token_id=None, bos_token_id=None,
            )
        ).eval()  # fmt: skip
    lm = FrozenLm(model, name="gpt2")
    wanted = generated(lm, [3, 4, 5], 30)
    assert decode(lm, EspDrafter(k=1, rows=8), [3, 4, 5], max_new=30).tokens == wanted
