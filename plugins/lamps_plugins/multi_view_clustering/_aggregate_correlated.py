"""Views as experts with correlated errors, pooled into one Gaussian per latent dimension.

Source: Winkler, Combining probability distributions from dependent information sources, Management
Science 1981; used by CoDE-VAE (ICML 2025) with one fixed correlation and by ACOVA (arXiv
2608.15757) with a learned one. View ``v`` says ``mu_v`` with error ``N(0, sigma_v^2)``; errors of
two views correlate by ``R``. Over the observed views ``O`` of a row, for each dimension,

    Sigma = D R_O D,   D = diag(sigma),   P = Sigma^-1,   s = 1' P 1                            (1)
    w = P 1 / s,       mean = w' mu,      variance = 1 / s                                      (2)

the unbiased combination of least variance. Weights sum to 1 and may be negative: a noisy view that
goes along with a good one is subtracted. ``R = I`` is the product of experts.

Two forms of the same numbers: `pooled` factors ``R_O`` once for each pattern of observed views,
because ``Sigma^-1 = D^-1 R_O^-1 D^-1``, and costs ``O(n q V^2)``; `pooled_dense` inverts a matrix
for every row and dimension, as (1) reads, and is the oracle of the first. With
``block="masked-inverse"`` both invert ``R`` of all views and mask the inverse, as public code
does: that conditions on missing views having no error at all instead of leaving them out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Block = Literal["observed", "masked-inverse"]

SHRINK = 1e-5
"""Share of the identity that is mixed into ``R`` before it is inverted; exact for ``R = I``."""


def pooled(
    mean: Tensor, std: Tensor, mask: Tensor, correlation: Tensor, *, block: Block = "observed"
) -> tuple[Tensor, Tensor, Tensor]:
    """Equations (1) and (2), one factorisation for each pattern of observed views.

    Args:
        mean: What each view says.
        std: Its standard deviation, positive.
        mask: Which views are observed, at least one a row.
        correlation: One matrix for all dimensions, or one for each of G groups of them, whose
            sizes differ by one at most.
        block: See the module's docstring.

    Shape:
        mean, std: [n, V, q]; mask: [n, V] bool; correlation: [V, V] or [G, V, V].

    Returns:
        Mean [n, q], variance [n, q] and weights [n, V, q]; weights of missing views are 0.
    """
    import torch

    q = mean.shape[2]
    groups = correlation.reshape(-1, *correlation.shape[-2:])
    patterns, which = patterns_of(mask)
    inverses = pattern_inverses(groups, patterns, block=block)
    inverses = inverses.index_select(0, which)  # [n, G, V, V]
    precision = torch.where(mask[:, :, None], 1.0 / std, 0.0)
    scaled = precision.transpose(1, 2)  # [n, q, V]
    if len(groups) == 1:  # all dimensions of a row share one matrix
        mixed = scaled @ inverses[:, 0]
    else:
        mixed = torch.einsum("nqv,nqvw->nqw", scaled, inverses[:, group_of(q, len(groups))])
    product = mixed.transpose(1, 2) * precision
    total = product.sum(1)
    weights = product / total[:, None]
    return (weights * mean).sum(1), 1.0 / total, weights


def patterns_of(mask: Tensor) -> tuple[Tensor, Tensor]:
    """The sets of observed views that occur, [m, V] bool, and which of them each row has, [n]."""
    import torch

    if mask.shape[1] > 62:  # more views than bits
        found: tuple[Tensor, Tensor] = torch.unique(mask, dim=0, return_inverse=True)
        return found
    bits: Tensor = 2 ** torch.arange(mask.shape[1])
    codes, which = torch.unique((mask * bits).sum(1), return_inverse=True)
    sets: Tensor = (codes[:, None] & bits) > 0
    return sets, which


def group_of(q: int, n_groups: int) -> Tensor:
    """The group of each of q latent dimensions: contiguous, as equal as can be. Shape: [q]."""
    import torch

    groups: Tensor = torch.arange(q) * n_groups // q
    return groups


def pattern_inverses(
    correlation: Tensor, patterns: Tensor, *, block: Block = "observed"
) -> Tensor:
    """``R_O^-1`` of each pattern, zero outside the observed block.

    Shape:
        correlation: [G, V, V]; patterns: [m, V] bool; returns [m, G, V, V].
    """
    import torch

    eye = torch.eye(correlation.shape[-1], dtype=correlation.dtype)
    mixed = (1.0 - SHRINK) * correlation + SHRINK * eye
    both = (patterns[:, :, None] & patterns[:, None, :])[:, None]  # [m, 1, V, V]
    if block == "observed":
        blocks = torch.where(both, mixed, eye)  # missing views decouple
    else:
        blocks = mixed.expand(len(patterns), *mixed.shape)
    inverses: Tensor = torch.where(both, torch.linalg.inv(blocks), 0.0)
    return inverses


def pooled_dense(
    mean: Tensor, std: Tensor, mask: Tensor, correlation: Tensor, *, block: Block = "observed"
) -> tuple[Tensor, Tensor, Tensor]:
    """The numbers of `pooled` by one inverse for each row and dimension; same arguments."""
    import torch

    groups = correlation.reshape(-1, *correlation.shape[-2:])
    q = mean.shape[2]
    eye = torch.eye(mean.shape[1], dtype=mean.dtype)
    each = groups[group_of(q, len(groups))]  # [q, V, V]
    each = (1.0 - SHRINK) * each + SHRINK * eye
    spread = std.transpose(1, 2)
    sigma = spread[..., :, None] * spread[..., None, :] * each  # [n, q, V, V]
    both = (mask[:, :, None] & mask[:, None, :])[:, None]
    if block == "observed":
        sigma = torch.where(both, sigma, eye)
    inverse = torch.where(both, torch.cholesky_inverse(torch.linalg.cholesky(sigma)), 0.0)
    product = inverse.sum(-1).transpose(1, 2)
    total = product.sum(1)
    weights = product / total[:, None]
    return (weights * mean).sum(1), 1.0 / total, weights


def correlation_of(free: Tensor) -> Tensor:
    """A correlation matrix from any square matrix: the normalised Cholesky factor.

    ``L`` is the strict lower triangle with ``exp(diagonal)``; rows are normalised, ``R = L L'``.
    Always positive definite with unit diagonal.

    Shape:
        free: [..., V, V]; returns the same.
    """
    import torch

    lower = free.tril(-1) + torch.diag_embed(free.diagonal(dim1=-2, dim2=-1).exp())
    rows = lower / lower.norm(dim=-1, keepdim=True)
    matrix: Tensor = rows @ rows.transpose(-1, -2)
    return matrix


def free_of(correlation: NDArray[np.float64]) -> NDArray[np.float64]:
    """A preimage of `correlation_of`; the matrix is made a positive definite correlation first.

    Shape:
        correlation: [V, V]; returns the same.
    """
    lower = np.linalg.cholesky(lifted(correlation))
    free: NDArray[np.float64] = np.tril(lower, -1) + np.diag(np.log(np.diag(lower)))
    return free


def lifted(matrix: NDArray[np.float64], *, floor: float = 1e-5) -> NDArray[np.float64]:
    """The matrix made symmetric, its eigenvalues raised to a floor, its diagonal scaled to 1.

    A correlation matrix whose eigenvalues exceed the floor stays as it is.

    Shape:
        matrix: [V, V]; returns the same.
    """
    symmetric = (matrix + matrix.T) / 2.0
    values, vectors = np.linalg.eigh(symmetric)
    if values.min() < floor:
        symmetric = (vectors * np.maximum(values, floor)) @ vectors.T
    scale = 1.0 / np.sqrt(np.diag(symmetric))
    unit: NDArray[np.float64] = symmetric * scale[:, None] * scale[None, :]
    np.fill_diagonal(unit, 1.0)
    return unit


def equicorrelated(n_views: int, rho: float) -> NDArray[np.float64]:
    """``(1 - rho) I + rho 1 1'``: one correlation between all views. Shape: [V, V]."""
    return (1.0 - rho) * np.eye(n_views) + rho * np.ones((n_views, n_views))


def co_observed(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which pairs of views some row shows together; true on the diagonal. Shape: [n, V] to [V, V].

    The correlation of other pairs cannot be known from the data.
    """
    seen = mask.astype(np.float64)
    together: NDArray[np.bool_] = seen.T @ seen > 0
    np.fill_diagonal(together, True)
    return together


def cosine_correlation(
    latents: NDArray[np.floating], mask: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Mean cosine similarity of two views' latents: ACOVA's start.

    Over the rows that show all views where there are any, else over those that show the pair; 0
    for pairs that none shows. Lifted to a positive definite correlation.

    Shape:
        latents: [n, V, q]; mask: [n, V] bool; returns [V, V].
    """
    unit, used = _centred_rows(latents, mask, centre=False)
    return lifted(_pair_means(unit, used))


def pearson_correlation(
    latents: NDArray[np.floating], mask: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """As `cosine_correlation`, with every latent centred over a view's rows first."""
    unit, used = _centred_rows(latents, mask, centre=True)
    return lifted(_pair_means(unit, used))


def _centred_rows(
    latents: NDArray[np.floating], mask: NDArray[np.bool_], *, centre: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    complete = np.asarray(mask.all(axis=1))
    used = (mask & complete[:, None] if complete.any() else mask).astype(np.float64)
    values = latents.astype(np.float64)
    if centre:
        counts = np.maximum(used.sum(0), 1.0)
        values = values - (values * used[:, :, None]).sum(0) / counts[:, None]
    norms = np.linalg.norm(values, axis=2, keepdims=True)
    return values / np.maximum(norms, 1e-12), used


def _pair_means(unit: NDArray[np.float64], used: NDArray[np.float64]) -> NDArray[np.float64]:
    pairs = used.T @ used
    sums = np.einsum("nvq,nwq,nv,nw->vw", unit, unit, used, used, optimize=True)
    means: NDArray[np.float64] = np.where(pairs > 0, sums / np.maximum(pairs, 1.0), 0.0)
    np.fill_diagonal(means, 1.0)
    return means


def difference_correlation(
    mean: NDArray[np.floating], std: NDArray[np.floating], mask: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Error correlations from how much views disagree: the moment form of the contrast objective.

    The truth cancels in ``mu_v - mu_w``, so ``Var(mu_v - mu_w) = sigma_v^2 + sigma_w^2 - 2 rho
    sigma_v sigma_w``. Solved for ``rho`` with sums over co-observed rows, averaged over
    dimensions; 0 for pairs that no row shows together; lifted to a positive definite correlation.

    Shape:
        mean, std: [n, V, q]; mask: [n, V] bool; returns [V, V].
    """
    n_views = mask.shape[1]
    found: NDArray[np.float64] = np.eye(n_views)
    for v in range(n_views):
        for w in range(v + 1, n_views):
            rows = mask[:, v] & mask[:, w]
            if rows.sum() < 2:
                continue
            gap = np.var(mean[rows, v].astype(np.float64) - mean[rows, w], axis=0)
            a, b = (np.asarray(std[rows, i], dtype=np.float64) for i in (v, w))
            rho = ((a**2 + b**2).mean(0) - gap) / (2.0 * (a * b).mean(0))
            found[v, w] = found[w, v] = np.clip(rho.mean(), -1.0, 1.0)
    return lifted(found)
