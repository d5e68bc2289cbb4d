"""Experts of the zoo: one encoder fine-tuned on one task, by the product's own training loop.

Embeddings and pooler stay frozen and the head starts at zero, so what an expert learned lies in
the encoder's blocks and in its last layer:

    full   all weights of the blocks
    lora   rank 8, alpha 16 on every linear layer of the blocks
    oft    block-diagonal rotations of 32 inputs each, by the exact Cayley map, on the same layers

The folders are what `save_pretrained` of transformers and peft write.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lamps.errors import MissingExtra, ProblemError, did_you_mean
from lamps.method import ModelInfo
from lamps_plugins.text_classification import _export, _features, _nets, _training
from lamps_plugins.text_classification._peft import linear_layers
from lamps_plugins.text_classification._problem import TextProblem

if TYPE_CHECKING:
    from torch import nn

FORMAT = 1
"""Raised when training gives other weights; zoos are then built again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How an expert is trained.

    Args:
        kind: ``full``, ``lora`` or ``oft``.
        steps: Steps of the optimiser.
        batch_size: Texts a step.
        lr: Peak learning rate of the encoder; that of the adapter for ``lora`` and ``oft``.
        head_lr: Peak learning rate of the last layer.
        oft_block: Inputs that one rotation of ``oft`` turns.
    """

    kind: str
    steps: int
    batch_size: int = 32
    lr: float = 1e-4
    head_lr: float = 1e-3
    oft_block: int = 32


STEPS = {"quick": 80, "full": 200}
"""Steps by profile."""

_LR = {"full": 1e-4, "lora": 2e-3, "oft": 2e-3}


def recipe(kind: str, profile: str) -> Recipe:
    """The zoo's recipe of a kind of expert.

    Raises:
        ProblemError: No such kind or profile.
    """
    if kind not in _LR:
        raise ProblemError(f"the zoo has no experts {kind!r}. {did_you_mean(kind, _LR)}")
    if profile not in STEPS:
        raise ProblemError(f"the zoo has no profile {profile!r}. {did_you_mean(profile, STEPS)}")
    return Recipe(kind=kind, steps=STEPS[profile], lr=_LR[kind])


def train_expert(
    base: ModelInfo, task: TextProblem, how: Recipe, *, seed: int, folder: Path
) -> dict[str, float]:
    """Fine-tune the base on a task and write the expert into an existing empty folder.

    Args:
        base: A folder in hub layout with a tokenizer.
        task: Its training texts are used, the others not.
        how: The recipe.
        seed: Order of the texts, dropout, and the adapter's start.
        folder: Where to.

    Returns:
        ``train_loss``, the mean over the run; ``val_accuracy`` of the expert, and
        ``base_val_accuracy`` of the untouched base under its head.
    """
    import torch

    tokenizer = _features.tokenizer_of(base)
    head = _nets.HeadSpec(
        names=tuple(str(label) for label in task.labels),
        multi_label=False,
        max_length=task.max_length,
    )
    plain: Any = _nets.load_classifier(base, head, pad_id=tokenizer.pad_token_id)
    for name, parameter in plain.named_parameters():
        frozen = "embeddings." in name or ".pooler." in name
        parameter.requires_grad_(not frozen)
    rng = np.random.default_rng([seed, FORMAT])
    with _nets.quiet():
        torch.manual_seed(int(rng.integers(2**62)))  # inside quiet's forked state
        net = plain if how.kind == "full" else _adapted(plain, how)
    rates = {
        name: how.head_lr
        for name, p in net.named_parameters()
        if p.requires_grad and "classifier." in name
    }
    settings = _training.Recipe(
        lr=how.lr, head_lr=how.head_lr, epochs=1, batch_size=how.batch_size
    )
    optimizer = _training.make_optimizer(net, rates, settings)
    rows = _features.tokens(task, base, "train")
    examples = _training.Examples(rows, task.targets("train"), tokenizer.pad_token_id)
    seen = how.steps * how.batch_size
    block = _training.Block(1, 0, task.n_train, 0, seen, seen)
    loss = _training.train_block(net, optimizer, examples, block, settings, rng=rng)
    val = _features.tokens(task, base, "val"), task.targets("val"), tokenizer.pad_token_id
    untouched: Any = _nets.load_classifier(base, head, pad_id=tokenizer.pad_token_id)
    trained = net.base_model.model.classifier.modules_to_save.default if net is not plain else None
    _nets.last_layer(untouched).load_state_dict((trained or plain.classifier).state_dict())
    with _nets.quiet():
        net.save_pretrained(folder)
        if how.kind != "full":
            plain.config.save_pretrained(folder)  # names the labels, which the adapter does not
    _export.write_tokenizer(folder, tokenizer, task.max_length)
    return {
        "train_loss": loss,
        "val_accuracy": _accuracy(net, *val),
        "base_val_accuracy": _accuracy(untouched, *val),
    }


def _accuracy(net: Any, rows: Any, targets: np.ndarray, pad_id: int) -> float:
    plain = net.base_model.model if hasattr(net, "peft_config") else net
    return float((_nets.logits_of_tokens(plain, rows, pad_id).argmax(axis=1) == targets).mean())


def _adapted(net: nn.Module, how: Recipe) -> Any:
    """The network under a new adapter; the last layer is trained beside it."""
    try:
        from peft import LoraConfig, OFTConfig, get_peft_model
    except ImportError as error:
        raise MissingExtra(f"{how.kind} experts", "peft", "text") from error
    layers = linear_layers(net)
    if how.kind == "lora":
        config = LoraConfig(
            r=8, lora_alpha=16, target_modules=layers, modules_to_save=["classifier"]
        )
    else:
        config = OFTConfig(
            oft_block_size=how.oft_block, r=0, use_cayley_neumann=False,
            target_modules=layers, modules_to_save=["classifier"],
        )  # fmt: skip
    return get_peft_model(net, config)
