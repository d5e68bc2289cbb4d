"""Pools to practise on: cut, thinned and disturbed pieces of landmark tables, as padded arrays.

An `Episodes` block holds what the environment needs to replay many searches at once. The quality
of a set of finished trials is measured on a fixed quasi-random sample of the objective box: each
trial covers some of the points, a set covers their union, and all of that is bit arithmetic.
With 1,024 points the error of a hypervolume share is about 0.1 %, enough to learn from; published
figures use exact hypervolumes (`lamps.policy.evaluate`).

Shapes: ``E`` episodes, ``n`` trials (padded), ``K`` landmarks (padded), ``m`` objectives.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

from lamps.policy.features import Array, bounded, extrapolations

N_SAMPLES = 1024
_FLOOR = 1e-3  # regret below this share counts as none
_NEAR = 1e-2  # the level that searches are judged by
_ORDERS = 4  # of trials that sizes do not tell apart


@dataclass(slots=True)
class Episodes:
    """A block of searches to replay.

    Args:
        values: [E, n, K, m] float32 minimised; landmarks that fail are NaN.
        cost_s: [E, n, K] float32.
        limit: [E, n] int64, last landmark that was ever measured; ``K - 1`` for whole curves.
        fidelities: [E, K] float32, 1 beyond the episode's own number.
        n_landmarks: [E] int64.
        present: [E, n] bool.
        size: [E, n] float32, NaN where unknown.
        n_workers: [E] int64.
        predicted: [E, n, K, m] float32, extrapolated final values as known at each landmark.
        spread: [E, n, K, m] float32.
        covers: [E, n, 16] uint64, sample points that the trial dominates once it is finished.
        optimum: [E] int64, sample points that all of them dominate.
        scale: [E] float32, area under the regret of smallest-first in seconds; unit of the reward.
        total: [E] float32, seconds of everything.
    """

    values: Array
    cost_s: Array
    limit: NDArray[np.int64]
    fidelities: Array
    n_landmarks: NDArray[np.int64]
    present: NDArray[np.bool_]
    size: Array
    n_workers: NDArray[np.int64]
    predicted: Array
    spread: Array
    covers: NDArray[np.uint64]
    optimum: NDArray[np.int64]
    scale: Array
    total: Array

    def __len__(self) -> int:
        return len(self.optimum)

    def take(self, index: NDArray[np.int64]) -> Episodes:
        """Some of the episodes."""
        return Episodes(*(getattr(self, f.name)[index] for f in fields(self)))


def regret_weight(regret: Array) -> Array:
    """How bad a regret is, in [0, 1]: log-uniform between 0.1 % and 100 %, with two steps.

    The area under this curve is the time to reach a level of quality: one half averages over
    levels from 0 to 99.9 % on a logarithmic scale, so that the last per cent counts as much as it
    costs, and a quarter each is the time to 99 % and to 99.9 %.
    """
    depth = np.log(np.maximum(regret, _FLOOR) / _FLOOR) / -np.log(_FLOOR)
    weight = 0.5 * depth + 0.25 * (regret > _NEAR) + 0.25 * (regret > _FLOOR)
    return np.asarray(weight, dtype=np.float32)


_POINTS: dict[int, Array] = {}


def sample_points(m: int) -> Array:
    """[N_SAMPLES, m] quasi-random points in the unit box, always the same."""
    if m not in _POINTS:
        _POINTS[m] = qmc.Sobol(m, seed=7).random(N_SAMPLES).astype(np.float32)
    return _POINTS[m]


def make_episodes(
    values: NDArray[np.float64],
    cost_s: NDArray[np.float64],
    fidelities: NDArray[np.float64],
    n_landmarks: NDArray[np.int64],
    present: NDArray[np.bool_],
    size: NDArray[np.float64],
    limit: NDArray[np.int64],
    n_workers: NDArray[np.int64],
    truth: NDArray[np.float64] | None = None,
) -> Episodes:
    """Episodes of raw arrays; see `Episodes` for the shapes.

    Args:
        values: What the policy will see.
        cost_s: Seconds per landmark.
        fidelities: Of the landmarks.
        n_landmarks: Real ones, the rest is padding.
        present: Real trials.
        size: Known before the run.
        limit: Last measured landmark.
        n_workers: At once.
        truth: [E, n, m] final values that count; those of ``values`` if None. NaN where a trial
            cannot be finished.
    """
    e, n, k, m = values.shape
    rows = np.arange(e)[:, None]
    trial = np.arange(n)[None, :]
    last = (n_landmarks - 1)[:, None]
    real = np.arange(k)[None, None, :] < n_landmarks[:, None, None]
    if truth is None:
        truth = values[rows, trial, last]
    bad = np.asarray(~np.isfinite(values).all(axis=3))
    fails = (bad & real).any(axis=2)
    can = present & ~fails & (limit >= last) & np.isfinite(truth).all(axis=2)
    covers = np.zeros((e, n, N_SAMPLES // 64), dtype=np.uint64)
    final = np.where(can[..., None], truth, np.nan)
    shown = np.where(np.isfinite(final), final, -np.inf)
    high = shown.max(axis=1, keepdims=True)
    low = np.where(np.isfinite(final), final, np.inf).min(axis=1, keepdims=True)
    span = np.where(high > low, high - low, 1.0)
    with np.errstate(invalid="ignore"):
        unit = ((final - low) / (1.1 * span)).astype(np.float32)  # 1 is worst plus 10 %
    points = sample_points(m)
    under = np.ones((e, n, N_SAMPLES), dtype=bool)
    for o in range(m):
        under &= unit[:, :, None, o] <= points[:, o]
    covers[:] = np.packbits(under & can[..., None], axis=2).view(np.uint64)
    union = np.bitwise_or.reduce(covers, axis=1)
    optimum = np.bitwise_count(union).sum(axis=1, dtype=np.int64)
    seen = np.where(bad[..., None], np.nan, np.clip(values, -1e30, 1e30)).astype(np.float32)
    curves = seen.astype(np.float64).transpose(0, 1, 3, 2)
    grid = np.broadcast_to(fidelities[:, None, None, :], curves.shape)
    with np.errstate(invalid="ignore", over="ignore"):
        mean, spread = extrapolations(curves, grid)
    cost = np.where(real & present[..., None], np.nan_to_num(cost_s), 0.0)
    known = np.arange(k)[None, None, :] <= limit[..., None]
    cost = np.where(known, cost, 0.0)
    scale = rule_area(covers, optimum, cost.sum(axis=2), present, size)
    total = cost.sum(axis=(1, 2))
    return Episodes(
        values=seen,
        cost_s=cost.astype(np.float32),
        limit=limit,
        fidelities=fidelities.astype(np.float32),
        n_landmarks=n_landmarks,
        present=present,
        size=size.astype(np.float32),
        n_workers=n_workers,
        predicted=bounded(mean.transpose(0, 1, 3, 2)),
        spread=bounded(spread.transpose(0, 1, 3, 2)),
        covers=covers,
        optimum=optimum,
        scale=np.maximum(scale / n_workers, 1e-3 * total / n_workers + 1e-20).astype(np.float32),
        total=total.astype(np.float32),
    )


def gains(covers: NDArray[np.uint64], covered: NDArray[np.uint64]) -> NDArray[np.int64]:
    """[E, n]: sample points that each trial would add to those covered, [E, words]."""
    fresh = covers & ~covered[:, None]
    total: NDArray[np.int64] = np.bitwise_count(fresh).sum(axis=2, dtype=np.int64)
    return total


def rule_area(
    covers: NDArray[np.uint64],
    optimum: NDArray[np.int64],
    cost: NDArray[np.float64],
    present: NDArray[np.bool_],
    size: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Area under the weighted regret of who finishes trials one by one, the smallest first.

    As the unit of returns it says how much better than a simple rule with the same knowledge a
    search is; pools whose sizes are unknown or mislead do not outweigh the others.

    Args:
        covers: [E, n, words], see `Episodes`.
        optimum: [E].
        cost: [E, n] seconds of whole curves.
        present: [E, n].
        size: [E, n], NaN where unknown.

    Returns:
        [E] seconds; the mean over random orders of trials whose size is the same or unknown.
    """
    e, n = cost.shape
    rows = np.arange(e)
    area = np.zeros(e)
    rng = np.random.default_rng(0)
    key = np.where(np.isfinite(size), size, np.inf)
    for _ in range(_ORDERS):
        order = np.lexsort((rng.random((e, n)), key, ~present), axis=1)
        covered = np.zeros((e, covers.shape[2]), dtype=np.uint64)
        regret = np.ones(e, dtype=np.float32)
        for place in order.T:
            here = present[rows, place]
            area += np.where(here, regret_weight(regret) * cost[rows, place], 0.0)
            covered |= np.where(here[:, None], covers[rows, place], np.uint64(0))
            have = np.bitwise_count(covered).sum(axis=1, dtype=np.int64)
            regret = (1.0 - have / np.maximum(optimum, 1)).astype(np.float32)
    return area / _ORDERS
