"""Rules inside decoders of transformers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from lamps_plugins import _small_lms
from lamps_plugins.sparse_attention._decoders import loaded
from lamps_plugins.sparse_attention._interface import recorded, recording, register
from lamps_plugins.sparse_attention.unisparse import UniSparse
from lamps_plugins.sparse_attention.window_sink import WindowSink

from lamps.errors import ProblemError

N = 300


@pytest.fixture
def model() -> Iterator[Any]:
    _small_lms.load("toy")
    found = loaded(str(_small_lms.folder("toy")))
    with torch.inference_mode():
        found.set_attn_implementation("sdpa")
        yield found


def tokens(n: int = N) -> torch.Tensor:
    return torch.randint(0, 40, (1, n), generator=torch.Generator().manual_seed(0))


def everything() -> WindowSink:
    return WindowSink.from_params({"block": 64, "local": 64})


def test_keeping_everything_is_the_librarys_attention(model: Any) -> None:
    wanted = model(input_ids=tokens(), use_cache=False).logits
    model.set_attn_implementation(register(everything()))
    with recorded() as calls:
        found = model(input_ids=tokens(), use_cache=False).logits
    assert [call.density for call in calls] == [1.0, 1.0]  # one for each layer
    assert (found - wanted).abs().max() < 1e-4


def test_tau_of_one_is_the_librarys_attention(model: Any) -> None:
    wanted = model(input_ids=tokens(), use_cache=False).logits
    # The range of a search ends below 1; the rule itself does not.
    rule = UniSparse(UniSparse.Params(block=64, tau=1.0))
    model.set_attn_implementation(register(rule))
    assert (model(input_ids=tokens(), use_cache=False).logits - wanted).abs().max() < 1e-4


def test_a_sparse_rule_changes_what_a_window_hides(model: Any) -> None:
    wanted = model(input_ids=tokens(), use_cache=False).logits
    rule = WindowSink.from_params({"block": 64, "local": 1, "sink": 0})
    model.set_attn_implementation(register(rule))
    with recorded() as calls:
        found = model(input_ids=tokens(), use_cache=False).logits
    assert calls[0].density == pytest.approx(9 / 15)
    # The first two blocks see all there is.
    assert (found - wanted)[:, :128].abs().max() < 1e-4
    assert (found - wanted)[:, 192:].abs().max() > 1e-3


@pytest.mark.parametrize("first", [150, 296])
def test_prefill_in_portions_equals_prefill_at_once(model: Any, first: int) -> None:
    wanted = model(input_ids=tokens(), use_cache=False).logits
    model.set_attn_implementation(register(everything()))
    from transformers import DynamicCache

    cache = DynamicCache()
    for part in tokens().split([first, N - first], 1):
        found = model(input_ids=part, cache=cache, use_cache=True).logits
    assert (found - wanted[:, first:]).abs().max() < 1e-4


def test_generation_runs_dense_after_the_prefill(model: Any) -> None:
    wanted = model.generate(tokens(), max_new_tokens=6, do_sample=False)
    model.set_attn_implementation(register(everything()))
    with recorded() as calls:
        found = model.generate(tokens(), max_new_tokens=6, do_sample=False)
    assert torch.equal(found, wanted)
    assert len(calls) == 2  # the layers of the prefill, no step


def test_what_a_layer_was_given_is_kept(model: Any) -> None:
    from lamps_plugins.sparse_attention._interface import RECORDER

    wanted = model(input_ids=tokens(), use_cache=False).logits
    with recording(1) as kept:
        model.set_attn_implementation(RECORDER)
        found = model(input_ids=tokens(), use_cache=False).logits
    assert (found - wanted).abs().max() < 1e-4
    assert list(kept) == [1]
    assert kept[1].q.shape == (1, 2, N, 16)
    assert kept[1].k.shape == (1, 1, N, 16)


def test_masks_and_gradients_are_refused_in_one_line(model: Any) -> None:
    model.set_attn_implementation(register(everything()))
    padding = torch.ones(1, N, dtype=torch.long)
    padding[:, :9] = 0
    with pytest.raises(ProblemError, match="without padding"):
        model(input_ids=tokens(), attention_mask=padding, use_cache=False)


def test_padding_of_short_sequences_runs_dense(model: Any) -> None:
    padding = torch.ones(1, 60, dtype=torch.long)
    padding[:, :9] = 0
    given = {"input_ids": tokens(60), "attention_mask": padding, "use_cache": False}
    wanted = model(**given).logits
    model.set_attn_implementation(register(everything()))
    assert (model(**given).logits - wanted)[:, 9:].abs().max() < 1e-4


def test_training_is_refused() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=8, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, attn_implementation=register(everything()),
    )  # fmt: skip
    with torch.random.fork_rng():
        fresh = LlamaForCausalLM(config)
    with pytest.raises(ProblemError, match="Q wants a gradient"):
        fresh(input_ids=torch.zeros(1, 100, dtype=torch.long))


def test_equal_rules_have_one_name() -> None:
    a, b, c = everything(), everything(), WindowSink.from_params({"block": 64})
    assert register(a) == register(b) != register(c)


SMALL = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("Llama", SMALL | {"num_key_value_heads": 2}),
        ("Qwen3", SMALL | {"num_key_value_heads": 1, "head_dim": 8}),
        ("Mistral", SMALL | {"num_key_value_heads": 2, "sliding_window": None}),
        ("GPTNeoX", SMALL),
        ("StableLm", SMALL | {"num_key_value_heads": 4}),
    ],
)  # fmt: skip
def test_decoders_of_other_families_run(name: str, settings: dict[str, Any]) -> None:
    fresh = decoder(name, settings)
    x = tokens(200).expand(2, -1)
    wanted = fresh(input_ids=x, use_cache=False).logits
    fresh.set_attn_implementation(register(everything()))
    with recorded() as calls:
        found = fresh(input_ids=x, use_cache=False).logits
    assert len(calls) == 2
    assert (found - wanted).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("name", "settings", "culprit"),
    [
        ("Gemma2", SMALL | {"num_key_value_heads": 2, "head_dim": 8}, "softcap"),
        ("Mistral", SMALL | {"num_key_value_heads": 2, "sliding_window": 32}, "mask"),
    ],
)
def test_attention_of_other_kinds_is_refused(
    name: str, settings: dict[str, Any], culprit: str
) -> None:
    fresh = decoder(name, settings)
    fresh.set_attn_implementation(register(everything()))
    with pytest.raises(ProblemError, match=culprit):
        fresh(input_ids=tokens(200), use_cache=False)


def decoder(name: str, settings: dict[str, Any]) -> Any:
    """A decoder with random weights."""
    import transformers
    from lamps_plugins.text_classification._nets import quiet

    config = getattr(transformers, f"{name}Config")(**settings)
    with quiet():
        made = getattr(transformers, f"{name}ForCausalLM")(config)
    return made.requires_grad_(False).eval()
