"""The embedding that stands for a token to come: where it starts, and how it follows the text.

Source: Goel et al., arXiv 2603.17942 (mean of the prompt's embeddings, and its ablations); zero
and a random direction are controls of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.lossless_decoding._lm import FrozenLm

__all__ = ["CONTROLS", "INITS", "Init", "MaskTokens"]

Init = Literal["mean", "last-k", "sample", "random", "zero"]
INITS: tuple[Init, ...] = ("mean", "last-k", "sample")
CONTROLS: tuple[Init, ...] = ("random", "zero")


class MaskTokens:
    """The k mask embeddings of one text.

    Args:
        lm: Where embeddings come from.
        prompt: The text's beginning.
        k: Number of masks.
        init: ``mean`` of the prompt's embeddings; its ``last-k``, one a mask; a ``sample`` of the
            normal distribution with mean and variance of the whole table; a ``random`` direction
            as long as the mean; or ``zero``.
        rate: lambda of ``m <- m + lambda (e_new - m)`` for each emitted token; the controls stay.
        seed: Of sample and direction.

    Attributes:
        vectors: The embeddings. Shape: [k, d].
    """

    def __init__(
        self,
        lm: FrozenLm,
        prompt: Sequence[int],
        *,
        k: int,
        init: Init,
        rate: float,
        seed: int = 0,
    ) -> None:
        import torch

        self._lm = lm
        self._rate = 0.0 if init in CONTROLS else rate
        own = lm.embed(prompt)
        mean = own.mean(0, keepdim=True)
        drawn = torch.from_numpy(
            np.random.default_rng(seed).standard_normal(lm.width).astype(np.float32)
        ).to(mean)
        if init == "last-k":
            rows = own[-k:]
            first = torch.cat([rows[:1].expand(k - len(rows), -1), rows])
        elif init == "sample":
            centre, spread = lm.table_moments()
            first = (centre + spread * drawn)[None]
        elif init == "random":
            first = (drawn / drawn.norm() * mean.norm())[None]
        else:
            first = mean if init == "mean" else torch.zeros_like(mean)
        self.vectors: Tensor = first.expand(k, -1)

    def follow(self, tokens: Sequence[int]) -> None:
        """Move towards emitted tokens, one after the other."""
        if self._rate == 0.0:
            return
        for embedding in self._lm.embed(tokens):
            self.vectors = self.vectors + self._rate * (embedding - self.vectors)
