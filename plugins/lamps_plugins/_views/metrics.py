"""Measures of a clustering against truth, and against groups; pure functions of arrays.

With the contingency table ``n_kj`` (rows of cluster k in class j):

    accuracy = max over one-to-one maps of clusters to classes of the share of rows that agree
    nmi      = 2 I(y; c) / (H(y) + H(c)),  0 where either side is constant
    purity   = (1 / n) sum_k max_j n_kj
    balance  = min_k ( min_t n_kt / max_t n_kt ),  MNCE = min_k H(t | k) / H(t)

with ``n_kt`` rows of cluster k in group t. MNCE is the normalised conditional entropy of Zeng et
al., Deep Fair Clustering via Maximizing and Minimizing Mutual Information, CVPR 2023.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "accuracy",
    "ari",
    "balance",
    "balance_ceiling",
    "contingency",
    "f_beta",
    "mnce",
    "nmi",
    "nrmse",
    "pairwise_f",
    "purity",
    "weighted_tv",
]


def contingency(first: ArrayLike, second: ArrayLike) -> NDArray[np.int64]:
    """Rows for each pair of values that occur, in sorted order. Shape: [values, values]."""
    a = np.unique(np.asarray(first), return_inverse=True)[1].ravel()
    b = np.unique(np.asarray(second), return_inverse=True)[1].ravel()
    if a.shape != b.shape or not a.size:
        raise ValueError(f"two labellings of {a.size} and {b.size} rows, expected as many, not 0")
    table = np.zeros((a.max() + 1, b.max() + 1), dtype=np.int64)
    np.add.at(table, (a, b), 1)
    return table


def accuracy(truth: ArrayLike, labels: ArrayLike) -> float:
    """Share of rows that agree under the best one-to-one map of clusters to classes.

    Clusters or classes without a partner count as wrong.
    """
    from scipy.optimize import linear_sum_assignment

    table = contingency(labels, truth)  # rectangular tables leave the surplus without a partner
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / table.sum())


def _entropy(counts: NDArray[np.float64] | NDArray[np.int64]) -> float:
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log(p)).sum())


def nmi(truth: ArrayLike, labels: ArrayLike) -> float:
    """Mutual information over the arithmetic mean of both entropies, 0..1."""
    table = contingency(labels, truth)
    if 1 in table.shape:
        return 0.0
    h_rows, h_columns = _entropy(table.sum(axis=1)), _entropy(table.sum(axis=0))
    shared = h_rows + h_columns - _entropy(table.ravel())
    return float(np.clip(2.0 * shared / (h_rows + h_columns), 0.0, 1.0))


def _pairs(counts: NDArray[np.int64]) -> float:
    c = counts.astype(np.float64)
    return float((c * (c - 1)).sum() / 2)


def ari(truth: ArrayLike, labels: ArrayLike) -> float:
    """Adjusted Rand index, 1 for equal partitions and 0 for independent ones on average."""
    table = contingency(labels, truth)
    together = _pairs(table.ravel())
    rows, columns = _pairs(table.sum(axis=1)), _pairs(table.sum(axis=0))
    every = _pairs(np.array([table.sum()]))
    expected = rows * columns / every if every else 0.0
    most = (rows + columns) / 2
    return 1.0 if most == expected else float((together - expected) / (most - expected))


def purity(truth: ArrayLike, labels: ArrayLike) -> float:
    """Share of rows that belong to the commonest class of their cluster."""
    table = contingency(labels, truth)
    return float(table.max(axis=1).sum() / table.sum())


def pairwise_f(truth: ArrayLike, labels: ArrayLike) -> float:
    """Harmonic mean of precision and recall over pairs of rows in one cluster; 0 if none is."""
    table = contingency(labels, truth)
    rows, columns = _pairs(table.sum(axis=1)), _pairs(table.sum(axis=0))
    return float(2.0 * _pairs(table.ravel()) / (rows + columns)) if rows + columns else 0.0


def balance(labels: ArrayLike, group: ArrayLike) -> float:
    """The smallest ratio of a cluster's rarest group to its commonest; 0 if one lacks a group."""
    table = contingency(labels, group)
    return float((table.min(axis=1) / table.max(axis=1)).min())


def balance_ceiling(group: ArrayLike) -> float:
    """The balance of one cluster of all rows, which no clustering exceeds."""
    counts = np.unique(np.asarray(group), return_counts=True)[1]
    return float(counts.min() / counts.max())


def mnce(labels: ArrayLike, group: ArrayLike) -> float:
    """The smallest entropy of groups in a cluster over that in the data.

    May exceed 1 where every cluster is more balanced than the data; 0 if there is one group.
    """
    table = contingency(labels, group)
    whole = _entropy(table.sum(axis=0))
    return float(min(_entropy(row) for row in table) / whole) if whole else 0.0


def f_beta(fairness: float, utility: float, beta: float = 1.0) -> float:
    """Weighted harmonic mean ``(1 + beta^2) f u / (beta^2 f + u)``; 0 if both are 0."""
    below = beta**2 * fairness + utility
    return float((1 + beta**2) * fairness * utility / below) if below else 0.0


def weighted_tv(labels: ArrayLike, group: ArrayLike) -> float:
    """Mean over rows of the total variation between groups in their cluster and in the data."""
    table = contingency(labels, group).astype(np.float64)
    sizes = table.sum(axis=1)
    whole = table.sum(axis=0) / table.sum()
    distance = np.abs(table / sizes[:, None] - whole).sum(axis=1) / 2
    return float((sizes * distance).sum() / sizes.sum())


def nrmse(
    imputed: NDArray[np.float32], truth: NDArray[np.float32], hidden: NDArray[np.bool_]
) -> float:
    """Error of imputed rows relative to that of the mean of the rows that were observed.

    Args:
        imputed: Shape: [n, d].
        truth: The values before rows were hidden. Shape: [n, d].
        hidden: Rows that were hidden, one or more but not all. Shape: [n].
    """
    known = truth[~hidden].astype(np.float64).mean(axis=0)
    wanted = truth[hidden].astype(np.float64)
    return float(np.linalg.norm(imputed[hidden] - wanted) / np.linalg.norm(wanted - known))
