"""Queries, keys and values for tests."""

from __future__ import annotations

import torch
from torch import Tensor


def heads(
    h: int = 4, g: int = 2, n_q: int = 200, n_k: int | None = None, d: int = 16, b: int = 1,
    seed: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Normal tensors that are sharp enough for blocks to differ."""
    stream = torch.Generator().manual_seed(seed)
    n_k = n_q if n_k is None else n_k
    q, k, v = (
        torch.randn(b, x, n, d, generator=stream) for x, n in ((h, n_q), (g, n_k), (g, n_k))
    )
    # Neighbours point the same way, as in text, so that blocks differ.
    drift = torch.randn(b, g, -(-n_k // 40), d, generator=stream).repeat_interleave(40, 2)
    drift = drift[:, :, :n_k] * 1.5
    return q + drift.repeat_interleave(h // g, 1)[:, :, n_k - n_q :], k + drift, v
