"""What joint training starts from: k-means on the views' latents, and how it falls back."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lamps.errors import LampsWarning
from lamps_plugins._views.linear import kmeans


def mean_of_observed(
    latents: NDArray[np.floating], mask: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Mean latent over the observed views of each row. Shape: [n, V, q] and [n, V] to [n, q]."""
    seen = mask.astype(np.float32)[:, :, None]
    total: NDArray[np.float32] = (latents * seen).sum(1) / seen.sum(1)
    return total.astype(np.float32)


def start_centres(
    latents: NDArray[np.floating], mask: NDArray[np.bool_], k: int, rng: Generator
) -> tuple[NDArray[np.float32], bool]:
    """Centres for the prior from the mean latents of complete rows, or of all rows.

    Rows that show every view have comparable means; where they are fewer than 2 a cluster, all
    rows are taken, each with the mean of what it shows.

    Shape:
        latents: [n, V, q]; mask: [n, V]. Returns [k, q].

    Returns:
        The centres, and whether all rows had to be taken.
    """
    points = mean_of_observed(latents, mask)
    complete = np.asarray(mask.all(axis=1))
    fell_back = bool(complete.sum() < 2 * k)
    if fell_back:
        warnings.warn(
            f"{int(complete.sum())} rows show all views, fewer than two for each of {k} clusters: "
            "k-means starts from all rows, each with what it shows",
            LampsWarning,
            stacklevel=2,
        )
    _, centres = kmeans(points if fell_back else points[complete], k, rng)
    return centres.astype(np.float32), fell_back


def spread_within(
    points: NDArray[np.float32], centres: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Deviation of points from their nearest centre, at least 0.05 of that of all points.

    Shape:
        points: [n, q]; centres: [K, q]. Returns [q].
    """
    from sklearn.metrics import pairwise_distances_argmin

    near = centres[pairwise_distances_argmin(points, centres)]
    within = np.sqrt(((points - near) ** 2).mean(0))
    found: NDArray[np.float32] = np.maximum(within, 0.05 * points.std() + 1e-6).astype(np.float32)
    return found
