"""K-means by optimal transport that gives every cluster the same share of each group.

    min over P >= 0 of  <P, D> - eps H(P),   sum_k P_ik = 1,  sum_(i in g) P_ik = n_g q_k       (1)

with squared distances ``D`` to the centres and shares ``q`` of the clusters: those that k-means
found, or equal ones. Each group is a transport problem of its own, solved by Sinkhorn iterations
(Cuturi 2013) on the logarithmic scale. Centres are means weighted by ``P``, and both steps repeat.
Labels are the largest entry of each row, so balance is close to perfect, whatever it costs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lamps import space as hp
from lamps.method import MethodSpec, Tags
from lamps_plugins._views.clusterer import Clusterer, Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.linear import concatenated, kmeans

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of balanced k-means."""

    epsilon: float = hp.real(
        0.02, low=0.005, high=0.5, log=True,
        doc="Entropy weight over the median squared distance, unitless; eq. (1).",
    )  # fmt: skip
    shares: str = hp.choice(
        "found", ("found", "equal"), doc="Sizes of the clusters: those of k-means, or equal ones."
    )
    rounds: int = hp.integer(10, low=1, high=30, log=True, doc="Updates of the centres.")
    restarts: int = hp.integer(
        10, low=1, high=30, log=True, doc="Runs of the k-means at the start."
    )


class SinkhornKmeans(Clusterer[Params]):
    """Clusters that hold every group in its share."""

    spec = MethodSpec(
        family="fair-multi-view-clustering",
        summary="k-means with an assignment that balances groups by optimal transport",
        tags=Tags(cheap=True, baseline=True),
    )

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """See the module."""
        p, k = self.params, data.n_clusters
        assert data.group is not None
        x = concatenated(data.arrays)
        labels, centres = kmeans(x, k, rng, restarts=p.restarts)
        sizes = np.bincount(labels, minlength=k).astype(np.float64)
        shares = sizes / sizes.sum() if p.shares == "found" else np.full(k, 1.0 / k)
        wide = x.astype(np.float64)
        plan = np.eye(k)[labels]
        for _ in range(p.rounds):
            plan = balanced_plan(squared_distances(wide, centres), data.group, shares, p.epsilon)
            mass = plan.sum(axis=0)[:, None]
            centres = np.where(mass > 0.0, plan.T @ wide / np.maximum(mass, 1e-12), centres)
        soft = plan.astype(np.float32)
        return Clustering(labels=plan.argmax(axis=1).astype(np.int64), embedding=x, soft=soft)


def squared_distances(x: Floats, centres: Floats) -> Floats:
    """From each row to each centre. Shape: [n, d], [K, d] to [n, K]."""
    d = (x**2).sum(axis=1)[:, None] - 2.0 * x @ centres.T + (centres**2).sum(axis=1)
    found: Floats = np.maximum(d, 0.0)
    return found


def balanced_plan(
    cost: Floats, group: NDArray[np.int64], shares: Floats, epsilon: float, *, steps: int = 200
) -> Floats:
    """The plan of (1); rows sum to 1 exactly, columns of each group nearly to ``n_g q_k``.

    Args:
        cost: D, [n, K].
        group: [n], values 0..t-1.
        shares: q, [K], sums to 1; a cluster of share 0 gets nothing.
        epsilon: Over the median of ``cost``.
        steps: Sinkhorn iterations.
    """
    scale = epsilon * max(float(np.median(cost)), 1e-12)
    plan = np.zeros_like(cost)
    used = np.flatnonzero(shares > 0.0)
    for g in np.unique(group):
        rows = group == g
        kernel = -cost[rows][:, used] / scale
        target = np.log(shares[used]) + np.log(rows.sum())
        column = np.zeros(len(target))
        for _ in range(steps):
            row = -_log_sum_exp(kernel + column, axis=1)
            new = target - _log_sum_exp(kernel + row[:, None], axis=0)
            moved = float(np.abs(new - column).max())
            column = new
            if moved < 1e-6:
                break
        row = -_log_sum_exp(kernel + column, axis=1)
        plan[np.ix_(np.flatnonzero(rows), used)] = np.exp(kernel + row[:, None] + column)
    return plan


def _log_sum_exp(x: Floats, *, axis: int) -> Floats:
    # SciPy's takes most of its time for cases that do not occur here.
    top = x.max(axis=axis, keepdims=True)
    found: Floats = np.log(np.exp(x - top).sum(axis=axis)) + top.squeeze(axis)
    return found
