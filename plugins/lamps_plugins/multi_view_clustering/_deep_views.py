"""Views as torch tensors, batches of rows, and the refusals that the deep methods share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lamps.errors import ProblemError
from lamps_plugins._views.data import ViewData

if TYPE_CHECKING:
    from numpy.random import Generator


class Tensors:
    """The arrays of a `ViewData` as tensors that share their memory where they may.

    Attributes:
        views: V times [n, d_v] float32; zeros where not observed.
        mask: [n, V] bool.
        n: Rows.
    """

    def __init__(self, data: ViewData) -> None:
        # Copies: torch warns of memory that it may not write to, and rounds by memory order.
        self.views = tuple(
            torch.from_numpy(np.array(a, np.float32, order="C")) for a in data.arrays
        )
        self.mask = torch.from_numpy(np.array(data.mask, dtype=bool))
        self.n = len(data.mask)

    def take(self, rows: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Views and mask of some rows."""
        return tuple(view[rows] for view in self.views), self.mask[rows]


_LAST: list[tuple[ViewData, Tensors]] = []


def tensors_of(data: ViewData) -> Tensors:
    """The tensors of the data, made once for the data that was asked for last."""
    if not _LAST or _LAST[0][0] is not data:
        _LAST[:] = [(data, Tensors(data))]
    return _LAST[0][1]


def batches(n: int, size: int, rng: Generator) -> Iterator[Tensor]:
    """Row indices of one pass in a random order; a last single row joins the batch before it."""
    order = torch.from_numpy(rng.permutation(n))
    starts = list(range(0, n, size))
    if len(starts) > 1 and n - starts[-1] == 1:
        starts.pop()
    for start, end in zip(starts, [*starts[1:], n], strict=True):
        yield order[start:end]


def n_batches(n: int, size: int) -> int:
    """Number of batches that `batches` makes."""
    whole, rest = divmod(n, size)
    return max(1, whole + (rest > 1))


def filled(
    data: ViewData, guesses: Sequence[NDArray[np.float32]]
) -> tuple[NDArray[np.float32], ...]:
    """Views with their hidden cells taken from guesses. Shape: V times [n, d_v]."""
    return tuple(
        np.where(shown[:, None], array, guess).astype(np.float32)
        for array, guess, shown in zip(data.arrays, guesses, data.mask.T, strict=True)
    )


def refuse_unusable(data: ViewData, method: str, *, least_views: int = 1) -> None:
    """Refuse what no network of views can be trained on.

    Raises:
        ProblemError: A row shows no view, a view is shown by no row, there are fewer views than
            the method needs, or K does not lie in 2 .. n / 2.
    """
    n, n_views = data.mask.shape
    if n_views < least_views:
        raise ProblemError(
            f"{method} needs {least_views} views, the data has {n_views}; take another method"
        )
    if not 2 <= data.n_clusters <= n // 2:
        raise ProblemError(
            f"{method} cannot find {data.n_clusters} clusters in {n} rows, expected 2 to {n // 2}"
        )
    seen = data.mask.any(1)
    if not seen.all():
        raise ProblemError(
            f"row {int(np.argmin(seen))} shows no view; every row needs at least one. Drop it"
        )
    shown = data.mask.any(0)
    if not shown.all():
        name = data.names[int(np.argmin(shown))]
        raise ProblemError(f"view {name!r} is shown by no row; leave the view out")


def refuse_outside_unit(data: ViewData) -> None:
    """Refuse values that a Bernoulli likelihood has no meaning for.

    Raises:
        ProblemError: A value lies outside [0, 1]; the message names the view.
    """
    for name, array, shown in zip(data.names, data.arrays, data.mask.T, strict=True):
        values = array[shown]
        if values.size and (values.min() < 0.0 or values.max() > 1.0):
            raise ProblemError(
                f"view {name!r} has values from {values.min():.3g} to {values.max():.3g}, a "
                "Bernoulli likelihood expects [0, 1]; take likelihood=gaussian"
            )
