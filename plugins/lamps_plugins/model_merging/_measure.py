"""The common measurement of merged models; every method of the family is judged by it.

On task ``i`` with ``n_i`` texts, ``a_i`` is the accuracy of the merged encoder under the expert's
own head and ``e_i`` that of the expert on the same texts:

    n_i = a_i / max(e_i, 1 / n_i)    val_error = 1 - mean_i n_i    val_worst_error = 1 - min_i n_i

Both may be negative: a merge can beat its experts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lamps.types import Evaluation, Objective, Split

OBJECTIVES: tuple[Objective, ...] = (
    Objective(
        "val_error",
        doc="1 - accuracy over that of the expert, averaged over tasks; negative where the "
        "merge beats its experts.",
    ),
    Objective("val_worst_error", doc="The same on the task where the merge does worst."),
    Objective("train_s", "s", noisy=True, doc="Seconds of merging over all landmarks so far."),
    Objective("peak_bytes", "bytes", noisy=True, doc="Largest resident memory of the worker."),
    Objective("extra_params", doc="Weights beside one encoder and the heads, such as adapters."),
    Objective("labels", doc="Labelled validation texts that the method itself looked at."),
    Objective("size_bytes", "bytes", doc="Size of the exported encoder with all heads."),
    Objective("latency_ms", "ms", noisy=True, doc="Median time for one text alone."),
)

N_RESAMPLES = 500
"""Resamples of a paired bootstrap interval."""

Right = NDArray[np.float64]


def normalized(merged: Right, expert: Right) -> float:
    """Accuracy relative to the expert's on the same texts.

    Shape:
        merged, expert: [n], 1 where right, 0 where wrong, NaN where nothing was answered.
    """
    return float(merged.mean() / max(float(expert.mean()), 1.0 / len(expert)))


def summary(
    names: Sequence[str], merged: Sequence[Right], expert: Sequence[Right], split: Split
) -> Evaluation:
    """Errors over tasks, and the accuracies behind them as signals.

    On test the signals hold 95 % intervals of a bootstrap that draws texts, the same for merged
    model and expert, within each task.

    Args:
        names: Tasks.
        merged: Which texts of each task the merged model labels right.
        expert: Which of the same texts the expert labels right.
        split: Prefix of the names.
    """
    shares = [normalized(m, e) for m, e in zip(merged, expert, strict=True)]
    objectives = {
        f"{split}_error": 1.0 - float(np.mean(shares)),
        f"{split}_worst_error": 1.0 - float(np.min(shares)),
    }
    signals: dict[str, float] = {}
    for name, share, m, e in zip(names, shares, merged, expert, strict=True):
        signals[f"normalized.{name}"] = share
        signals[f"accuracy.{name}"] = float(m.mean())
        signals[f"expert_accuracy.{name}"] = float(e.mean())
    if split == "test":
        signals |= _intervals(merged, expert)
    return Evaluation(objectives, signals)


def _intervals(merged: Sequence[Right], expert: Sequence[Right]) -> Mapping[str, float]:
    rng = np.random.default_rng(0)
    draws = []
    for m, e in zip(merged, expert, strict=True):
        at = rng.integers(0, len(m), (N_RESAMPLES, len(m)))
        draws.append(m[at].mean(axis=1) / np.maximum(e[at].mean(axis=1), 1.0 / len(e)))
    shares = np.stack(draws, axis=1)
    ends: dict[str, float] = {}
    for name, values in (("error", shares.mean(axis=1)), ("worst_error", shares.min(axis=1))):
        low, high = np.percentile(1.0 - values, [2.5, 97.5])
        ends |= {f"test_{name}_low": float(low), f"test_{name}_high": float(high)}
    return ends
