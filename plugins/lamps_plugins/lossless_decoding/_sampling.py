"""Choosing the next token: greedily, or by chance that is fixed by place and seed.

Sampling takes the largest of ``logits / T + G`` with Gumbel noise ``G`` of its own for each token
and position, which is an exact draw from the softmax (Gumbel 1954; Maddison et al., A* sampling,
2014). The noise depends on seed and position alone, so every way of decoding draws the same token
at the same place: sampled texts can be compared token by token, as greedy ones can, and a draft
model that uses the same noise proposes what the large one is likely to draw (drafter-invariant
speculative decoding; Daliri et al., arXiv 2408.07978).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lamps.errors import ConfigError, MethodFailed

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["GREEDY", "Sampler"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """How tokens are chosen.

    Args:
        temperature: 0 for the likeliest token, else the temperature of the softmax.
        top_p: Draw only from the likeliest tokens that together have this probability.
        seed: Of the noise.

    Raises:
        ConfigError: A value lies outside its range.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0.0):
            raise ConfigError(f"temperature is {self.temperature}, expected 0 or more")
        if not 0.0 < self.top_p <= 1.0:
            raise ConfigError(f"top_p is {self.top_p}, expected a share in (0, 1]")
        if self.seed < 0:
            raise ConfigError(f"seed is {self.seed}, expected 0 or more")

    def scores(self, logits: Tensor, positions: Sequence[int]) -> Tensor:
        """Numbers whose largest is the choice. Shape: [n, V], as ``logits``.

        Args:
            logits: Of n places. Shape: [n, V].
            positions: Position of the token that is chosen at each place, counted from the start
                of the text.
        """
        if self.temperature == 0.0:
            return logits
        import torch

        kept = logits.float() / self.temperature
        if self.top_p < 1.0:
            ordered, order = kept.softmax(-1).sort(-1, descending=True)
            cut = ordered.cumsum(-1) - ordered >= self.top_p
            kept = kept.masked_fill(torch.zeros_like(cut).scatter(-1, order, cut), float("-inf"))
        size = logits.shape[-1]
        rows = {position: self._noise(position, size) for position in dict.fromkeys(positions)}
        noise = torch.from_numpy(np.stack([rows[position] for position in positions]))
        return kept + noise.to(kept.device)

    def _noise(self, position: int, size: int) -> NDArray[np.float32]:
        rng = np.random.Generator(np.random.Philox(key=[self.seed, position]))
        return rng.gumbel(size=size).astype(np.float32)

    def choose(self, logits: Tensor, positions: Sequence[int]) -> list[int]:
        """The token at each of n places.

        Raises:
            MethodFailed: Logits are not numbers.
        """
        best = self.scores(logits, positions).max(-1)
        if not bool(best.values.isfinite().all()):
            raise MethodFailed(
                f"logits for position {min(positions)} are not finite; the model's weights or "
                "type are broken, load it in float32"
            )
        found: list[int] = best.indices.tolist()
        return found


GREEDY = Sampler()
"""The likeliest token, always."""
