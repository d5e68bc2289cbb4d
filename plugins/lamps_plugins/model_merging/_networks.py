"""Classifiers put together from an encoder and a head, and what they answer."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lamps.errors import ProblemError
from lamps.method import ModelInfo
from lamps.types import canonical_json
from lamps_plugins.text_classification import _nets

if TYPE_CHECKING:
    import torch
    from torch import nn

    from lamps_plugins.model_merging._experts import Expert
    from lamps_plugins.model_merging._sets import ExpertSet

Weights = Mapping[str, "torch.Tensor"]
"""Tensors of an encoder by canonical name."""


def base_weights(experts: ExpertSet) -> dict[str, torch.Tensor]:
    """All tensors of the base's encoder, float32."""
    return {name: experts.base.tensor(name) for name in experts.base.encoder}


def expert_weights(experts: ExpertSet, expert: Expert, base: Weights) -> dict[str, torch.Tensor]:
    """All tensors of an expert's encoder, embeddings included, float32."""
    moved = expert.moved
    return {
        name: weight + expert.delta((name,))[0] if name in moved else weight
        for name, weight in base.items()
    }


def classifier(expert: Expert, encoder: Weights) -> nn.Module:
    """A network of plain transformers with an expert's head; shares memory with ``encoder``.

    Args:
        expert: Whose head and labels it gets.
        encoder: All tensors of the encoder.

    Raises:
        ProblemError: Encoder and head do not make up the network.
    """
    state = {expert.base.full_name(name): value for name, value in encoder.items()}
    state |= expert.head()
    net = _empty(canonical_json(dict(expert.config)))
    wanted = {name for name, _ in net.named_parameters()}
    if missing := sorted(wanted - set(state)):
        raise ProblemError(
            f"expert {expert.name!r}: {missing[0]!r} is neither in the expert nor in the base; "
            "save it with the expert"
        )
    net.load_state_dict(state, strict=False, assign=True)
    made: nn.Module = net.eval().requires_grad_(False).to(_nets.device())
    return made


def _empty(config: str) -> Any:
    """A classifier of that config whose weights are not set yet, its buffers are."""
    with _nets.quiet():
        from transformers import AutoConfig, AutoModelForSequenceClassification
        from transformers.initialization import no_init_weights

        values: dict[str, Any] = json.loads(config)
        made = AutoConfig.for_model(values.pop("model_type"), **values)
        if made.pad_token_id is None:
            made.pad_token_id = made.eos_token_id
        with no_init_weights():
            return AutoModelForSequenceClassification.from_config(made)


def tokenizer_info(experts: ExpertSet) -> ModelInfo:
    """The folder whose tokenizer all share, as the text family's helpers take it.

    Raises:
        ProblemError: Neither base nor experts have one.
    """
    folders = [experts.base.folder, *(expert.folder for expert in experts.experts)]
    for folder in folders:
        if (folder / "tokenizer.json").is_file() and (folder / "config.json").is_file():
            kind = _kind(canonical_json(dict(experts.base.config)))
            return ModelInfo(
                name=str(folder), kind=kind, path=str(folder), parameters=0, size_bytes=0,
                licence="unknown", source=str(folder),
            )  # fmt: skip
    raise ProblemError(
        f"{experts.base.folder} has no tokenizer.json, nor has an expert; save the tokenizer "
        "beside the base"
    )


@functools.lru_cache(maxsize=8)
def _kind(config: str) -> str:
    from lamps_plugins.text_classification._models import kind_of

    return kind_of(json.loads(config), where="the base")


def correct(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Which texts are labelled right, as float64 [n]; NaN where a logit is not finite."""
    right: np.ndarray = (logits.argmax(axis=1) == targets).astype(np.float64)
    right[~np.isfinite(logits).all(axis=1)] = np.nan
    return right


def answers(
    net: nn.Module, rows: Sequence[np.ndarray], pad_id: int, *, batch: int = 32
) -> np.ndarray:
    """Logits of tokenised texts. Shape: [n, n_labels] float32."""
    return _nets.logits_of_tokens(net, rows, pad_id, batch=batch)
