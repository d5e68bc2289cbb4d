"""The head that is refitted for every method: ridge regression on a few labelled texts a class.

With features ``X`` [n, d] centred by their mean and targets ``Y`` of plus and minus one, centred
too,

    W = Y^T X (X^T X + c I)^-1,    c = SHRINKAGE * tr(X^T X) / d,    b = mean(Y) - W mean(X)    (1)

in closed form, so that no step size or seed favours a method.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lamps.errors import ProblemError

SHRINKAGE = 0.3
"""Of the mean eigenvalue of ``X^T X`` that is added to all of them; one constant for everybody."""


def ridge_head(
    features: NDArray[np.float32], targets: NDArray[np.int64], n_labels: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Equation (1).

    Args:
        features: What the network says about the labelled texts.
        targets: Their classes.
        n_labels: Number of classes.

    Shape:
        features: [n, d];  targets: [n];  returns weight [n_labels, d] and bias [n_labels].

    Example:
        >>> x = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]], np.float32)
        >>> w, b = ridge_head(x, np.array([0, 0, 1, 1]), 2)
        >>> (x @ w.T + b).argmax(1).tolist()
        [0, 0, 1, 1]
    """
    x = features.astype(np.float64)
    y = np.where(targets[:, None] == np.arange(n_labels), 1.0, -1.0)
    mean_x, mean_y = x.mean(0), y.mean(0)
    x, y = x - mean_x, y - mean_y
    gram = x.T @ x
    gram[np.diag_indices_from(gram)] += SHRINKAGE * np.trace(gram) / len(gram) + 1e-12
    weight = np.linalg.solve(gram, x.T @ y).T
    return weight.astype(np.float32), (mean_y - weight @ mean_x).astype(np.float32)


def shots(targets: NDArray[np.int64], n_labels: int, per_class: int) -> NDArray[np.int64]:
    """Indices of the first ``per_class`` texts of every class, all where there are fewer.

    Raises:
        ProblemError: A class has none.

    Example:
        >>> shots(np.array([0, 1, 0, 0, 1]), 2, 2).tolist()
        [0, 1, 2, 4]
    """
    found = [np.flatnonzero(targets == label)[:per_class] for label in range(n_labels)]
    for label, rows in enumerate(found):
        if not len(rows):
            raise ProblemError(
                f"class number {label} has no training text, expected at least one of each class "
                "to fit a head on"
            )
    return np.sort(np.concatenate(found)).astype(np.int64)
