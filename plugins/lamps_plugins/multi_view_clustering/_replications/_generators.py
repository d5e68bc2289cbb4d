"""Made-up views whose truth is known, so that claims have an exact answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STD = (0.5, 1.0, 0.7, 1.2)
"""Deviations of the four views' errors."""

WITHIN = 0.6
"""Correlation of the errors inside each of two pairs of views; none between the pairs."""


def true_correlation() -> Array:
    """R of `correlated_errors`: two blocks of two views. Shape: [4, 4]."""
    block = np.array([[1.0, WITHIN], [WITHIN, 1.0]])
    return np.kron(np.eye(2), block)


def optimal_mse() -> tuple[float, float]:
    """Squared error of a latent under `true_correlation`, pooled by R and pooled as if R = I.

    The first is ``1 / (1' Sigma^-1 1)``; the second ``w' Sigma w`` with the weights of the product
    of experts. About 0.164 and 0.194.
    """
    spread = np.diag(STD)
    sigma = spread @ true_correlation() @ spread
    weights = np.array(STD) ** -2.0
    weights /= weights.sum()
    return float(1.0 / np.linalg.inv(sigma).sum()), float(weights @ sigma @ weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Four views that say a latent with errors.

    Args:
        latent: What they are about. Shape: [n, 4].
        said: What each says. Shape: [n, 4 views, 4].
        std: Deviations of the errors. Shape: [n, 4 views, 4].
        cluster: Component of each row. Shape: [n] int64.
    """

    latent: Array
    said: Array
    std: Array
    cluster: NDArray[np.int64]


def correlated_errors(n: int, seed: int) -> Errors:
    """Five clusters in four dimensions, seen by four views whose errors go in pairs."""
    rng = np.random.default_rng(seed)
    cluster = rng.integers(5, size=n)
    latent = 3.0 * rng.normal(size=(5, 4))[cluster] + rng.normal(size=(n, 4))
    root = np.linalg.cholesky(true_correlation())
    errors = np.einsum("vw,nwq->nvq", root, rng.normal(size=(n, 4, 4)))
    std = np.broadcast_to(np.array(STD)[None, :, None], errors.shape)
    return Errors(latent=latent, said=latent[:, None] + std * errors, std=std, cluster=cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """Views made of a shared latent and one of their own.

    Args:
        shared: z. Shape: [n, q].
        own: s_v. Shape: [n, V, r].
        views: x_v. Shape: V times [n, d] float32.
        cluster: Component of z. Shape: [n] int64.
        mixing: A_v [q + r, d] and B_v [d, d] of each view.
    """

    shared: Array
    own: Array
    views: tuple[NDArray[np.float32], ...]
    cluster: NDArray[np.int64]
    mixing: tuple[tuple[Array, Array], ...]


NOISE = 0.1


def known_factors(
    n: int, seed: int, *, n_views: int = 3, width: int = 40, shared: int = 4, own: int = 4
) -> Factors:
    """``x_v = tanh([z; s_v] A_v) B_v + 0.1 noise``, z of five clusters, s_v standard normal."""
    rng = np.random.default_rng(seed)
    cluster = rng.integers(5, size=n)
    z = 2.0 * rng.normal(size=(5, shared))[cluster] + 0.5 * rng.normal(size=(n, shared))
    s = rng.normal(size=(n, n_views, own))
    mixing, views = [], []
    for v in range(n_views):
        a = rng.normal(size=(shared + own, width)) / np.sqrt(shared + own)
        b = rng.normal(size=(width, width)) / np.sqrt(width)
        mixing.append((a, b))
        views.append(_seen(np.concatenate([z, s[:, v]], 1), a, b, rng))
    return Factors(shared=z, own=s, views=tuple(views), cluster=cluster, mixing=tuple(mixing))


def conditional_draws(
    factors: Factors, view: int, rows: NDArray[np.int64], *, draws: int, seed: int
) -> Array:
    """A view of some rows drawn anew given their z, the view's own latent being free.

    Shape:
        Returns [draws, len(rows), d].
    """
    rng = np.random.default_rng([seed, view])
    a, b = factors.mixing[view]
    z, r = factors.shared[rows], factors.own.shape[2]
    return np.stack(
        [
            _seen(np.concatenate([z, rng.normal(size=(len(rows), r))], 1), a, b, rng)
            for _ in range(draws)
        ]
    ).astype(np.float64)


def _seen(latent: Array, a: Array, b: Array, rng: np.random.Generator) -> NDArray[np.float32]:
    clean = np.tanh(latent @ a) @ b
    return (clean + NOISE * rng.normal(size=clean.shape)).astype(np.float32)
