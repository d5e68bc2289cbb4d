"""A base with the experts that stem from it: what a merge works on, without any text."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lamps.errors import ProblemError
from lamps.method import cache_dir
from lamps.types import digest
from lamps_plugins.model_merging import _signals
from lamps_plugins.model_merging._checkpoints import Checkpoint, open_checkpoint
from lamps_plugins.model_merging._checks import check_headers, check_weights
from lamps_plugins.model_merging._experts import (
    Expert,
    FullExpert,
    LoraExpert,
    OftExpert,
    open_expert,
)
from lamps_plugins.model_merging._layers import (
    MAX_GROUP_BYTES,
    Group,
    is_embedding,
    matrix_groups,
    mergeable,
    vector_groups,
)
from lamps_plugins.text_classification._features import cached

if TYPE_CHECKING:
    import torch

    from lamps_plugins.model_merging._rules.lowrank import LowRank

FORMAT = 1
"""Raised when checks or signals change; what the cache holds of them is then made again."""


class ExpertSet:
    """Base and experts, in the order of their tasks; picklable, weights are read when asked for.

    Args:
        base: The base.
        experts: Two or more experts that passed `check_headers`.
        max_group_bytes: Bytes of ``deltas`` of one group, at most.

    Attributes:
        groups: Matrices that are merged, those of the first landmark first.
        vectors: Biases and norms that are merged.
    """

    def __init__(
        self,
        base: Checkpoint,
        experts: Sequence[Expert],
        *,
        max_group_bytes: int = MAX_GROUP_BYTES,
    ) -> None:
        self.base, self.experts = base, tuple(experts)
        moved = frozenset().union(*(expert.moved for expert in experts))
        tensors = mergeable(base.encoder, moved)
        self.groups = matrix_groups(tensors, len(experts), max_bytes=max_group_bytes)
        self.vectors = vector_groups(tensors, len(self.groups))

    def __len__(self) -> int:
        return len(self.experts)

    @property
    def kind(self) -> str:
        """``full``, ``lora`` or ``oft``; ``mixed`` where the experts differ."""
        kinds = {expert.kind for expert in self.experts}
        return kinds.pop() if len(kinds) == 1 else "mixed"

    @property
    def key(self) -> str:
        """Hash of all weights, in the order of the experts; the key of what is cached of them."""
        return digest([FORMAT, self.base.sha256, *(expert.sha256 for expert in self.experts)])

    def base_weights(self, group: Group) -> torch.Tensor:
        """Weights of the base. Shape: [L, m, n], or [L, d] for vectors; float32."""
        return self.base.stack(group.names)

    def deltas(self, group: Group) -> torch.Tensor:
        """Updates ``W_i - W_0`` of all experts. Shape: [K, L, m, n] or [K, L, d]; float32."""
        import torch

        # Filled one by one: a list to be stacked would need the memory twice.
        result = torch.empty(len(self), len(group.names), *group.shape)
        for k, expert in enumerate(self.experts):
            result[k] = expert.delta(group.names)
        return result

    def low_rank(self, group: Group) -> LowRank:
        """Updates of a group as factors, scales folded in; no dense update is formed.

        Raises:
            ProblemError: Not all experts are LoRA adapters.
        """
        from lamps_plugins.model_merging._rules.lowrank import LowRank

        for expert in self.experts:
            if not isinstance(expert, LoraExpert):
                raise ProblemError(
                    f"expert {expert.name!r} is {expert.kind}; this rule needs LoRA experts only"
                )
        found = [e.factors(group.names) for e in self.experts if isinstance(e, LoraExpert)]
        b, a, scales = zip(*found, strict=True)
        return LowRank.from_lora(b, a, scales)

    def skew(self, group: Group) -> torch.Tensor:
        """Skew blocks of the rotations of OFT experts. Shape: [K, L, n / b, b, b] float32.

        Raises:
            ProblemError: Not all experts are OFT adapters, or their block sizes differ.
        """
        import torch

        parts = []
        for expert in self.experts:
            if not isinstance(expert, OftExpert):
                raise ProblemError(
                    f"expert {expert.name!r} is {expert.kind}; this rule needs OFT experts only"
                )
            parts.append(expert.skew(group.names))
        if len({part.shape for part in parts}) > 1:
            sizes = {e.name: p.shape[-1] for e, p in zip(self.experts, parts, strict=True)}
            raise ProblemError(f"OFT experts have different block sizes: {sizes}")
        return torch.stack(parts)

    @functools.cached_property
    def signals(self) -> dict[str, float]:
        """What the weights alone tell about the experts; see `_signals`. Cached by content."""
        folder = cache_dir() / "merging" / f"signals-{self.key}"
        return {k: float(v) for k, v in cached(folder, lambda: _signals.of_set(self)).items()}


def open_set(
    base: Path, experts: Mapping[str, Path], *, max_group_bytes: int = MAX_GROUP_BYTES
) -> ExpertSet:
    """Open and check a base and its experts.

    Args:
        base: Folder of the base.
        experts: Folder of each expert by the name of its task, in the order of the tasks.
        max_group_bytes: See `ExpertSet`.

    Raises:
        ProblemError: They do not fit; see `_checks`.
    """
    opened = open_checkpoint(base)
    found = [open_expert(name, folder, opened) for name, folder in experts.items()]
    check_headers(opened, found)
    made = ExpertSet(opened, found, max_group_bytes=max_group_bytes)
    passed = cache_dir() / "merging" / f"checked-{made.key}"
    if not passed.exists():
        check_weights(opened, found, (*made.groups, *made.vectors))
        passed.parent.mkdir(parents=True, exist_ok=True)
        passed.touch()
    return made


def moved_embeddings(experts: ExpertSet) -> tuple[str, ...]:
    """Experts whose embedding tables differ from the base's, which no merge brings along."""
    import torch

    base = experts.base
    tables = [(name,) for name, info in base.encoder.items() if is_embedding(name, info)]
    whole = [expert for expert in experts.experts if isinstance(expert, FullExpert)]
    moved = (e.name for e in whole if any(bool(torch.any(e.delta(t) != 0)) for t in tables))
    return tuple(moved)
