"""Updates that tests of merging rules share."""

from __future__ import annotations

import torch
from lamps_plugins.model_merging._rules.lowrank import LowRank
from torch import Tensor


def dense(
    k: int = 3, layers: int = 2, m: int = 12, n: int = 10, *, seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Tensor:  # fmt: skip
    """Normal numbers. Shape: [k, layers, m, n]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(k, layers, m, n, generator=generator, dtype=dtype)


def low_rank(
    ranks: tuple[int, ...] = (2, 3, 1), layers: int = 2, m: int = 24, n: int = 20, *,
    seed: int = 0, dtype: torch.dtype = torch.float64,
) -> LowRank:  # fmt: skip
    """Factors with normal numbers."""
    generator = torch.Generator().manual_seed(seed)
    b = [torch.randn(layers, m, r, generator=generator, dtype=dtype) for r in ranks]
    a = [torch.randn(layers, r, n, generator=generator, dtype=dtype) for r in ranks]
    return LowRank(tuple(b), tuple(a))


def reordered(low: LowRank, order: tuple[int, ...]) -> LowRank:
    """The experts in another order."""
    return LowRank(tuple(low.b[i] for i in order), tuple(low.a[i] for i in order))


def rescaled(low: LowRank, factors: tuple[float, ...]) -> LowRank:
    """The same updates, split otherwise: ``(c B)(A / c)``."""
    return LowRank(
        tuple(c * b for c, b in zip(factors, low.b, strict=True)),
        tuple(a / c for c, a in zip(factors, low.a, strict=True)),
    )


def layer(low: LowRank, i: int) -> LowRank:
    """One layer of a batch."""
    return LowRank(tuple(b[i : i + 1] for b in low.b), tuple(a[i : i + 1] for a in low.a))


def relative(found: Tensor, wanted: Tensor) -> float:
    """Frobenius distance as a share of the wanted norm."""
    return float(
        torch.linalg.norm(found.double() - wanted.double()) / torch.linalg.norm(wanted.double())
    )
