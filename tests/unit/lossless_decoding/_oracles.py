"""Models whose answers are known: a counter that also answers masks, and an untrained Llama."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn


class _Body(nn.Module):
    def __init__(self, vocabulary: int, step: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, vocabulary)
        self.table.weight.data = torch.eye(vocabulary)
        self.step = step

    def forward(
        self,
        input_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        position_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        cache: Any = None,
        use_cache: bool = True,
    ) -> Any:
        x = self.table(input_ids) if inputs_embeds is None else inputs_embeds
        rows, size = x.shape[1], x.shape[2]
        at = torch.arange(rows)[None] if position_ids is None else position_ids
        keys = torch.cat([x, at[..., None].to(x)], dim=-1)[:, None]
        if cache is not None:
            keys, _ = cache.update(keys, keys, 0)
        held = keys.shape[2]
        if attention_mask is not None:
            sees = attention_mask[0, 0] == 0
        else:
            sees = torch.ones(rows, held, dtype=torch.bool).tril(held - rows)
        tokens, places = keys[0, 0, :, :size], keys[0, 0, :, size]
        real = tokens.max(-1).values > 0.999
        # Of the tokens that a row sees, the one that stands last; masks are none.
        last = torch.where(sees & real, places, -1.0).max(-1)
        ahead = at[0] - last.values
        answer = (tokens[last.indices].argmax(-1) + self.step * (ahead + 1)).long() % size
        return SimpleNamespace(last_hidden_state=10.0 * nn.functional.one_hot(answer, size)[None])


class Counter(nn.Module):
    """Continues a with a + 1; a mask i places behind token a answers a + i + 1.

    Looks at nothing but what mask, positions and cache let it see.
    """

    def __init__(self, vocabulary: int, step: int = 1) -> None:
        super().__init__()
        self.base_model = _Body(vocabulary, step)
        self.head = nn.Linear(vocabulary, vocabulary, bias=False)
        self.head.weight.data = torch.eye(vocabulary)
        self.config = SimpleNamespace(
            model_type="counter", num_hidden_layers=1, eos_token_id=None,
            max_position_embeddings=512,
        )  # fmt: skip
        self.generation_config = SimpleNamespace(eos_token_id=None)

    def get_input_embeddings(self) -> nn.Module:
        return self.base_model.table

    def get_output_embeddings(self) -> nn.Module:
        return self.head

    def forward(self, input_ids: Tensor) -> Any:
        states = self.base_model(input_ids=input_ids).last_hidden_state
        return SimpleNamespace(logits=self.head(states.float()))


def random_llama(
    *, vocabulary: int = 61, width: int = 32, layers: int = 2, seed: int = 0, **more: Any
) -> Any:
    """An untrained Llama with large weights, so that its answers are far apart."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=2 * width,
        num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2,
        initializer_range=0.3, max_position_embeddings=512, eos_token_id=None, bos_token_id=None,
        **more,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()
