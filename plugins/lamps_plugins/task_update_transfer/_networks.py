"""Classifiers of a transfer, and what their last layer receives."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lamps.errors import ProblemError
from lamps.method import ModelInfo
from lamps_plugins.model_merging import _networks as merging
from lamps_plugins.model_merging._checkpoints import Checkpoint
from lamps_plugins.model_merging._experts import Expert
from lamps_plugins.text_classification import _nets
from lamps_plugins.text_classification._models import folder_info

if TYPE_CHECKING:
    from torch import Tensor, nn

Rows = Sequence[np.ndarray]
"""Token ids of texts, n times [length] int32."""


def with_old_head(tuned: Expert, encoder: Mapping[str, Tensor]) -> nn.Module:
    """A classifier with the head of the fine-tuned model, pooler included, on some encoder."""
    # A copy, because the network shares memory with what it is made of.
    return merging.classifier(tuned, {k: v.clone() for k, v in encoder.items()})


def with_new_head(base: Checkpoint, labels: Sequence[str], pad_id: int) -> nn.Module:
    """A base as a classifier whose last layer is zero and waits to be fitted."""
    info = info_of(base)
    head = _nets.HeadSpec(names=tuple(labels), multi_label=False, max_length=0)
    return _nets.load_classifier(info, head, pad_id=pad_id)


def info_of(base: Checkpoint) -> ModelInfo:
    """A checkpoint as the text family's helpers take it.

    Raises:
        ProblemError: It is no encoder.
    """
    info = folder_info(base.folder, name=base.folder.name)
    if info.kind != "encoder":
        raise ProblemError(
            f"{base.folder} is a {info.kind}; updates are transferred between encoders only"
        )
    return info


def encoder_parameters(net: Any) -> dict[str, nn.Parameter]:
    """Parameters of the encoder by canonical name, poolers left out."""
    return {k: p for k, p in net.base_model.named_parameters() if not k.startswith("pooler.")}


def changed(template: nn.Module, updates: Mapping[str, Tensor]) -> nn.Module:
    """A copy of a classifier with updates added to its encoder's weights.

    Raises:
        ProblemError: An update has no tensor of its shape there.
    """
    import torch

    net = copy.deepcopy(template)
    own = encoder_parameters(net)
    with torch.no_grad():
        for name, update in updates.items():
            if name not in own or own[name].shape != update.shape:
                there = list(own[name].shape) if name in own else "nothing"
                raise ProblemError(
                    f"the update of {name!r} has shape {list(update.shape)}, the target has "
                    f"{there} there"
                )
            own[name].add_(update.to(own[name].device))
    return net


def batches(rows: Rows, size: int, pad_id: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Texts in their order: where a batch lies, its padded ids and its mask, [b, longest]."""
    for start in range(0, len(rows), size):
        ids, mask = _nets.pad_batch(rows[start : start + size], pad_id)
        yield slice(start, min(start + size, len(rows))), ids, mask


def represented(net: nn.Module, ids: Tensor, mask: Tensor) -> Tensor:
    """What the last layer of a classifier receives; gradients flow. Shape: [b, d]."""
    seen: list[Tensor] = []
    hook = _nets.last_layer(net).register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    try:
        net(input_ids=ids, attention_mask=mask)
    finally:
        hook.remove()
    found = seen[0]
    return found[:, 0] if found.ndim == 3 else found


def features(net: nn.Module, rows: Rows, pad_id: int, *, batch: int = 32) -> np.ndarray:
    """`represented` of tokenised texts, in their order. Shape: [n, d] float32."""
    import torch

    parts: dict[int, Any] = {}
    with torch.inference_mode():
        for chosen in _nets.by_length(rows, batch):
            ids, mask = _nets.pad_batch([rows[i] for i in chosen], pad_id)
            found = represented(net, ids, mask).float().cpu().numpy()
            parts |= dict(zip(chosen.tolist(), found, strict=True))
    return np.stack([parts[i] for i in range(len(rows))])


def set_head(net: nn.Module, weight: np.ndarray, bias: np.ndarray) -> None:
    """Put a fitted head into the last layer of a classifier."""
    import torch

    last = _nets.last_layer(net)
    with torch.no_grad():
        last.weight.copy_(torch.from_numpy(weight))
        if last.bias is None:
            raise ProblemError(
                f"{type(net).__name__} has a last layer without a bias; use another"
            )
        last.bias.copy_(torch.from_numpy(bias))
