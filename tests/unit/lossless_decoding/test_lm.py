"""Which models are usable: tried out when they are opened, refused by name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lamps_plugins.lossless_decoding._lm import FrozenLm, refuse_config

from lamps.errors import ProblemError

from ._oracles import Counter, random_llama


def body_of(model: Any) -> Any:
    return model.base_model


def test_a_body_without_embeddings_is_refused() -> None:
    model = Counter(11)

    def forward(input_ids: Any = None, position_ids: Any = None, cache: Any = None) -> Any:
        raise AssertionError

    body_of(model).forward = forward
    with pytest.raises(ProblemError, match="takes no inputs_embeds"):
        FrozenLm(model, name="blind")


def test_a_model_that_ignores_the_mask_is_refused() -> None:
    model = Counter(11)
    inner = body_of(model).forward

    def forward(
        input_ids: Any = None, inputs_embeds: Any = None, position_ids: Any = None,
        attention_mask: Any = None, cache: Any = None, use_cache: bool = True,
    ) -> Any:  # fmt: skip
        return inner(input_ids, inputs_embeds, position_ids, None, cache, use_cache)

    body_of(model).forward = forward
    with pytest.raises(ProblemError, match="given mask and positions"):
        FrozenLm(model, name="stubborn")


def test_a_head_that_scales_its_logits_elsewhere_is_refused() -> None:
    model = random_llama()
    plain = model.forward

    def forward(*args: Any, **given: Any) -> Any:
        found = plain(*args, **given)
        found.logits = 0.5 * found.logits
        return found

    model.forward = forward
    with pytest.raises(ProblemError, match="differ by"):
        FrozenLm(model)


def test_broken_weights_are_refused() -> None:
    model = random_llama()
    model.lm_head.weight.data[3, 0] = float("inf")
    with pytest.raises(ProblemError, match="not finite"):
        FrozenLm(model, name="broken")


@pytest.mark.parametrize(
    ("config", "culprit"),
    [
        ({"model_type": "t5", "is_encoder_decoder": True}, "encoder-decoder"),
        ({"model_type": "mpt"}, "ALiBi"),
        ({"model_type": "falcon", "alibi": True}, "ALiBi"),
        ({"model_type": "mistral", "sliding_window": 4096}, "window of 4096"),
        ({"model_type": "gemma", "layer_types": ["sliding_attention"]}, "sliding window"),
    ],
)  # fmt: skip
def test_configs_that_cannot_verify_trees_are_refused(
    config: dict[str, Any], culprit: str
) -> None:
    with pytest.raises(ProblemError, match=culprit):
        refuse_config(SimpleNamespace(**config), "the model")


def test_a_window_that_is_switched_off_is_fine() -> None:
    config = {"model_type": "qwen2", "sliding_window": 9, "use_sliding_window": False}
    refuse_config(SimpleNamespace(**config), "the model")
    full = {"model_type": "qwen2", "sliding_window": 9, "layer_types": ["full_attention"]}
    refuse_config(SimpleNamespace(**full), "the model")


def test_float64_is_kept() -> None:
    lm = FrozenLm(random_llama().double())
    assert lm.dtype == torch.float64
    assert lm.row_bytes == 2 * 2 * 2 * 8 * 8
