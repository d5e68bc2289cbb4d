"""Mixtures of Gaussians with full covariances, fitted to rows of which blocks are missing.

    p(x_O) = sum_k pi_k N(x_O; mu_k[O], Sigma_k[O, O])                                          (1)

where O are the observed entries of a row: what is missing is integrated out exactly. EM with the
conditional mean ``mu_M + Sigma_MO Sigma_OO^-1 (x_O - mu_O)`` and covariance ``Sigma_MM - Sigma_MO
Sigma_OO^-1 Sigma_OM`` of the missing entries (Ghahramani and Jordan 1994). Rows share at most 2^V
patterns, so each Sigma_OO is factored once a pattern and not once a row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Mixture", "em", "expected_rows", "log_joint", "start"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Mixture:
    """A mixture of K Gaussians in d dimensions.

    Args:
        weights: pi, summing to 1. Shape: [K].
        means: Shape: [K, d].
        covariances: Symmetric, positive definite. Shape: [K, d, d].
    """

    weights: Floats
    means: Floats
    covariances: Floats


def _patterns(known: NDArray[np.bool_]) -> list[tuple[NDArray[np.bool_], NDArray[np.int64]]]:
    values, of = np.unique(known, axis=0, return_inverse=True)
    return [(pattern, np.flatnonzero(of.ravel() == p)) for p, pattern in enumerate(values)]


def log_joint(x: Floats, known: NDArray[np.bool_], mixture: Mixture) -> Floats:
    """``log pi_k + log N(x_O; k)`` of every row and component.

    Shape:
        x: [n, d]; known: [n, d]; Returns [n, K]. The log likelihood of a row is the log of the
        sum of the exponentials of its row.
    """
    found = np.tile(np.log(mixture.weights), (len(x), 1))
    for seen, rows in _patterns(known):
        if not seen.any():
            continue
        for k, (mean, cov) in enumerate(zip(mixture.means, mixture.covariances, strict=True)):
            factor = np.linalg.cholesky(cov[np.ix_(seen, seen)])
            z = np.linalg.solve(factor, (x[np.ix_(rows, seen)] - mean[seen]).T)
            constant = seen.sum() * np.log(2.0 * np.pi) + 2.0 * np.log(np.diag(factor)).sum()
            found[rows, k] -= 0.5 * (constant + (z**2).sum(axis=0))
    return found


def start(
    x: Floats,
    labels: NDArray[np.int64],
    n_clusters: int,
    ridge: float,
    spread: Floats | None = None,
) -> Mixture:
    """The mixture of a hard clustering of filled rows; covariances of few rows lean on the whole.

    Args:
        x: Filled rows. Shape: [n, d].
        labels: Shape: [n].
        n_clusters: K; empty clusters start at the overall mean.
        ridge: Added to the diagonal, relative to the mean variance.
        spread: Covariance of all rows [d, d]; computed if None.
    """
    n, d = x.shape
    whole = np.cov(x.T, bias=True).reshape(d, d) if spread is None else spread
    floor = ridge * float(np.trace(whole)) / d * np.eye(d)
    counts = np.bincount(labels, minlength=n_clusters).astype(np.float64)
    means, covariances = np.tile(x.mean(axis=0), (n_clusters, 1)), np.empty((n_clusters, d, d))
    for k in range(n_clusters):
        own = x[labels == k]
        if len(own):
            means[k] = own.mean(axis=0)
        centred = own - means[k]
        # As if d + 1 rows of the whole had been seen too.
        covariances[k] = (centred.T @ centred + (d + 1) * whole) / (len(own) + d + 1) + floor
    return Mixture((counts + 1.0) / (n + n_clusters), means, covariances)


def em(
    x: Floats,
    known: NDArray[np.bool_],
    mixture: Mixture,
    *,
    rounds: int,
    prior: float,
    ridge: float,
) -> tuple[Mixture, Floats, list[float]]:
    """Fit a mixture to rows with entries missing.

    Args:
        x: Rows; entries that are not known are never read. Shape: [n, d].
        known: Shape: [n, d].
        mixture: Where to begin.
        rounds: Steps of EM.
        prior: Rows of the whole's covariance that every component is given beside its own; with 0
            and ridge 0 each step raises the likelihood.
        ridge: Added to the diagonal, relative to the mean variance of the start.

    Returns:
        The mixture, responsibilities [n, K] under it, and the mean log likelihood before each
        step and at the end.
    """
    x = np.where(known, x, 0.0)
    n, d = x.shape
    k_total = len(mixture.weights)
    whole = np.einsum("k,kij->ij", mixture.weights, mixture.covariances)
    floor = ridge * float(np.trace(whole)) / d * np.eye(d)
    patterns = _patterns(known)
    trace = []
    for _ in range(rounds):
        resp, likelihood = _responsibilities(log_joint(x, known, mixture))
        trace.append(likelihood)
        counts = resp.sum(axis=0)
        means, covariances = np.empty_like(mixture.means), np.empty_like(mixture.covariances)
        for k in range(k_total):
            filled, extra = _expected(x, patterns, mixture, k, resp[:, k])
            weight = max(counts[k], 1e-10)
            means[k] = resp[:, k] @ filled / weight
            centred = filled - means[k]
            scatter = (centred * resp[:, k, None]).T @ centred + extra
            covariances[k] = (scatter + prior * whole) / (weight + prior) + floor
        mixture = Mixture(
            counts / n + 1e-300, means, (covariances + covariances.swapaxes(1, 2)) / 2
        )
    resp, likelihood = _responsibilities(log_joint(x, known, mixture))
    return mixture, resp, [*trace, likelihood]


def expected_rows(x: Floats, known: NDArray[np.bool_], mixture: Mixture, resp: Floats) -> Floats:
    """Rows with missing entries at their expectation under the mixture. Shape: [n, d]."""
    x, patterns = np.where(known, x, 0.0), _patterns(known)
    total = np.zeros_like(x)
    for k in range(len(mixture.weights)):
        total += resp[:, k, None] * _expected(x, patterns, mixture, k, resp[:, k])[0]
    return np.where(known, x, total)


def _responsibilities(joint: Floats) -> tuple[Floats, float]:
    top = joint.max(axis=1, keepdims=True)
    e = np.exp(joint - top)
    total = e.sum(axis=1, keepdims=True)
    return e / total, float((top + np.log(total)).mean())


def _expected(
    x: Floats,
    patterns: list[tuple[NDArray[np.bool_], NDArray[np.int64]]],
    mixture: Mixture,
    k: int,
    weights: Floats,
) -> tuple[Floats, Floats]:
    """Rows filled under component k [n, d], and the covariance that filling hides [d, d]."""
    mean, cov = mixture.means[k], mixture.covariances[k]
    filled, extra = x.copy(), np.zeros_like(cov)
    for seen, rows in patterns:
        if seen.all():
            continue
        hidden = ~seen
        if seen.any():
            gain = np.linalg.solve(cov[np.ix_(seen, seen)], cov[np.ix_(seen, hidden)]).T
            shift = (x[np.ix_(rows, seen)] - mean[seen]) @ gain.T
            left = cov[np.ix_(hidden, hidden)] - gain @ cov[np.ix_(seen, hidden)]
        else:
            shift, left = np.zeros((len(rows), int(hidden.sum()))), cov
        filled[np.ix_(rows, hidden)] = mean[hidden] + shift
        extra[np.ix_(hidden, hidden)] += weights[rows].sum() * left
    return filled, extra
