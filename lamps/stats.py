"""Intervals and paired tests over scipy, with the defaults of this project written down once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats as _scipy

Statistic = Callable[..., Any]


def bootstrap_interval(
    samples: ArrayLike,
    statistic: Statistic = np.mean,
    *,
    confidence: float = 0.95,
    n_resamples: int = 2_000,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile bootstrap interval of a statistic of per-item values.

    Percentiles rather than BCa, because BCa is undefined where all items are equal (a classifier
    without errors), and that case is ordinary here: the interval is then the value itself.

    Shape:
        samples: [n] numbers; n >= 1.

    Example:
        >>> bootstrap_interval([0.0, 0.0, 0.0])
        (0.0, 0.0)
    """
    values = np.asarray(samples)
    if len(values) == 0:
        return (float("nan"), float("nan"))
    if len(values) == 1 or (values == values[0]).all():
        same = float(statistic(values))
        return (same, same)
    result = _scipy.bootstrap(
        (values,),
        statistic,
        confidence_level=confidence,
        n_resamples=n_resamples,
        method="percentile",
        rng=np.random.default_rng(seed),
        vectorized=statistic is np.mean,
    )
    low, high = result.confidence_interval
    return (float(low), float(high))


def paired_pvalue(a: ArrayLike, b: ArrayLike) -> float:
    """Two-sided Wilcoxon signed-rank p-value of paired values; 1 where no pair differs."""
    left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if len(left) == 0 or bool((left == right).all()):
        return 1.0
    return float(_scipy.wilcoxon(left, right).pvalue)


def index_bootstrap(
    n: int,
    statistic: Callable[[NDArray[np.int64]], float],
    *,
    n_resamples: int = 500,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile interval (95 %) of a statistic that is a function of row indices.

    Such as macro F1.
    """
    rng = np.random.default_rng(seed)
    draws = [statistic(rng.integers(0, n, n)) for _ in range(n_resamples)]
    low, high = np.percentile(draws, [2.5, 97.5])
    return (float(low), float(high))
