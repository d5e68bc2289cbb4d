"""The common measurement: every method of the family is judged by this code and by nothing else.

For scores ``z [n, C]`` and labels ``y``, one label a text:

    error = mean(argmax z != y)    logloss = mean(logsumexp(z) - z[y])       macro-F1 = mean_c F1_c

Multi-label, with indicators ``Y [n, C]`` and the decision ``z > 0``:

    error = 1 - micro-F1           logloss = mean(log(1 + exp(z)) - Y z)     macro-F1 as above

A class with neither a true nor a predicted text in the split has no F1 and is left out of the
mean, which is what `sklearn.metrics.f1_score` does by default. Log losses are exact: nothing is
clipped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lamps.errors import ContractError
from lamps.types import Evaluation, Objective, Split

if TYPE_CHECKING:
    from ._problem import TextProblem

__all__ = ["OBJECTIVES", "Logits", "evaluate_classifier", "latencies_ms", "scores"]

Logits = Callable[[Sequence[str]], "NDArray[np.float32]"]
"""From ``n`` texts to scores ``[n, n_labels]``; batches by itself."""

OBJECTIVES: tuple[Objective, ...] = (
    Objective(
        "val_error", doc="Share of wrong labels; 1 - micro-F1 where a text has several labels."
    ),
    Objective("val_logloss", "nats", doc="Mean cross entropy; per label for multi-label."),
    Objective("val_macro_f1_error", doc="1 - F1 averaged over classes, rare ones counting fully."),
    Objective(
        "latency_ms", "ms", noisy=True, doc="Median time for one text alone, after a warm-up."
    ),
    Objective(
        "throughput",
        "texts/s",
        "maximize",
        noisy=True,
        doc="Texts per second, many at once.",
    ),
    Objective("size_bytes", "bytes", doc="Size of the saved classifier."),
    Objective("params", "1", doc="Number of weights."),
    Objective("train_s", "s", noisy=True, doc="Seconds of training over all landmarks so far."),
    Objective("peak_bytes", "bytes", noisy=True, doc="Largest resident memory of the worker."),
)

_WARM_UP, _TIMED, _LEAST_TIMED, _TIMED_S = 3, 20, 5, 2.0
_AT_ONCE = 32

Targets = np.ndarray[Any, Any]


def evaluate_classifier(
    problem: TextProblem,
    split: Split,
    logits_of: Logits,
    *,
    n_params: int,
    size_bytes: int,
    known_logits: NDArray[np.float32] | None = None,
) -> Evaluation:
    """Every objective of a fitted classifier on a split.

    Scores that are not finite give NaN objectives, on which the worker fails the landmark. Latency
    is always taken on the same validation texts, so it compares between splits.

    Args:
        problem: The instance.
        split: ``val`` while searching; ``test`` once at the end.
        logits_of: The classifier.
        n_params: Its number of weights.
        size_bytes: Bytes of its saved form.
        known_logits: What ``logits_of`` would give for the whole split, where the method has it
            already (from features that are computed once); latency and throughput are measured on
            ``logits_of`` all the same.

    Returns:
        Objectives ``{split}_error``, ``{split}_logloss``, ``{split}_macro_f1_error``,
        ``latency_ms``, ``throughput``, ``size_bytes``, ``params``; signals ``latency_p90_ms``, and
        for test the ends of the 95 % bootstrap intervals as ``test_error_low``,
        ``test_error_high`` and so on.

    Raises:
        ContractError: The classifier returned another shape than ``[n, n_labels]``.
    """
    texts, targets = problem.texts(split), problem.targets(split)
    timed = latencies_ms(problem, logits_of)
    if known_logits is None:
        start = time.perf_counter()
        logits = np.asarray(logits_of(texts))
        per_second = len(texts) / max(time.perf_counter() - start, 1e-9)
    else:
        logits, per_second = np.asarray(known_logits), throughput(problem, logits_of)
    expected = (len(texts), problem.n_labels)
    if logits.shape != expected:
        raise ContractError(
            f"logits have shape {logits.shape}, expected {expected} [texts, labels]"
        )

    found = scores(logits, targets)
    objectives = {f"{split}_{name}": value for name, value in found.items()}
    objectives |= {
        "latency_ms": float(np.median(timed)),
        "throughput": per_second,
        "size_bytes": float(size_bytes),
        "params": float(n_params),
    }
    signals = {"latency_p90_ms": float(np.percentile(timed, 90))}
    if split == "test":
        signals |= _intervals(logits, targets, seed=problem.split_seed)
    return Evaluation(objectives, signals)


def latencies_ms(problem: TextProblem, logits_of: Logits) -> NDArray[np.float64]:
    """Milliseconds of fixed val texts, one at a time, after three warm-up calls.

    Twenty texts, or as many as two seconds hold but at least five: a slow model needs fewer for a
    steady median, and its landmarks must not consist of waiting for it.
    """
    texts = problem.texts("val")
    rng = np.random.default_rng([problem.split_seed, len(texts)])
    chosen = rng.choice(len(texts), size=min(_TIMED, len(texts)), replace=False)
    for i in chosen[:_WARM_UP]:
        logits_of([texts[i]])
    times = []
    for i in chosen:
        start = time.perf_counter()
        logits_of([texts[i]])
        times.append(time.perf_counter() - start)
        if len(times) >= _LEAST_TIMED and sum(times) > _TIMED_S:
            break
    return np.array(times) * 1e3


def throughput(problem: TextProblem, logits_of: Logits) -> float:
    """Texts per second over up to 32 fixed val texts at once."""
    texts = problem.texts("val")
    rng = np.random.default_rng([problem.split_seed, len(texts), 1])
    chosen = rng.choice(len(texts), size=min(_AT_ONCE, len(texts)), replace=False)
    batch = [texts[i] for i in chosen]
    start = time.perf_counter()
    logits_of(batch)
    return len(batch) / max(time.perf_counter() - start, 1e-9)


def scores(logits: NDArray[Any], targets: Targets) -> dict[str, float]:
    """Error, log loss and macro-F1 error; NaN where any score is not finite.

    Shape:
        logits: [n, C] scores.
        targets: [n] int64 class indices, or [n, C] 0/1 for multi-label.

    Example:
        >>> found = scores(np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([0, 0]))
        >>> found["error"]
        0.5
    """
    if not np.isfinite(logits).all():
        return dict.fromkeys(("error", "logloss", "macro_f1_error"), float("nan"))
    z = logits.astype(np.float64)
    loss = _losses(z, targets)
    truth, predicted = _indicators(z, targets)
    return {
        "error": _error(truth, predicted, multi_label=targets.ndim == 2),
        "logloss": float(loss.mean()),
        "macro_f1_error": _macro_f1_error(truth, predicted),
    }


def _losses(z: NDArray[np.float64], targets: Targets) -> NDArray[np.float64]:
    """Cross entropy of each text, by log-sum-exp shifted by the largest score."""
    if targets.ndim == 2:
        return np.asarray((np.logaddexp(0.0, z) - targets * z).mean(axis=1))
    shifted = z - z.max(axis=1, keepdims=True)
    own = shifted[np.arange(len(z)), targets]
    return np.asarray(np.log(np.exp(shifted).sum(axis=1)) - own)


def _indicators(
    z: NDArray[np.float64], targets: Targets
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Truth and decision as [n, C] booleans; ties go to the first class."""
    if targets.ndim == 2:
        return targets > 0.5, z > 0.0
    classes = np.arange(z.shape[1])
    return targets[:, None] == classes, z.argmax(axis=1)[:, None] == classes


def _error(truth: NDArray[np.bool_], predicted: NDArray[np.bool_], *, multi_label: bool) -> float:
    hits = float((truth & predicted).sum())
    if not multi_label:
        return (len(truth) - hits) / len(truth)
    either = float(truth.sum() + predicted.sum())
    # Nothing to find and nothing found is a perfect answer.
    return 1.0 - 2.0 * hits / either if either else 0.0


def _macro_f1_error(truth: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> float:
    hits = (truth & predicted).sum(axis=0)
    either = truth.sum(axis=0) + predicted.sum(axis=0)
    present = either > 0
    if not present.any():
        return 0.0
    return 1.0 - float((2.0 * hits[present] / either[present]).mean())


def _intervals(logits: NDArray[Any], targets: Targets, *, seed: int) -> dict[str, float]:
    """Ends of the bootstrap intervals over texts; NaN with NaN scores."""
    from lamps.stats import index_bootstrap  # pulls in scipy, which a search does not need

    ends: dict[str, float] = {}
    if not np.isfinite(logits).all():
        for name in ("error", "logloss", "macro_f1_error"):
            ends |= {f"test_{name}_low": float("nan"), f"test_{name}_high": float("nan")}
        return ends
    z = logits.astype(np.float64)
    loss = _losses(z, targets)
    truth, predicted = _indicators(z, targets)
    multi_label = targets.ndim == 2
    statistics: dict[str, Callable[[NDArray[np.int64]], float]] = {
        "error": lambda i: _error(truth[i], predicted[i], multi_label=multi_label),
        "logloss": lambda i: float(loss[i].mean()),
        "macro_f1_error": lambda i: _macro_f1_error(truth[i], predicted[i]),
    }
    for name, statistic in statistics.items():
        low, high = index_bootstrap(len(loss), statistic, seed=seed)
        ends |= {f"test_{name}_low": low, f"test_{name}_high": high}
    return ends
