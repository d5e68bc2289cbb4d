"""Carrying an update between networks module by module: what Theseus and its controls share.

A control differs in one thing only: where the maps of a module come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lamps.errors import ProblemError
from lamps_plugins.task_update_transfer._transport import carried

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.task_update_transfer._lineage import Lineage
    from lamps_plugins.task_update_transfer._problem import TransferProblem

MapOf = Callable[[str, str], "Tensor"]
"""From a module and ``in`` or ``out`` to a partial isometry [d_a, d_b] float64."""

PARTS = ("all", "attention", "feed-forward")
"""What may be carried."""


def module_of(name: str) -> str:
    """The module that a tensor belongs to.

    Example:
        >>> module_of("encoder.layer.0.output.dense.weight")
        'encoder.layer.0.output.dense'
    """
    return name.rsplit(".", 1)[0]


def chosen(problem: TransferProblem, fidelity: float, part: str, norms: str) -> tuple[str, ...]:
    """Tensors of the blocks that are carried; tables of embeddings never are.

    Args:
        problem: The instance.
        fidelity: The landmark.
        part: One of `PARTS`.
        norms: ``carried``, or ``zero`` to leave scales and shifts of norms as they are.
    """
    names = [n for n in problem.names(fidelity) if not problem.is_table(n)]
    if part != "all":
        names = [n for n in names if (".attention." in n) == (part == "attention")]
    if norms == "zero":
        names = [n for n in names if not is_norm(problem.lineage, module_of(n))]
    return tuple(names)


def is_norm(lineage: Lineage, module: str) -> bool:
    """Whether a module's weight is a vector."""
    info = lineage.source.encoder.get(f"{module}.weight")
    return info is not None and len(info.shape) == 1


def carry(
    lineage: Lineage, names: Sequence[str], map_of: MapOf, alpha: float
) -> dict[str, Tensor]:
    """``alpha`` times the task update of some tensors, carried to the target's widths.

    Raises:
        ProblemError: A carried update has not the shape of the target's tensor.
    """
    result: dict[str, Tensor] = {}
    for name in names:
        update, module = lineage.task_update(name), module_of(name)
        t_in = map_of(module, "in") if update.ndim == 2 else None
        value = alpha * carried(update, t_in, map_of(module, "out"))
        wanted = lineage.target.encoder[name].shape
        if tuple(value.shape) != wanted:
            raise ProblemError(
                f"the carried update of {name!r} has shape {list(value.shape)}, the target has "
                f"{list(wanted)}; weights must be stored as [out, in]"
            )
        result[name] = value
    return result


def widths(lineage: Lineage, module: str, side: str) -> tuple[int, int]:
    """Width of a module's input or output in the source and in the target."""
    found = []
    for weights in (lineage.source.encoder, lineage.target.encoder):
        shape = weights[f"{module}.weight"].shape
        found.append(shape[-1] if side == "in" else shape[0])
    return found[0], found[1]


def remembered(map_of: MapOf) -> MapOf:
    """The same maps, each made once."""
    known: dict[tuple[str, str], Tensor] = {}

    def found(module: str, side: str) -> Tensor:
        if (module, side) not in known:
            known[module, side] = map_of(module, side)
        return known[module, side]

    return found
