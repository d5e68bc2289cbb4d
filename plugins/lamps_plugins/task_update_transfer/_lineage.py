"""The three models of a transfer: a base, what was fine-tuned from it, and the base to move to.

Everything is refused in one line before a network is made: other depth, other module names, other
vocabulary, quantized or not finite weights.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lamps.errors import ProblemError
from lamps.types import digest
from lamps_plugins.model_merging._checkpoints import (
    Checkpoint,
    TensorInfo,
    open_checkpoint,
    vocabulary_hash,
)
from lamps_plugins.model_merging._experts import Expert, open_expert
from lamps_plugins.model_merging._layers import block_of

if TYPE_CHECKING:
    from torch import Tensor

_SHAPE_OF_A_MODEL = ("model_type", "num_hidden_layers", "vocab_size")
FARTHEST = 1.0
"""Norm of the task update over that of the base's weights above which they are no relatives."""


@dataclass(frozen=True)
class Lineage:
    """Source base, source fine-tuned, target base; picklable, weights are read when asked for.

    Args:
        source: The base that was fine-tuned.
        tuned: The fine-tuned model, whole or as an adapter of peft; it names the labels.
        target: The base that the update is moved to.
        target_tuned: The target base fine-tuned on the same task, where it is known: a mark to
            measure against, which no method reads.
    """

    source: Checkpoint
    tuned: Expert
    target: Checkpoint
    target_tuned: Expert | None = None

    @property
    def same_width(self) -> bool:
        """Whether source and target have tensors of equal shapes."""
        return _shapes(self.source.encoder) == _shapes(self.target.encoder)

    @property
    def n_blocks(self) -> int:
        """Repeated blocks of the encoder."""
        return 1 + max(block_of(name) for name in self.target.encoder)

    @property
    def key(self) -> str:
        """Hash of all weights that a method reads."""
        return digest([self.source.sha256, self.tuned.sha256, self.target.sha256])

    def upper(self, name: str) -> bool:
        """Whether a tensor lies in the upper half of the blocks."""
        return block_of(name) >= self.n_blocks // 2

    @functools.cached_property
    def _weights(self) -> dict[str, dict[str, Tensor]]:
        source = {name: self.source.tensor(name) for name in self.source.encoder}
        moved = self.tuned.moved
        tuned = {
            name: weight + self.tuned.delta((name,))[0] if name in moved else weight
            for name, weight in source.items()
        }
        target = {name: self.target.tensor(name) for name in self.target.encoder}
        return {"source": source, "tuned": tuned, "target": target}

    def __getstate__(self) -> dict[str, Any]:
        return {
            k: v for k, v in self.__dict__.items() if k not in ("_weights", "moved", "signals")
        }

    def weights(self, which: str) -> Mapping[str, Tensor]:
        """Encoder of ``source``, ``tuned`` or ``target`` by name, float32; not to be changed."""
        return self._weights[which]

    @functools.cached_property
    def moved(self) -> tuple[str, ...]:
        """Tensors that fine-tuning changed, in the order of the source."""
        import torch

        source, tuned = self.weights("source"), self.weights("tuned")
        return tuple(name for name in source if not torch.equal(source[name], tuned[name]))

    def task_update(self, name: str) -> Tensor:
        """``theta_f - theta_o`` of a tensor."""
        return self.weights("tuned")[name] - self.weights("source")[name]

    @functools.cached_property
    def signals(self) -> dict[str, float]:
        """What the weights alone tell: sizes of task update and shift, and how they agree."""
        pairs = [(n, self.task_update(n).double()) for n in self.moved]
        source, target = self.weights("source"), self.weights("target")
        norm = sum(float(source[n].double().square().sum()) for n in self.moved)
        task = sum(float(d.square().sum()) for _, d in pairs)
        found = {"task_update_norm": (task / norm) ** 0.5}
        if self.same_width:
            shifts = {n: (target[n] - source[n]).double() for n, _ in pairs}
            size = sum(float(v.square().sum()) for v in shifts.values())
            dot = sum(float((d * shifts[n]).sum()) for n, d in pairs)
            found["shift_norm"] = (size / norm) ** 0.5
            found["shift_cosine"] = dot / max((size * task) ** 0.5, 1e-300)
        return found


def _shapes(tensors: Mapping[str, TensorInfo]) -> dict[str, tuple[int, ...]]:
    return {name: info.shape for name, info in tensors.items()}


def open_lineage(
    source: Path, tuned: Path, target: Path, target_tuned: Path | None = None
) -> Lineage:
    """Open and check the models of a transfer.

    Raises:
        ProblemError: They do not fit; one line says why.
    """
    bases = {"source-base": open_checkpoint(source), "target-base": open_checkpoint(target)}
    found = Lineage(
        bases["source-base"],
        open_expert("source-tuned", tuned, bases["source-base"]),
        bases["target-base"],
        None
        if target_tuned is None
        else open_expert("target-tuned", target_tuned, bases["target-base"]),
    )
    _check_pair("source-tuned", found.tuned, found.source)
    if found.target_tuned is not None:
        _check_pair("target-tuned", found.target_tuned, found.target)
        if found.target_tuned.labels != found.tuned.labels:
            raise ProblemError(
                f"target-tuned labels {list(found.target_tuned.labels)}, source-tuned labels "
                f"{list(found.tuned.labels)}; both need the same task"
            )
    _check_target(found)
    _check_values(found)
    return found


def _check_pair(who: str, tuned: Expert, base: Checkpoint) -> None:
    """A fine-tuned model must have the shapes of its base."""
    for key in (*_SHAPE_OF_A_MODEL, "hidden_size"):
        _same(who, tuned.config, base, key)
    if tuned.kind == "full":
        missing = sorted(set(base.encoder) ^ set(tuned.tensors))
        if missing:
            raise ProblemError(
                f"{missing[0]!r} is only in one of {who} and its base; they need the same tensors"
            )
        for name, info in base.encoder.items():
            if tuned.tensors[name].shape != info.shape:
                raise ProblemError(
                    f"{who} has shape {list(tuned.tensors[name].shape)} for {name!r}, its base "
                    f"has {list(info.shape)}"
                )
    if odd := sorted(tuned.moved - set(base.encoder)):
        raise ProblemError(f"{who} changes {odd[0]!r}, which its base does not have")
    if not tuned.head_infos:
        raise ProblemError(
            f"{who} holds no classification head; save it as a model for sequence classification"
        )


def _check_target(found: Lineage) -> None:
    """The target needs the source's modules; its widths may differ."""
    for key in _SHAPE_OF_A_MODEL:
        _same("target-base", found.target.config, found.source, key)
    words = {
        who: vocabulary_hash(folder)
        for who, folder in (
            ("source-base", found.source.folder),
            ("source-tuned", found.tuned.folder),
            ("target-base", found.target.folder),
        )
    }
    known = {who: value for who, value in words.items() if value is not None}
    if not known:
        raise ProblemError(
            f"{found.source.folder} has no tokenizer.json, nor has the target; save the tokenizer "
            "beside the base"
        )
    if len(set(known.values())) > 1:
        odd = next(w for w, v in known.items() if v != next(iter(known.values())))
        raise ProblemError(
            f"{odd} has another vocabulary than {next(iter(known))}; all need the same tokenizer"
        )
    if odd_names := sorted(set(found.source.encoder) ^ set(found.target.encoder)):
        raise ProblemError(
            f"{odd_names[0]!r} is only in one of source-base and target-base; they need the same "
            "module names"
        )
    for name, info in found.source.encoder.items():
        if len(info.shape) not in (1, 2) or len(info.shape) != len(
            found.target.encoder[name].shape
        ):
            raise ProblemError(
                f"{name!r} has shape {list(info.shape)} in source-base and "
                f"{list(found.target.encoder[name].shape)} in target-base; expected vectors and "
                "matrices of the same kind"
            )


def _same(who: str, config: Mapping[str, Any], base: Checkpoint, key: str) -> None:
    if config.get(key) != base.config.get(key):
        raise ProblemError(
            f"{who} has {key}={json.dumps(config.get(key))}, {base.folder.name} has "
            f"{json.dumps(base.config.get(key))}; a transfer needs equal depth, modules and words"
        )


def _check_values(found: Lineage) -> None:
    import torch

    for which in ("source", "tuned", "target"):
        for name, weight in found.weights(which).items():
            if not bool(torch.isfinite(weight).all()):
                raise ProblemError(f"the {which} model is not finite in {name!r}")
    if not found.moved:
        raise ProblemError("source-tuned is source-base itself; there is no update to transfer")
    moved = sum(float(found.task_update(n).square().sum()) for n in found.moved) ** 0.5
    own = sum(float(found.weights("source")[n].square().sum()) for n in found.moved) ** 0.5
    if moved > FARTHEST * own:
        raise ProblemError(
            f"source-tuned lies {moved / own:.2f} times the base's norm away from source-base, "
            f"expected less than {FARTHEST:g}; it was not fine-tuned from this base"
        )
