"""Running only the top of a network: what lies below was computed once, on the base.

The first landmark changes the top block only, so below it every candidate computes what the base
computes. The states that enter the top block are kept on disk, and a network answers from there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from lamps_plugins.model_merging._layers import block_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

Arrays = dict[str, np.ndarray]


def top_block(names: Collection[str]) -> tuple[str, int] | None:
    """Path of the list of blocks, and the lowest block that these tensors lie in.

    Returns:
        None where the tensors do not lie in one list of blocks, or in its first block.

    Example:
        >>> top_block(["encoder.layer.2.attention.self.query.weight"])
        ('encoder.layer', 2)
    """
    lists = {found[1] for name in names if (found := re.match(r"(.*?)\.\d+\.", name))}
    lowest = min((block_of(name) for name in names), default=-1)
    return (lists.pop(), lowest) if len(lists) == 1 and lowest > 0 else None


def record(net: nn.Module, place: tuple[str, int], run: Callable[[], object]) -> Arrays:
    """What leaves the block below ``place`` in each forward pass of ``run``, by its number.

    Blocks that answer with a tuple have a ``t`` behind the number.

    Shape:
        Each [b, length, width] float32.
    """
    seen: Arrays = {}

    def keep(_: nn.Module, __: Any, output: Any) -> None:
        tupled = isinstance(output, tuple)
        hidden = output[0] if tupled else output
        seen[f"{len(seen):06d}{'t' if tupled else ''}"] = hidden.float().cpu().numpy()

    handle = _blocks(net, place)[-1].register_forward_hook(keep)
    try:
        run()
    finally:
        handle.remove()
    return seen


@contextmanager
def replayed(net: nn.Module, place: tuple[str, int], states: Arrays) -> Iterator[None]:
    """Within it the blocks below ``place`` do nothing but hand on the recorded states, in order.

    Args:
        net: A classifier; its blocks work again afterwards.
        place: As for `record`.
        states: What `record` gave for the same passes.
    """
    import torch

    from lamps_plugins.text_classification import _nets

    blocks = _blocks(net, place)
    queue = iter(sorted(states))
    current: list[Any] = []

    def first(*_: Any, **__: Any) -> Any:
        name = next(queue)
        state = torch.from_numpy(np.array(states[name])).to(_nets.device())
        current[:] = [(state,) if name.endswith("t") else state]
        return current[0]

    def others(*_: Any, **__: Any) -> Any:
        return current[0]

    # On the instances: whatever else a network asks of its blocks is still there.
    for i, block in enumerate(blocks):
        block.forward = first if i == 0 else others
    try:
        yield
    finally:
        for block in blocks:
            del block.forward


def _blocks(net: nn.Module, place: tuple[str, int]) -> list[Any]:
    """The blocks below ``place``."""
    base: Any = net.base_model
    return list(base.get_submodule(place[0]))[: place[1]]
