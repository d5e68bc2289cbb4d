"""What any clustering of views must refuse, and what a user should be told."""

from __future__ import annotations

import itertools

import numpy as np

from lamps.errors import ProblemError
from lamps_plugins._views.data import ViewData

__all__ = ["check_views"]


def check_views(data: ViewData) -> tuple[str, ...]:
    """Refuse views that cannot be clustered; sentences about what is odd but usable.

    Raises:
        ProblemError: K does not fit the rows, or a row has no view; one line.
    """
    n, k = data.n, data.n_clusters
    if k < 2:
        raise ProblemError(f"{k} clusters were asked, expected 2 or more")
    if k > n:
        raise ProblemError(
            f"{k} clusters were asked of {n} rows; ask for fewer, or give more rows"
        )
    empty = np.flatnonzero(~data.mask.any(axis=1))
    if len(empty):
        raise ProblemError(
            f"row {empty[0]} has no observed view ({len(empty)} such of {n}); drop these rows"
        )
    distinct = _distinct(data)
    if distinct < k:
        raise ProblemError(
            f"{k} clusters were asked, but only {distinct} of {n} rows differ; ask for fewer"
        )
    return tuple(_notes(data, distinct))


def _distinct(data: ViewData) -> int:
    columns = [a.view(np.uint8).reshape(data.n, -1) for a in data.arrays if a.shape[1]]
    whole = np.concatenate([*columns, data.mask.view(np.uint8)], axis=1)
    return len({row.tobytes() for row in whole})


def _notes(data: ViewData, distinct: int) -> list[str]:
    notes = []
    if distinct < data.n:
        notes.append(f"{data.n - distinct} of {data.n} rows repeat another row")
    notes += [
        f"view {name!r} has one feature"
        for name, d in zip(data.names, data.dims, strict=True)
        if d == 1
    ]
    together = data.mask.T.astype(np.int64) @ data.mask.astype(np.int64)
    for v, w in itertools.combinations(range(data.n_views), 2):
        if together[v, w] == 0:
            notes.append(
                f"no row has both views {data.names[v]!r} and {data.names[w]!r}: only other views "
                "connect them"
            )
    return notes
