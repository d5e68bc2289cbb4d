"""Orthogonal circulant transforms of vectors of any length, and dense ones to compare with.

    Phi x = irfft(c * rfft(d * x)),  d random signs, |c_j| = 1, c_0 = 1 (and c_{n/2} for even n)

Circulant matrices with a spectrum on the unit circle are orthogonal, and the signs make what they
are applied to look random: every entry of ``Phi x`` is a mix of all entries of ``x``, for
O(n log n) operations. Rows of ``Phi`` sampled at random sketch a subspace as a Gaussian matrix
does.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from lamps.errors import ConfigError


@dataclass(frozen=True)
class Circulant:
    """One orthogonal circulant transform; see the module.

    Args:
        signs: Shape: [n], each -1 or 1.
        spectrum: Shape: [n // 2 + 1] complex, each of magnitude 1.
    """

    signs: Tensor
    spectrum: Tensor

    @classmethod
    def draw(cls, n: int, seed: int, like: Tensor) -> Circulant:
        """The transform of length n that belongs to a seed, for every layer of that width.

        Args:
            n: At least 1.
            seed: Not negative.
            like: Gives dtype, float32 or float64, and device.
        """
        signs, spectrum = _draws(n, seed)
        complex_type = torch.complex128 if like.dtype == torch.float64 else torch.complex64
        return cls(
            torch.from_numpy(signs).to(like),
            torch.from_numpy(spectrum).to(like.device, complex_type),
        )

    def apply(self, x: Tensor) -> Tensor:
        """``Phi`` times each vector along the last axis. Shape: [..., n] to [..., n]."""
        n = len(self.signs)
        found: Tensor = torch.fft.irfft(self.spectrum * torch.fft.rfft(self.signs * x), n)
        return found

    def inverse(self, y: Tensor) -> Tensor:
        """``Phi^T``, the inverse, times each vector along the last axis."""
        n = len(self.signs)
        back: Tensor = torch.fft.irfft(self.spectrum.conj() * torch.fft.rfft(y), n)
        return self.signs * back


class Sketch(Protocol):
    """Maps vectors of length n to shorter ones, the same way for all experts."""

    def __call__(self, x: Tensor) -> Tensor:
        """Shape: [L, R, n] to [L, R, q]."""


@dataclass(frozen=True)
class SampledCirculant:
    """Entries of ``Phi x``, scaled so that squared lengths are kept on average.

    Args:
        transform: The transform.
        rows: Which entries, for all layers or for each. Shape: [q] or [L, q] int64.
        scale: Factor of each entry. Shape: [1] or [L, q].
    """

    transform: Circulant
    rows: Tensor
    scale: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Shape: [L, R, n] to [L, R, q]."""
        y = self.transform.apply(x)
        if self.rows.ndim == 1:
            return y.index_select(-1, self.rows) * self.scale
        rows = self.rows.unsqueeze(1).expand(-1, x.shape[1], -1)
        return y.gather(-1, rows) * self.scale.unsqueeze(1)


@dataclass(frozen=True)
class Dense:
    """A dense sketching matrix: the Gaussian control, and the identity for a side left alone.

    Args:
        matrix: Shape: [q, n]; None for the identity.
    """

    matrix: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Shape: [L, R, n] to [L, R, q]."""
        return x if self.matrix is None else x @ self.matrix.T


def uniform_sketch(n: int, size: int, seed: int, like: Tensor) -> SampledCirculant:
    """Entries of ``Phi x`` drawn uniformly without replacement, the same for all layers.

    Args:
        n: Length of the vectors.
        size: Entries kept, 1 to n.
        seed: Not negative.
        like: Gives dtype and device.
    """
    rows = torch.from_numpy(np.sort(np.argsort(-_noise(n, seed))[:size])).to(like.device)
    return SampledCirculant(
        Circulant.draw(n, seed, like), rows, like.new_tensor([math.sqrt(n / size)])
    )


def importance_sketch(x: Tensor, size: int, seed: int) -> SampledCirculant:
    """Entries drawn without replacement, the likelier the larger they are over all vectors.

    Half of the probability is spread evenly, so that no entry is out of reach; entry j is scaled
    by ``1 / sqrt(size p_j)``.

    Args:
        x: Vectors that the sketch is made for; their own lengths do not count. Shape: [L, R, n].
        size: Entries kept, 1 to n.
        seed: Not negative.
    """
    n = x.shape[-1]
    transform = Circulant.draw(n, seed, x)
    lengths = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    y = transform.apply(x / torch.where(lengths > 0, lengths, 1))
    weight = y.square().sum(1)
    total = weight.sum(-1, keepdim=True)
    p = 0.5 * weight / torch.where(total > 0, total, 1) + 0.5 / n
    p = p / p.sum(-1, keepdim=True)
    # Gumbel noise shared by all layers of a width: a layer's draw does not depend on its batch.
    keys = p.double().log() + torch.from_numpy(_noise(n, seed)).to(x.device)
    rows = keys.topk(size, -1).indices.sort(-1).values
    return SampledCirculant(transform, rows, (size * p.gather(-1, rows)).rsqrt())


def gaussian_sketch(n: int, size: int, seed: int, like: Tensor) -> Dense:
    """Independent normal entries of variance ``1 / size``: what the transform is measured against.

    Args:
        n: Length of the vectors.
        size: Length of their sketches.
        seed: Not negative.
        like: Gives dtype and device.
    """
    matrix = _generator(seed, n, 2).standard_normal((size, n)) / math.sqrt(size)
    return Dense(torch.from_numpy(matrix).to(like))


@functools.lru_cache(maxsize=16)
def _draws(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = _generator(seed, n, 0)
    signs = rng.integers(0, 2, n) * 2.0 - 1.0
    spectrum = np.exp(1j * rng.uniform(0, 2 * math.pi, n // 2 + 1))
    spectrum[0] = 1
    if n % 2 == 0:
        spectrum[-1] = 1
    return signs, spectrum


@functools.lru_cache(maxsize=16)
def _noise(n: int, seed: int) -> np.ndarray:
    return _generator(seed, n, 1).gumbel(size=n)


def _generator(seed: int, n: int, purpose: int) -> np.random.Generator:
    if seed < 0 or n < 1:
        raise ConfigError(f"seed {seed} and length {n} given; expected seed >= 0 and length >= 1")
    return np.random.default_rng((seed, n, purpose))
