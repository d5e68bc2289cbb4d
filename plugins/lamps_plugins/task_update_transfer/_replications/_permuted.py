"""A base that computes the same with its units in another order: the exact case of transports."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lamps_plugins.model_merging._refused import edit_weights
from lamps_plugins.task_update_transfer import _networks, _refused
from lamps_plugins.task_update_transfer._problem import FAMILY, TransferProblem
from lamps_plugins.text_classification import _nets


def problem(root: Path, seed: int, *, residual: bool) -> TransferProblem:
    """The toy's task update, and as target its own base with units in another order.

    Args:
        root: An empty folder for the models.
        seed: Of the order.
        residual: Reorder the residual stream too; the head is then refitted, else the old one
            still fits.
    """
    places = _refused.copies(root)
    roughen(places)
    places["game"] = root / "turned"
    shutil.copytree(places["base"], places["game"])
    permute(places["game"], seed, residual=residual)
    file, options = _refused.opened_with(places)
    return FAMILY.open_problem(file, options | {"head": "ridge" if residual else "old"})


def roughen(places: Mapping[str, Path]) -> None:
    """Give the norms of base and fine-tuned model the same odd scales and shifts.

    Activations of the toy's untrained base leave one direction out, where no alignment is defined.
    """

    def change(tensors: dict[str, Any]) -> None:
        import torch

        rng = np.random.default_rng(0)
        for name in sorted(n.removeprefix("bert.") for n in tensors if "LayerNorm" in n):
            key = name if name in tensors else f"bert.{name}"
            noise = torch.from_numpy(0.3 * rng.standard_normal(tensors[key].shape))
            tensors[key] = tensors[key] + noise.float()

    for who in ("base", "dish"):
        edit_weights(places[who] / "model.safetensors", change)


def tuned_network(given: TransferProblem) -> Any:
    """The fine-tuned source behind a head of zeros."""
    import torch

    net = given.classifier("source")
    weights = given.lineage.weights("tuned")
    with torch.no_grad():
        for name, parameter in _networks.encoder_parameters(net).items():
            parameter.copy_(weights[name])
    return net


def same_up_to_order(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    """Whether the columns of ``b`` are those of ``a`` in another order. Shape: [n, d] each."""
    gaps = np.abs(a[:, :, None] - b[:, None, :]).max(axis=0)
    nearest = gaps.argmin(axis=1)
    return bool(gaps.min(axis=1).max() < tolerance and len(set(nearest)) == a.shape[1])


def permute(folder: Path, seed: int, *, residual: bool) -> None:
    """Reorder feed-forward units, heads and units inside heads of the encoder in a folder.

    Args:
        folder: A headless BERT.
        seed: Of the orders.
        residual: Reorder the residual stream too.
    """
    with _nets.quiet():
        import torch
        from transformers import BertModel

        net: Any = BertModel.from_pretrained(folder)
        rng = np.random.default_rng(seed)
        config = net.config
        d, heads, hidden = (
            config.hidden_size, config.num_attention_heads, config.intermediate_size,
        )  # fmt: skip
        stream = torch.from_numpy(rng.permutation(d) if residual else np.arange(d))
        with torch.no_grad():
            parts = net.embeddings
            for table in (
                parts.word_embeddings, parts.position_embeddings, parts.token_type_embeddings,
            ):  # fmt: skip
                table.weight.copy_(table.weight[:, stream])
            _norm(parts.LayerNorm, stream)
            for layer in net.encoder.layer:
                units = torch.from_numpy(rng.permutation(hidden))
                _linear(layer.intermediate.dense, units, stream)
                _linear(layer.output.dense, stream, units)
                order = rng.permutation(heads)
                size = d // heads
                qk = np.concatenate([h * size + rng.permutation(size) for h in order])
                v = np.concatenate([h * size + rng.permutation(size) for h in order])
                own = layer.attention.self
                _linear(own.query, torch.from_numpy(qk), stream)
                _linear(own.key, torch.from_numpy(qk), stream)
                _linear(own.value, torch.from_numpy(v), stream)
                _linear(layer.attention.output.dense, stream, torch.from_numpy(v))
                _norm(layer.attention.output.LayerNorm, stream)
                _norm(layer.output.LayerNorm, stream)
        net.save_pretrained(folder)


def _linear(module: Any, out: Any, into: Any) -> None:
    module.weight.copy_(module.weight[out][:, into])
    module.bias.copy_(module.bias[out])


def _norm(module: Any, order: Any) -> None:
    module.weight.copy_(module.weight[order])
    module.bias.copy_(module.bias[order])
