"""A second look at the clusters once missing views were filled."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

EM_STEPS = 10


def moved(
    place: NDArray[np.float32],
    said: NDArray[np.float32],
    mask: NDArray[np.bool_],
    weight: float,
) -> NDArray[np.float32]:
    """Pooled latents with filled views counted by a weight; an observed view counts 1.

    A weight of 1 counts the same evidence twice: what fills a view came from the others.

    Args:
        place: Pooled over the observed views.
        said: What the encoders say of the filled views.
        mask: Observed views.
        weight: 0 to 1; 0 moves nothing.

    Shape:
        place: [n, q]; said: [n, V, q]; mask: [n, V]. Returns [n, q].
    """
    hidden = (~mask).astype(np.float32)
    generated = (said * hidden[:, :, None]).sum(1)
    share = weight / mask.sum(1, keepdims=True)
    found = (place + share * generated) / (1.0 + share * hidden.sum(1, keepdims=True))
    return np.asarray(found, dtype=np.float32)


def mixture_of(
    points: NDArray[np.float32], labels: NDArray[np.int64], k: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Shares [K], means [K, q] and deviations [K, q] of labelled points; equal shares."""
    whole = points.astype(np.float64)
    means = [
        whole[labels == c].mean(0) if (labels == c).any() else whole.mean(0) for c in range(k)
    ]
    return np.full(k, 1.0 / k), np.stack(means), np.tile(whole.std(0), (k, 1))


def refined_labels(
    points: NDArray[np.float32],
    shares: NDArray[np.floating],
    means: NDArray[np.floating],
    stds: NDArray[np.floating],
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Some steps of EM for a diagonal Gaussian mixture: labels and responsibilities.

    Shape:
        points: [n, q]; shares: [K]; means, stds: [K, q]. Returns [n] and [n, K].
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    mixture = GaussianMixture(
        len(shares),
        covariance_type="diag",
        weights_init=np.asarray(shares, np.float64) / np.sum(shares, dtype=np.float64),
        means_init=np.asarray(means, np.float64),
        precisions_init=np.maximum(np.asarray(stds, np.float64), 1e-3) ** -2.0,
        max_iter=EM_STEPS,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a fixed number of steps is meant
        mixture.fit(points.astype(np.float64))
    soft = mixture.predict_proba(points.astype(np.float64))
    return soft.argmax(1).astype(np.int64), soft.astype(np.float32)
