"""DARE: drop entries of each update at random and rescale the rest, before another rule.

Paper: Yu et al., Language models are super Mario, ICML 2024, arXiv 2311.03099, section 3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lamps.errors import ConfigError
from lamps_plugins.model_merging._rules.checks import checked


def mask_seeds(seed: int, experts: Sequence[str], layers: Sequence[str]) -> np.ndarray:
    """One seed per expert and layer, from their names.

    A mask then belongs to an expert and a layer, whatever the order of the experts and however
    layers are batched.

    Shape:
        Returns [K, L] uint64.
    """
    return np.array(
        [
            [
                int.from_bytes(
                    hashlib.blake2b(f"{seed}\0{e}\0{x}".encode(), digest_size=8).digest()
                )
                for x in layers
            ]
            for e in experts
        ],
        dtype=np.uint64,
    )


def dare(deltas: Tensor, drop: float, seeds: np.ndarray) -> Tensor:
    """``m * D / (1 - drop)`` with ``m`` Bernoulli(1 - drop), so that the mean is ``D``.

    The result goes into `linear.task_arithmetic` or `ties.ties_model`.

    Args:
        deltas: Shape: [K, L, m, n] or [K, L, d].
        drop: Probability that an entry is dropped, in [0, 1); the paper's p.
        seeds: Seed of each mask; see `mask_seeds`. Shape: [K, L] integer.

    Returns:
        Shape: that of ``deltas``.

    Raises:
        ConfigError: ``drop`` or the shape of ``seeds``.
    """
    deltas = checked(deltas)
    if not 0 <= drop < 1:
        raise ConfigError(f"drop is {drop}; it must be at least 0 and less than 1")
    if seeds.shape != tuple(deltas.shape[:2]):
        raise ConfigError(
            f"seeds have shape {list(seeds.shape)}; expected one per expert and layer, "
            f"{list(deltas.shape[:2])}"
        )
    result = torch.empty_like(deltas)
    for k, layer in np.ndindex(*seeds.shape):
        draws = np.random.default_rng(int(seeds[k, layer])).random(
            tuple(deltas.shape[2:]), dtype=np.float32
        )
        kept = torch.from_numpy(draws >= drop).to(deltas.device)
        result[k, layer] = deltas[k, layer] * kept / (1 - drop)
    return result
