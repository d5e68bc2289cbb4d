"""The common measurement of transferred models; every method of the family is judged by it.

With the accuracies ``a`` of the result, ``a_n`` of the untouched target base and ``a_t`` of the
target base fine-tuned directly, all under the same head protocol and on the same texts,

    val_error = 1 - a        recovery = (a - a_n) / (a_t - a_n)        retention = g - g_n      (1)

``g`` is the generic loss on texts of what the target base is better at, ``g_n`` that of the target
base itself; see `_generic`. Recovery is a signal, given where a fine-tuned target is known and
better than the base.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from lamps.types import Objective, Split

OBJECTIVES: tuple[Objective, ...] = (
    Objective("val_error", doc="Share of wrong labels of the task, on the target base."),
    Objective(
        "retention",
        doc="Generic loss on the target base's own texts, less that of the target base; below 0 "
        "where the result is better at them.",
    ),
    Objective(
        "train_s", "s", noisy=True, doc="Seconds of transferring over all landmarks so far."
    ),
    Objective("peak_bytes", "bytes", noisy=True, doc="Largest resident memory of the worker."),
    Objective("labels", doc="Labelled texts that the method and its head were shown."),
    Objective("texts", doc="Texts read to align, for Fishers or gradients, each pass counted."),
)

N_RESAMPLES = 500

Right = NDArray[np.float64]
"""1 where a text is labelled right, 0 where wrong, NaN where nothing was answered. Shape: [n]."""


def accuracies(right: Right, untouched: Right, tuned: Right | None) -> dict[str, float]:
    """Accuracy and what it is to be compared with, as signals."""
    found = {"accuracy": float(right.mean()), "accuracy.untouched": float(untouched.mean())}
    if tuned is not None:
        found["accuracy.target_tuned"] = float(tuned.mean())
        gain = float(tuned.mean() - untouched.mean())
        if gain > 0:
            found["recovery"] = float(right.mean() - untouched.mean()) / gain
    return found


def interval(right: Right, split: Split) -> Mapping[str, float]:
    """Ends of the 95 % bootstrap interval of the error over texts."""
    rng = np.random.default_rng(0)
    at = rng.integers(0, len(right), (N_RESAMPLES, len(right)))
    low, high = np.percentile(1.0 - right[at].mean(axis=1), [2.5, 97.5])
    return {f"{split}_error_low": float(low), f"{split}_error_high": float(high)}
