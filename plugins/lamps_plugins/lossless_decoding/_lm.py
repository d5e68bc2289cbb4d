"""A frozen causal language model, asked row by row: any tree, any positions, one cache.

Models of transformers that take embeddings, positions, a 4-D mask and a cache are usable; whether
one really follows them is tried out once with a small tree, so that a model with a window, with
distances of its own (ALiBi) or with another way to logits is refused instead of decoding wrongly.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lamps.errors import ProblemError
from lamps_plugins.lossless_decoding._cache import TreeCache
from lamps_plugins.lossless_decoding._tree import Layout, layout
from lamps_plugins.text_classification._nets import device as best_device
from lamps_plugins.text_classification._nets import quiet

__all__ = ["FrozenLm", "open_lm"]

_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
"""Largest difference of logits between a tree and its paths, relative to the largest logit."""


class FrozenLm:
    """A causal language model for one text at a time.

    Args:
        model: A transformers model with a head for the next token, in evaluation mode.
        name: For messages.

    Attributes:
        vocabulary: Number of tokens, V.
        width: Size of an embedding, d.
        context: Longest text; None where the model names none.
        row_bytes: Bytes of keys and values of one token over all layers.
        parameters: Number of weights.
        stop_ids: Tokens that end a text.

    Raises:
        ProblemError: The model cannot be asked this way; the message names the reason.
    """

    def __init__(self, model: Any, *, name: str = "the model") -> None:
        config = model.config
        refuse_config(config, name)
        self.model, self.name = model, name
        self._body, self._head = model.base_model, model.get_output_embeddings()
        self._table = model.get_input_embeddings()
        known = inspect.signature(self._body.forward).parameters
        self._cache_word = "cache" if "cache" in known else "past_key_values"
        for word in ("inputs_embeds", "position_ids", "attention_mask", self._cache_word):
            if word not in known or self._head is None:
                raise ProblemError(
                    f"{name} ({config.model_type}) takes no {word}, expected a causal language "
                    "model with embeddings, positions, 4-D mask and cache"
                )
        self.vocabulary, self.width = self._table.weight.shape
        self.dtype, self.device = self._table.weight.dtype, self._table.weight.device
        context = getattr(config, "max_position_embeddings", None)
        self.context: int | None = int(context) if context else None
        self._layers = int(config.num_hidden_layers)
        self.parameters = sum(p.numel() for p in model.parameters())
        ends = getattr(model.generation_config, "eos_token_id", None)
        if ends is None:
            ends = config.eos_token_id
        self.stop_ids = frozenset([ends] if isinstance(ends, int) else ends or ())
        self.row_bytes = 0
        self._try_out()

    def embed(self, tokens: Sequence[int]) -> Tensor:
        """Input embeddings. Shape: [n, d]."""
        found: Tensor = self._table(torch.tensor(tokens, device=self.device))
        return found

    def table_moments(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of all input embeddings. Shape: [d] each."""
        weight = self._table.weight.detach()
        return weight.mean(0), weight.std(0)

    def new_cache(self, room: int) -> TreeCache:
        """An empty cache."""
        return TreeCache(self._layers, room)

    def states(self, embeds: Tensor, plan: Layout, start: int, cache: TreeCache) -> Tensor:
        """Hidden states of rows whose root stands at position ``start``; the cache grows by them.

        Args:
            embeds: Embeddings of the rows. Shape: [rows, d].
            plan: Who sees whom.
            start: Position of the root; the cache holds as many rows.
            cache: What came before.

        Returns:
            Hidden states. Shape: [rows, d].
        """
        positions = torch.from_numpy(plan.depth).to(self.device) + start
        # One row sees all there is, so it needs no mask.
        mask = plan.mask(start, self.dtype, self.device) if len(plan.depth) > 1 else None
        return self._forward(embeds, positions, mask, cache)

    def prompt_states(self, embeds: Tensor, plan: Layout, cache: TreeCache) -> Tensor:
        """Hidden states of a prompt whose last token is the root of a layout of probes.

        Args:
            embeds: Of the prompt, then of the probes. Shape: [t + m, d].
            plan: Root and m probes.
            cache: An empty one.

        Returns:
            Hidden states. Shape: [t + m, d].
        """
        probes = len(plan.depth) - 1
        t = len(embeds) - probes
        positions = torch.arange(t + probes, device=self.device)
        if not probes:
            return self._forward(embeds, positions, None, cache)
        positions[t:] = torch.from_numpy(plan.depth[1:]).to(self.device) + t - 1
        mask = torch.full((t + probes, t + probes), float("-inf"), dtype=self.dtype)
        mask = mask.triu_(1).to(self.device)
        mask[t:, t - 1 :] = plan.mask(0, self.dtype, self.device)[1:]
        return self._forward(embeds, positions, mask, cache)

    def _forward(
        self, embeds: Tensor, positions: Tensor, mask: Tensor | None, cache: TreeCache
    ) -> Tensor:
        found = self._body(
            inputs_embeds=embeds[None],
            position_ids=positions[None],
            attention_mask=None if mask is None else mask[None, None],
            use_cache=True,
            **{self._cache_word: cache},
        )
        states: Tensor = found.last_hidden_state[0]
        return states

    def logits(self, states: Tensor) -> Tensor:
        """Logits of hidden states. Shape: [..., V]."""
        found: Tensor = self._head(states)
        return found

    def _try_out(self) -> None:
        """Compare a tree behind a cache with plain passes over its paths."""
        a, b, c, d = (i % self.vocabulary for i in (1, 2, 3, 5))
        with torch.inference_mode():
            plain = [
                self.model(input_ids=torch.tensor([path], device=self.device)).logits[0, -1]
                for path in ([a, b], [a, b, c], [a, b, d], [a, b, c, d])
            ]
            cache = self.new_cache(2)
            self.prompt_states(self.embed([a]), layout(()), cache)
            rows = self.embed([b, c, d, d])
            found = self.logits(self.states(rows, layout((0, 0, 1)), 1, cache))
            cache.keep(1, [0, 2])
            after = self.states(self.embed([c]), layout(()), 3, cache)
            wanted = self.model(input_ids=torch.tensor([[a, b, d, c]], device=self.device))
            pairs = [
                *zip(found, plain, strict=True),
                (self.logits(after)[0], wanted.logits[0, -1]),
            ]
        layer = cache.layers[0]
        self.row_bytes = 2 * layer.keys[0, :, 0].numel() * layer.keys.element_size() * self._layers
        largest = max(float(p.abs().max()) for p in plain)
        if not math.isfinite(largest):
            raise ProblemError(
                f"{self.name} gives logits that are not finite; its weights are broken, or its "
                "type too narrow"
            )
        apart = max(float((x - y).abs().max()) for x, y in pairs)
        if not apart <= _TOLERANCE.get(self.dtype, 0.1) * max(largest, 1.0):
            raise ProblemError(
                f"{self.name} ({self.model.config.model_type}) does not follow the given mask and "
                f"positions: logits of a small tree differ by {apart:.2g} from plain passes; it "
                "cannot verify trees"
            )


def refuse_config(config: Any, name: str) -> None:
    """Refuse models that are known not to verify trees.

    Raises:
        ProblemError: It is one; the message says why.
    """
    kind = str(config.model_type)
    if getattr(config, "is_encoder_decoder", False):
        raise ProblemError(f"{name} ({kind}) is an encoder-decoder, expected a causal model")
    if kind in ("bloom", "mpt") or getattr(config, "alibi", False):
        raise ProblemError(
            f"{name} ({kind}) measures distance by ALiBi, which ignores given positions; "
            "use a model with rotary or learned positions"
        )
    layers = getattr(config, "layer_types", None) or ()
    window = getattr(config, "sliding_window", None)
    if "sliding_attention" in layers or (
        window and not layers and getattr(config, "use_sliding_window", True)
    ):
        raise ProblemError(
            f"{name} ({kind}) has a sliding window of {window} tokens, which trees do not keep; "
            "use a model with full attention"
        )


@functools.lru_cache(maxsize=3)
def open_lm(folder: str) -> FrozenLm:
    """The model of a folder in transformers' layout, loaded once a process, in float32 on a CPU.

    Raises:
        ProblemError: It cannot be loaded or used.
    """
    place = Path(folder)
    with quiet():
        from transformers import AutoConfig, AutoModelForCausalLM

        target = best_device()
        kind = torch.float32 if target.type == "cpu" else "auto"
        try:
            refuse_config(AutoConfig.from_pretrained(place, local_files_only=True), place.name)
            model = AutoModelForCausalLM.from_pretrained(
                place, dtype=kind, use_safetensors=True, local_files_only=True
            )
        except ProblemError:
            raise
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ProblemError(
                f"{place} is no causal model that can be loaded: {first[:200]}"
            ) from error
        return FrozenLm(model.eval().to(target), name=place.name)
