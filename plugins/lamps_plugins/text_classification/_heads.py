"""Linear heads on fixed features: logistic regression, and the closed-form one that landmark 0 uses.

A head is ``(weight [n_labels, d], bias [n_labels])`` in float32; its logits are ``x @ weight.T + bias``.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Head = tuple[Floats, Floats]


def class_counts(targets: np.ndarray, n_labels: int) -> NDArray[np.float64]:
    """Examples of each label. Shape: targets [n] int or [n, n_labels] float; returns [n_labels]."""
    if targets.ndim == 2:
        return targets.sum(axis=0).astype(np.float64)
    return np.bincount(targets, minlength=n_labels).astype(np.float64)


def class_weights(targets: np.ndarray, n_labels: int) -> Floats:
    """Balanced weights ``n / (k n_c)`` over the labels that occur; 1 for those that do not. Shape: [n_labels].

    For several labels a text it is the weight of a positive, ``(n - n_c) / n_c``, at most 100.
    """
    counts = class_counts(targets, n_labels)
    present = counts > 0
    safe = np.where(present, counts, 1)
    n = len(targets)
    weights = (n - counts) / safe if targets.ndim == 2 else n / (present.sum() * safe)
    return np.where(present, np.clip(weights, 0.01, 100), 1.0).astype(np.float32)


def prior(targets: np.ndarray, n_labels: int) -> Floats:
    """Logits of the label shares, each label counted half an example more so that none is impossible."""
    counts = class_counts(targets, n_labels) + 0.5
    if targets.ndim == 2:
        return np.log(counts / (len(targets) + 1.0 - counts)).astype(np.float32)
    return np.log(counts / counts.sum()).astype(np.float32)


def constant_head(targets: np.ndarray, n_labels: int, width: int) -> Head:
    """The head that ignores its input and answers with the `prior`."""
    return np.zeros((n_labels, width), np.float32), prior(targets, n_labels)


def lda_head(x: np.ndarray, targets: np.ndarray, n_labels: int) -> Head:
    """Linear discriminant analysis with a shrunk covariance, in closed form: strong with a handful of examples.

        w_c = S^-1 (mu_c - mu),   z_c = t (w_c . x - w_c . (mu_c + mu) / 2) + log p_c                            (1)
        S = (1 - a) S_within + a tr(S_within)/d I

    ``a`` is Ledoit and Wolf's. With fewer examples than dimensions the scores are right in order and far too large, so
    ``t`` in (0, 1] makes the log loss of five-fold cross-validation smallest. With several labels a text, each label is
    one two-class problem with the same S. A label without examples keeps its prior.

    Shape:
        x: [n, d];  targets: [n] int64 or [n, n_labels] float32.

    Source:
        Ledoit, Wolf 2004, A well-conditioned estimator for large-dimensional covariance matrices; Hastie, Tibshirani,
        Friedman, The Elements of Statistical Learning, section 4.3.
    """
    x = np.asarray(x, dtype=np.float64)
    weight, offset = _lda(x, targets, n_labels)
    base = prior(targets, n_labels).astype(np.float64)
    scale = _temperature(x, targets, n_labels)
    return (scale * weight).astype(np.float32), (scale * offset + base).astype(np.float32)


def _lda(x: Any, targets: np.ndarray, n_labels: int) -> tuple[Any, Any]:
    """``w`` and the offset of equation (1), before ``t`` and the prior."""
    from sklearn.covariance import ledoit_wolf_shrinkage

    multi = targets.ndim == 2
    member = targets.astype(np.float64) if multi else np.eye(n_labels)[targets]
    counts = member.sum(axis=0)
    inside = member.T @ x / np.maximum(counts, 1)[:, None]
    centre = x.mean(axis=0)
    residual = x - centre if multi else x - inside[targets]
    shrink = float(ledoit_wolf_shrinkage(residual, assume_centered=True)) if len(x) > 1 else 1.0
    within = residual.T @ residual / len(x)
    scale = max(float(np.trace(within)) / x.shape[1], 1e-8)
    shrink = max(shrink, 0.05)
    covariance = (1 - shrink) * within + shrink * scale * np.eye(x.shape[1])
    if multi:
        other = (1 - member).T @ x / np.maximum(len(x) - counts, 1)[:, None]
        empty = (counts == 0) | (counts == len(x))
    else:
        # Around the common mean, so that a label without examples sits at logit log p_c.
        other = np.broadcast_to(centre, inside.shape)
        empty = counts == 0
    weight = np.linalg.solve(covariance, (inside - other).T).T
    offset = -np.einsum("ld,ld->l", weight, inside + other) / 2
    weight[empty], offset[empty] = 0, 0
    return weight, offset


FOLDS = 5


def _temperature(x: Any, targets: np.ndarray, n_labels: int) -> float:
    """The ``t`` of equation (1): the best of a grid on held-out fifths of the examples."""
    n = len(x)
    if n < 2 * FOLDS:
        return 0.1
    fold = np.arange(n) % FOLDS
    scores, priors = np.empty((n, n_labels)), np.empty((n, n_labels))
    for k in range(FOLDS):
        inside, outside = fold != k, fold == k
        weight, offset = _lda(x[inside], targets[inside], n_labels)
        scores[outside] = x[outside] @ weight.T + offset
        priors[outside] = prior(targets[inside], n_labels)
    grid = np.geomspace(1e-3, 1, 25)
    return float(min(grid, key=lambda t: mean_loss(t * scores + priors, targets)))


def mean_loss(logits: Any, targets: np.ndarray) -> float:
    """Cross-entropy, binary and summed over labels where a text may have several, a text."""
    if targets.ndim == 2:
        return float((np.logaddexp(0, logits) - targets * logits).sum(axis=1).mean())
    top = logits.max(axis=1)
    total = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
    return float((total - logits[np.arange(len(logits)), targets]).mean())


def without_bias(head: Head, x: np.ndarray) -> Floats:
    """A head's weight with its bias folded in, for classes whose last layer has none (decoders).

    The bias rides on the direction ``u`` along which features vary least around ``u . x = 1``:
    ``u = S^-1 m / (m' S^-1 m)`` for mean ``m`` and shrunk covariance ``S``.

    Shape:
        head: weight [n_labels, d] and bias [n_labels];  x: [n, d].  Returns [n_labels, d] float32.
    """
    weight, bias = head
    x = np.asarray(x, dtype=np.float64)
    mean = x.mean(axis=0)
    spread = x - mean
    covariance = spread.T @ spread / len(x)
    covariance += max(float(np.trace(covariance)) / x.shape[1], 1e-8) * 0.1 * np.eye(x.shape[1])
    u = np.linalg.solve(covariance, mean)
    u /= max(float(mean @ u), 1e-12)
    return (weight + np.outer(bias - bias.mean(), u)).astype(np.float32)


def fit_logistic(
    x: Any, targets: np.ndarray, n_labels: int, *, c: float, balanced: bool, max_iter: int = 1_000
) -> tuple[Head, bool]:
    """Multinomial logistic regression (L-BFGS), one a label where a text may have several.

    A label without examples keeps the logit of its prior; with one label only, the head is the prior.

    Args:
        x: [n, d] features, dense or sparse.
        targets: [n] int64 or [n, n_labels] float32.
        n_labels: Number of logits.
        c: Inverse strength of the L2 penalty.
        balanced: Weigh labels by their inverse frequency.
        max_iter: Iterations of L-BFGS.

    Returns:
        The head, and whether every fit converged.
    """
    weight, bias = constant_head(targets, n_labels, x.shape[1])
    converged = True
    if targets.ndim == 2:
        for label in range(n_labels):
            column = targets[:, label].astype(np.int64)
            if 0 < column.sum() < len(column):
                model, fine = _logistic(x, column, c, balanced, max_iter)
                weight[label], bias[label] = model.coef_[0], model.intercept_[0]
                converged &= fine
        return (weight, bias), converged
    present = np.flatnonzero(class_counts(targets, n_labels))
    if len(present) == 1:
        return (weight, bias), True
    model, converged = _logistic(x, targets, c, balanced, max_iter)
    if len(present) == 2:
        weight[present] = np.stack([-model.coef_[0], model.coef_[0]]) / 2
        inner = np.array([-model.intercept_[0], model.intercept_[0]]) / 2
    else:
        weight[present], inner = model.coef_, model.intercept_
    # Softmax ignores a common shift: move the fitted logits so that the priors of absent labels fit beside them.
    bias[present] = inner - inner.mean() + bias[present].mean()
    return (weight, bias), converged


def _logistic(x: Any, y: np.ndarray, c: float, balanced: bool, max_iter: int) -> tuple[Any, bool]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=c, class_weight="balanced" if balanced else None, max_iter=max_iter)
    with warnings.catch_warnings():
        # Reported as a signal instead: an unfinished fit is still a candidate.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, y)
    return model, bool(np.max(model.n_iter_) < max_iter)
