"""Which tensors are merged, and in which portions: one list for all methods of the family.

- Embedding tables (token, position, type) keep the base's values; heads and poolers stay with
  their task. Nobody merges them, so no method gains or loses by them.
- Matrices that some expert moved are merged by the method, in *groups* of equal shape that a rule
  treats as one batch.
- Vectors (biases, norms) take the mean update times a factor of the method.

A tensor that two names share is stored once on disk, so it is merged once.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lamps.errors import ProblemError
from lamps_plugins.model_merging._checkpoints import TensorInfo, natural

FIRST_LAYERS = 2
"""Matrices that the first landmark merges."""

MAX_GROUP_BYTES = 256 * 1024**2
"""Size of ``deltas`` of one group, at most, unless a single layer is larger."""

_EMBEDDING = re.compile(
    r"(^|\.)(embed_(tokens|positions|in|out)|\w*embeddings?|wte|wpe|shared)\.weight$"
)


@dataclass(frozen=True, slots=True)
class Group:
    """Tensors of equal shape that are merged as one batch.

    Args:
        number: Place among the groups; each method's random stream of a group is made of it.
        names: Canonical names, in the order of the model.
        shape: Shape of each.
        first: Whether the first landmark merges it; the others follow at the second.
    """

    number: int
    names: tuple[str, ...]
    shape: tuple[int, ...]
    first: bool = False


def is_embedding(name: str, info: TensorInfo) -> bool:
    """Whether a tensor is an embedding table; the norm behind the tables is not.

    Example:
        >>> from pathlib import Path
        >>> table = TensorInfo(Path("m"), "k", (100, 8), "F32")
        >>> is_embedding("embeddings.word_embeddings.weight", table)
        True
        >>> is_embedding("encoder.layer.0.output.dense.weight", table)
        False
    """
    return len(info.shape) == 2 and bool(_EMBEDDING.search(name))


def block_of(name: str) -> int:
    """The number of the repeated block that a tensor belongs to; -1 for none.

    Example:
        >>> block_of("encoder.layer.11.output.dense.bias"), block_of("norm.weight")
        (11, -1)
    """
    found = re.search(r"\.(\d+)\.", f".{name}")
    return int(found[1]) if found else -1


def mergeable(encoder: Mapping[str, TensorInfo], moved: Collection[str]) -> dict[str, TensorInfo]:
    """The tensors that are merged: no embedding tables, and only what some expert moved.

    Raises:
        ProblemError: A tensor has more than two dimensions, or nothing is left.
    """
    found = {
        name: info
        for name, info in encoder.items()
        if name in moved and not is_embedding(name, info)
    }
    for name, info in found.items():
        if len(info.shape) not in (1, 2):
            raise ProblemError(
                f"{name!r} has shape {list(info.shape)}; merging knows vectors and matrices only"
            )
    if not any(len(info.shape) == 2 for info in found.values()):
        raise ProblemError("no expert moved a matrix of the encoder, so there is nothing to merge")
    return found


def matrix_groups(
    tensors: Mapping[str, TensorInfo], n_experts: int, *, max_bytes: int = MAX_GROUP_BYTES
) -> tuple[Group, ...]:
    """Matrices grouped by shape: first those of the first landmark, then the rest.

    The first landmark has the last `FIRST_LAYERS` matrices of the commonest shape of the top
    block: it costs little, and no other block hides what it changes.

    Args:
        tensors: As `mergeable` gives them.
        n_experts: Number of experts, which bounds the layers of a group by ``max_bytes``.
        max_bytes: Bytes of a group's updates in float32.
    """
    matrices = {n: i.shape for n, i in tensors.items() if len(i.shape) == 2}
    names = sorted(matrices, key=natural)
    top = max(block_of(name) for name in names)
    candidates = [n for n in names if block_of(n) == top]
    common = Counter(matrices[n] for n in candidates).most_common(1)[0][0]
    chosen = [n for n in candidates if matrices[n] == common][-FIRST_LAYERS:]
    groups: list[Group] = []
    for first, part in ((True, chosen), (False, [n for n in names if n not in chosen])):
        by_shape: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for name in part:
            by_shape[matrices[name]].append(name)
        for shape, members in by_shape.items():
            size = max(1, max_bytes // (4 * n_experts * shape[0] * shape[1]))
            for start in range(0, len(members), size):
                some = tuple(members[start : start + size])
                groups.append(Group(len(groups), some, shape, first))
    return tuple(groups)


def vector_groups(tensors: Mapping[str, TensorInfo], start: int) -> tuple[Group, ...]:
    """Vectors grouped by length; numbers go on from ``start``."""
    by_shape: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for name in sorted(tensors, key=natural):
        if len(tensors[name].shape) == 1:
            by_shape[tensors[name].shape].append(name)
    return tuple(
        Group(start + i, tuple(names), shape) for i, (shape, names) in enumerate(by_shape.items())
    )
