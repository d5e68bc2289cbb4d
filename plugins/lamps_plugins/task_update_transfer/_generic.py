"""The generic loss of a base: what it was good at before any task, as a likelihood.

    teacher    mean(1 - cos(M f(x), t(x))), the distillation that made the zoo's students;
               as a likelihood, von Mises-Fisher around t with concentration `CONCENTRATION`
    masked     cross entropy of masked words, for bases that were saved with such a head
    own        mean(1 - cos(f(x), f_n(x))) to the target base's own features, where a folder holds
               nothing to predict with; its Fisher takes directions drawn around the model's own

``f`` is what the last layer of a classifier receives. Masks are drawn by a hash of a text's token
ids, so two bases see the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lamps.errors import ProblemError
from lamps_plugins._zoo._students import MAP
from lamps_plugins.model_merging._checkpoints import Checkpoint
from lamps_plugins.task_update_transfer import _networks
from lamps_plugins.task_update_transfer._networks import Rows
from lamps_plugins.text_classification import _nets

if TYPE_CHECKING:
    from torch import Tensor, nn

KINDS = ("teacher", "masked", "own")
CONCENTRATION = 30.0
"""Of the von Mises-Fisher likelihoods; the task's Fisher is weighed against it by ``kappa``."""

MASKED, WORD, RANDOM = 0.15, 0.8, 0.1
"""Share of tokens that are predicted; of these, replaced by the mask and by a random word."""

_MASKED_HEADS = ("cls.predictions", "lm_head", "vocab_", "predictions.")
Losses = Iterator[tuple["Tensor", int]]
"""Loss of a batch summed over its targets, and how many there are."""


def kind_of(source: Checkpoint, target: Checkpoint) -> str:
    """The generic loss that both bases can be asked for."""
    bases = (source, target)
    if all((base.folder / MAP).is_file() for base in bases):
        return "teacher"
    if all(any(key.startswith(_MASKED_HEADS) for key in base.head) for base in bases):
        return "masked"
    return "own"


def teacher_map(folder: Path) -> Tensor:
    """``M`` of a student's folder. Shape: [teacher's width, d] float32."""
    import torch

    return torch.from_numpy(np.load(folder / MAP, allow_pickle=False))


def masked_net(base: Checkpoint) -> nn.Module:
    """A base with the head that predicts masked words, in evaluation mode.

    Raises:
        ProblemError: Its folder cannot be loaded so.
    """
    with _nets.quiet():
        import torch
        from transformers import AutoModelForMaskedLM

        try:
            net: Any = AutoModelForMaskedLM.from_pretrained(
                base.folder, dtype=torch.float32, use_safetensors=True, local_files_only=True
            )
        except (OSError, ValueError) as error:
            raise ProblemError(f"{base.folder} predicts no masked words: {error}") from error
        return net.eval().to(_nets.device())  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Masked:
    """Words to be predicted.

    Args:
        rows: Token ids with some replaced.
        targets: The right ids where a token is predicted, else -100.
    """

    rows: list[np.ndarray]
    targets: list[np.ndarray]


def mask_words(rows: Rows, *, mask_id: int, n_words: int, special: frozenset[int]) -> Masked:
    """Mask words of each text by a hash of its token ids.

    Args:
        rows: Token ids of the texts.
        mask_id: The mask.
        n_words: Size of the vocabulary.
        special: Ids that are never masked.
    """
    found = Masked([], [])
    for row in rows:
        rng = np.random.default_rng([3, *map(int, row)])
        usable = ~np.isin(row, list(special))
        chosen = (rng.random(len(row)) < MASKED) & usable
        kind = rng.random(len(row))
        words = rng.integers(0, n_words, len(row))
        new = np.where(kind < WORD, mask_id, np.where(kind < WORD + RANDOM, words, row))
        found.rows.append(np.where(chosen, new, row).astype(np.int32))
        found.targets.append(np.where(chosen, row, -100).astype(np.int64))
    return found


def masked_losses(net: nn.Module, given: Masked, pad_id: int, batch: int) -> Losses:
    """Cross entropy of masked words, batch by batch.

    Raises:
        ProblemError: No word of any text is masked.
    """
    from torch.nn import functional

    total = 0
    for at, ids, mask in _networks.batches(given.rows, batch, pad_id):
        wanted, _ = _nets.pad_batch(given.targets[at], -100)
        n = int((wanted != -100).sum())
        if n:
            logits = net(input_ids=ids, attention_mask=mask).logits.float()
            yield (
                functional.cross_entropy(
                    logits.flatten(0, 1), wanted.flatten(), ignore_index=-100, reduction="sum"
                ),
                n,
            )
        total += n
    if not total:
        raise ProblemError("no word of the generic texts is masked; give more or longer texts")


def teacher_losses(
    net: nn.Module, rows: Rows, wanted: Tensor, map_: Tensor, pad_id: int, batch: int
) -> Losses:
    """Negative log likelihood of the teacher's directions, up to a constant.

    Shape:
        wanted: [n, teacher's width], rows of length one;  map_: [teacher's width, d].
    """
    from torch.nn import functional

    for at, ids, mask in _networks.batches(rows, batch, pad_id):
        found = functional.normalize(_networks.represented(net, ids, mask) @ map_.T, dim=1)
        yield CONCENTRATION * (1.0 - (found * wanted[at]).sum(1)).sum(), at.stop - at.start


def own_losses(net: nn.Module, rows: Rows, pad_id: int, batch: int) -> Losses:
    """Negative log likelihood of directions drawn around the model's own, to first order.

    Each text has its own stream, made of its token ids.
    """
    import torch
    from torch.nn import functional

    for at, ids, mask in _networks.batches(rows, batch, pad_id):
        found = functional.normalize(_networks.represented(net, ids, mask), dim=1)
        noise = [
            np.random.default_rng([5, *map(int, row)]).standard_normal(found.shape[1])
            for row in rows[at]
        ]
        drawn = torch.from_numpy(np.stack(noise)).to(found)
        yield CONCENTRATION**0.5 * (found * drawn).sum(), at.stop - at.start


def mean_loss(losses: Losses) -> float:
    """Mean over all targets, without gradients."""
    import torch

    total, count = 0.0, 0
    with torch.no_grad():
        for loss, n in losses:
            total += float(loss)
            count += n
    return total / count
