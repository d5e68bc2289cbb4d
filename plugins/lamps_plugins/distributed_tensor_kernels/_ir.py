"""From a product and the placement of its operands to one fused operator.

A product of two matrices is written as ``mk,kn->mn`` with a placement for each operand: split over
ranks along an axis (`Shard`), whole on every rank (`Replicate`), or, for results alone, a sum that
is still to be taken over ranks (`Partial`). `lower` finds the placement that the local products
have, and puts in the collectives that lead from the given placements to the wanted one; `fuse`
joins a collective with the product it feeds or is fed by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lamps.errors import ProblemError

__all__ = ["OPERATORS", "Partial", "Placement", "Product", "Replicate", "Shard", "fuse", "lower"]


@dataclass(frozen=True, slots=True)
class Shard:
    """Split over ranks along an axis."""

    axis: str


@dataclass(frozen=True, slots=True)
class Replicate:
    """Whole on every rank."""


@dataclass(frozen=True, slots=True)
class Partial:
    """One summand on every rank."""


Placement = Shard | Replicate | Partial


@dataclass(frozen=True, slots=True)
class Product:
    """A product of two operands, in the notation of einsum.

    Args:
        left: Axes of the left operand, such as ``mk``.
        right: Axes of the right one, such as ``kn``.
        out: Axes of the result; the axes that are missing here are summed.
        left_at: Placement of the left operand.
        right_at: Placement of the right one.
        out_at: Placement that is wanted of the result.
        grouped: Whether the right operand is chosen for each row by an expert id, along its first
            axis.
    """

    left: str
    right: str
    out: str
    left_at: Placement
    right_at: Placement
    out_at: Placement
    grouped: bool = False

    def __post_init__(self) -> None:
        for axes, at in (
            (self.left, self.left_at), (self.right, self.right_at), (self.out, self.out_at),
        ):  # fmt: skip
            if isinstance(at, Shard) and at.axis not in axes:
                raise ProblemError(f"operand {axes!r} has no axis {at.axis!r} to be split along")
        if isinstance(self.left_at, Partial) or isinstance(self.right_at, Partial):
            raise ProblemError("a product takes no operand that is still to be summed over ranks")


def lower(product: Product) -> list[str]:
    """The collectives and the local product, in their order.

    Raises:
        ProblemError: No single collective leads to the wanted placement.

    Example:
        >>> lower(Product("mk", "kn", "mn", Shard("m"), Shard("n"), Shard("n")))
        ['all_gather', 'gemm']
    """
    gemm = "grouped_gemm" if product.grouped else "gemm"
    summed = (set(product.left) & set(product.right)) - set(product.out)
    left, right = product.left_at, product.right_at
    if product.grouped:
        if isinstance(left, Shard) and isinstance(right, Shard) and product.out_at == left:
            return ["all_to_all", gemm, "all_to_all"]
        raise ProblemError("experts are split over ranks and rows come back where they were")
    if isinstance(left, Shard) and left == right and left.axis in summed:
        wanted = product.out_at
        if isinstance(wanted, Shard):
            return [gemm, "reduce_scatter"]
        return [gemm] if isinstance(wanted, Partial) else [gemm, "all_reduce"]
    split = {at.axis for at in (left, right) if isinstance(at, Shard)}
    if not split & summed:
        if isinstance(product.out_at, Shard) and split == {product.out_at.axis}:
            return [gemm]
        if len(split) == 2 and product.out_at == right:
            return ["all_gather", gemm]
        if not split and isinstance(product.out_at, Replicate):
            return [gemm]
    raise ProblemError(
        f"{product.left} at {left}, {product.right} at {right}: no single collective gives "
        f"{product.out} at {product.out_at}"
    )


_FUSED: dict[tuple[str, ...], str] = {
    ("all_gather", "gemm"): "ag_gemm",
    ("gemm", "reduce_scatter"): "gemm_rs",
    ("gemm", "all_reduce"): "gemm_ar",
    ("all_to_all", "grouped_gemm", "all_to_all"): "a2a_grouped_gemm",
}


def fuse(steps: Sequence[str]) -> str:
    """The fused operator of steps; the product itself where nothing is communicated.

    Example:
        >>> fuse(["gemm", "reduce_scatter"]), fuse(["gemm"])
        ('gemm_rs', 'gemm')
    """
    return _FUSED.get(tuple(steps), steps[0] if len(steps) == 1 else "+".join(steps))


OPERATORS: dict[str, Product] = {
    "ag_gemm": Product("mk", "kn", "mn", Shard("m"), Shard("n"), Shard("n")),
    "gemm_rs": Product("mk", "kn", "mn", Shard("k"), Shard("k"), Shard("m")),
    "gemm_ar": Product("mk", "kn", "mn", Shard("k"), Shard("k"), Replicate()),
    "a2a_grouped_gemm": Product(
        "tk", "ekn", "tn", Shard("t"), Shard("e"), Shard("t"), grouped=True
    ),
}
"""What the fused operators compute; attention and whole steps are graphs of their own."""
