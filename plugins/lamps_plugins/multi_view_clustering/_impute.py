"""Ways to fill missing views: nearest rows, low rank, ridge regression; arrays in, arrays out.

All of them read observed cells only and return all V views [n, d_v] float32, observed cells as
they were.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from lamps_plugins._views.data import ViewData

__all__ = ["knn", "ridge", "shared_distances", "shrunk", "soft"]

Arrays = tuple[NDArray[np.float32], ...]

_ROWS_AT_ONCE = 1000


def shared_distances(data: ViewData, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Squared distances over the features that both rows have, scaled up to all features.

    NaN where two rows share no view. Shape: [len(rows), n].
    """
    total = np.zeros((len(rows), data.n))
    weight = np.zeros_like(total)
    for v, array in enumerate(data.arrays):
        both = data.mask[rows, v][:, None] & data.mask[:, v]
        x = array.astype(np.float64)
        squares = (x**2).sum(axis=1)
        d = squares[rows][:, None] - 2.0 * x[rows] @ x.T + squares
        total += np.where(both, np.maximum(d, 0.0), 0.0)
        weight += both * float(x.shape[1])
    with np.errstate(invalid="ignore", divide="ignore"):
        found: NDArray[np.float64] = total / weight * float(sum(data.dims))
    return found


def knn(data: ViewData, neighbours: int) -> Arrays:
    """The mean of the nearest rows that have the view, by `shared_distances`.

    As `sklearn.impute.KNNImputer` with uniform weights does, the overall mean where no row that
    has the view shares another; views being missing whole, one ranking a view serves all features.
    """
    filled = [array.copy() for array in data.arrays]
    lacking = np.flatnonzero(~data.complete)
    for start in range(0, len(lacking), _ROWS_AT_ONCE):
        rows = lacking[start : start + _ROWS_AT_ONCE]
        distances = shared_distances(data, rows)
        for v in range(data.n_views):
            missing = ~data.mask[rows, v]
            donors = np.flatnonzero(data.mask[:, v])
            if missing.any():
                d = distances[np.ix_(missing, donors)]
                filled[v][rows[missing]] = _donated(d, data.arrays[v][donors], neighbours)
    return tuple(filled)


def _donated(
    d: NDArray[np.float64], values: NDArray[np.float32], neighbours: int
) -> NDArray[np.float32]:
    """Means of the nearest donors of each row, [rows, d_v]."""
    k = min(neighbours, d.shape[1])
    d = np.where(np.isnan(d), np.inf, d)
    # A stable sort of few candidates, so that ties fall to the first rows in any chunk.
    near = np.argsort(d, axis=1, kind="stable")[:, :k]
    usable = np.isfinite(np.take_along_axis(d, near, axis=1)).astype(np.float64)
    count = usable.sum(axis=1)
    sums = np.einsum("rk,rkd->rd", usable, values[near].astype(np.float64))
    means = sums / np.maximum(count, 1.0)[:, None]
    means[count == 0] = values.mean(axis=0)
    found: NDArray[np.float32] = means.astype(np.float32)
    return found


def soft(data: ViewData, shrink: float, rounds: int) -> Arrays:
    """Low-rank completion: ``X <- S_lambda(P(X) + P'(X_hat))``, from the mean on.

    Args:
        data: The views; each is divided by sqrt(d_v) meanwhile.
        shrink: lambda as a share of the largest singular value of the observed matrix.
        rounds: Repetitions.
    """
    scales = [np.sqrt(d) for d in data.dims]
    x = np.concatenate([a / s for a, s in zip(data.arrays, scales, strict=True)], axis=1)
    x = x.astype(np.float64)
    known = np.repeat(data.mask, data.dims, axis=1)
    bound = shrink * float(np.linalg.norm(x, 2))
    guess = np.zeros_like(x)
    for _ in range(rounds):
        guess = shrunk(np.where(known, x, guess), bound)
    filled = np.where(known, x, guess)
    edges = np.cumsum([0, *data.dims])
    return tuple(
        (filled[:, a:b] * s).astype(np.float32)
        for (a, b), s in zip(itertools.pairwise(edges), scales, strict=True)
    )


def shrunk(x: NDArray[np.float64], bound: float) -> NDArray[np.float64]:
    """``S_bound(x)``: singular values lowered by a bound, none below 0. Shape: [n, d] to [n, d].

    By the eigenvectors of the smaller Gram matrix, which takes a fraction of a full
    decomposition; what it loses in precision are small singular values, and those go anyway.
    """
    wide = x.shape[1] > x.shape[0]
    tall = x.T if wide else x
    squares, right = np.linalg.eigh(tall.T @ tall)
    values = np.sqrt(np.maximum(squares, 0.0))
    share = np.maximum(values - bound, 0.0) / np.where(values > 0.0, values, 1.0)
    found = (tall @ (right * share)) @ right.T
    return np.asarray(found.T if wide else found)


def ridge(data: ViewData, alpha: float) -> Arrays:
    """Ridge regression from the observed views to each missing one, one fit a missing pattern.

    Trained on the rows that have the target and all of the pattern's views; where there are none
    on the rows that have the target, hidden inputs at 0, the mean.

    Args:
        data: The views, standardised.
        alpha: Penalty per training row, unitless.
    """
    filled = [array.copy() for array in data.arrays]
    patterns, of = np.unique(data.mask, axis=0, return_inverse=True)
    for p, pattern in enumerate(patterns):
        rows = np.flatnonzero(of.ravel() == p)
        inputs = [data.arrays[v] / np.sqrt(data.dims[v]) for v in np.flatnonzero(pattern)]
        x = np.concatenate(inputs, axis=1).astype(np.float64)
        for v in np.flatnonzero(~pattern):
            wanted = data.mask[:, v] & data.mask[:, pattern].all(axis=1)
            if wanted.sum() < 2:
                wanted = data.mask[:, v]
            y = data.arrays[v].astype(np.float64)
            filled[v][rows] = _ridge(x[wanted], y[wanted], x[rows], alpha)
    return tuple(filled)


def _ridge(
    x: NDArray[np.float64], y: NDArray[np.float64], new: NDArray[np.float64], alpha: float
) -> NDArray[np.float64]:
    centre_x, centre_y = x.mean(axis=0), y.mean(axis=0)
    x, y, new = x - centre_x, y - centre_y, new - centre_x
    penalty = alpha * len(x) / x.shape[1]
    if x.shape[1] <= len(x):
        gram = x.T @ x + penalty * np.eye(x.shape[1])
        found: NDArray[np.float64] = new @ np.linalg.solve(gram, x.T @ y)
    else:
        gram = x @ x.T + penalty * np.eye(len(x))
        found = new @ x.T @ np.linalg.solve(gram, y)
    return np.asarray(found + centre_y)
