"""Dominance, fronts, ranks and hypervolume over moocore, with every edge case settled once.

Conventions of the whole project:

- Values come as ``[n, m] float64`` with one direction per objective; `to_minimization` flips
  maximised ones, and nothing else in lamps ever flips a sign.
- A row with NaN or +-inf in any objective is never on a front, has rank -1, and adds nothing to a
  hypervolume.
- Duplicates of a front point are all on the front; they add their volume once.
- No rows: an empty front of volume 0.
- A point that does not strictly dominate the reference point adds volume 0.
- The reference point is the worst finite value plus 10 % of the range *after* flipping, so it
  always moves outward, for negative values too. With a range of zero it moves by 10 % of the
  magnitude (1 for zero). Nothing is worse than the largest float, which bounds it.
- A volume beyond the largest float is inf, never NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import moocore
import numpy as np
from numpy.typing import ArrayLike, NDArray

from lamps.errors import ProblemError
from lamps.types import Direction

Floats = NDArray[np.float64]
MAX_OBJECTIVES = 31
"""Limit of moocore's exact hypervolume."""
_LARGEST = np.finfo(np.float64).max


def as_values(values: ArrayLike, n_objectives: int | None = None) -> Floats:
    """A ``[n, m] float64`` array; an empty input becomes ``[0, n_objectives]``.

    Raises:
        ProblemError: Not two-dimensional, no objective, or more than `MAX_OBJECTIVES`.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        width = array.shape[1] if array.ndim == 2 and array.shape[1] else (n_objectives or 1)
        return np.empty((0, width))
    if array.ndim != 2:
        raise ProblemError(f"objective values have shape {array.shape}, expected [n, m]")
    if n_objectives is not None and array.shape[1] != n_objectives:
        raise ProblemError(
            f"objective values have {array.shape[1]} columns, expected {n_objectives}"
        )
    if array.shape[1] > MAX_OBJECTIVES:
        raise ProblemError(f"{array.shape[1]} objectives, at most {MAX_OBJECTIVES} are supported")
    return array


def to_minimization(values: ArrayLike, directions: Sequence[Direction]) -> Floats:
    """Values with maximised columns negated: the only place where a sign is flipped.

    Shape:
        values: [n, m] float64.

    Example:
        >>> to_minimization([[0.9, 3.0]], ["maximize", "minimize"])
        array([[-0.9,  3. ]])
    """
    array = as_values(values, len(directions))
    sign = np.array([-1.0 if d == "maximize" else 1.0 for d in directions])
    flipped: Floats = array * sign
    return flipped


def finite_rows(values: ArrayLike) -> NDArray[np.bool_]:
    """Which rows consist of finite numbers only. Shape: [n] bool."""
    return np.asarray(np.isfinite(as_values(values)).all(axis=1), dtype=np.bool_)


def is_nondominated(values: ArrayLike) -> NDArray[np.bool_]:
    """Which rows lie on the Pareto front of a minimisation problem; duplicates are kept.

    Complexity is moocore's: O(n log n) for up to three objectives.

    Shape:
        values: [n, m] float64, to be minimised.  Returns [n] bool.

    Example:
        >>> is_nondominated([[1, 2], [2, 1], [2, 2], [1, 2], [float("nan"), 0]]).tolist()
        [True, True, False, True, False]
    """
    array = as_values(values)
    keep = finite_rows(array)
    front = np.zeros(len(array), dtype=bool)
    if keep.any():
        inner = array[keep]
        if inner.shape[1] == 1:
            front[keep] = inner[:, 0] == inner[:, 0].min()
        else:
            front[keep] = moocore.is_nondominated(np.ascontiguousarray(inner), keep_weakly=True)
    return front


def ranks(values: ArrayLike) -> NDArray[np.int64]:
    """Pareto rank per row: 0 for the front, 1 for the front of the rest; -1 where not finite.

    Example:
        >>> ranks([[1, 1], [2, 2], [1, 1], [float("inf"), 0]]).tolist()
        [0, 1, 0, -1]
    """
    array = as_values(values)
    result = np.full(len(array), -1, dtype=np.int64)
    keep = finite_rows(array)
    if not keep.any():
        return result
    inner = np.ascontiguousarray(array[keep])
    if inner.shape[1] == 1:
        result[keep] = np.unique(inner[:, 0], return_inverse=True)[1]
        return result
    # moocore ranks copies of a point one after the other; ours share the rank of the point.
    points, back = np.unique(inner, axis=0, return_inverse=True)
    result[keep] = moocore.pareto_rank(points)[back.reshape(-1)]
    return result


def reference_point(values: ArrayLike, *, margin: float = 0.1) -> Floats:
    """The point that bounds the hypervolume: worst finite value plus ``margin`` of the range.

    Shape:
        values: [n, m] float64, to be minimised.  Returns [m]; ones where nothing is finite.

    Example:
        >>> reference_point([[-2.0, 10.0], [-1.0, 20.0]])
        array([-0.9, 21. ])
    """
    array = as_values(values)
    array = array[finite_rows(array)]
    if not len(array):
        return np.ones(array.shape[1])
    low, high = array.min(axis=0), array.max(axis=0)
    span = _span(low, high)
    span = np.where(span > 0, span, np.where(high != 0, np.abs(high), 1.0))
    span = np.minimum(span, _LARGEST)
    # A step smaller than the spacing of floats must still move outward, and one beyond the largest
    # float ends there.
    with np.errstate(over="ignore"):
        bound = np.maximum(high + margin * span, np.nextafter(high, np.inf))
    result: Floats = np.minimum(bound, _LARGEST)
    return result


def hypervolume(values: ArrayLike, reference: ArrayLike) -> float:
    """Volume dominated by the rows up to the reference point; exact, all objectives minimised.

    Shape:
        values: [n, m] float64;  reference: [m] float64, finite.

    Raises:
        ProblemError: The reference point is not finite or has another length.

    Source:
        Fonseca, Paquete, López-Ibáñez 2006, as implemented by moocore.

    Example:
        >>> hypervolume([[1, 2], [2, 1], [5, 5]], [3, 3])
        3.0
    """
    ref = np.asarray(reference, dtype=np.float64).reshape(-1)
    array = as_values(values, len(ref))
    if not np.isfinite(ref).all():
        raise ProblemError(f"reference point {ref.tolist()} is not finite")
    array = array[finite_rows(array)]
    array = array[(array < ref).all(axis=1)]
    if not len(array):
        return 0.0
    if array.shape[1] == 1:
        return float(_span(array.min(axis=0), ref)[0])
    low = array.min(axis=0)
    sides = np.sort(_span(low, ref))
    with np.errstate(over="ignore"):
        # A bound of every partial product and sum that moocore forms on its way.
        bound = len(array) * np.prod(np.maximum(sides, 1.0))
    if np.isfinite(bound):
        return float(moocore.hypervolume(np.ascontiguousarray(array), ref=ref))
    # Inside moocore the volumes of slices would overflow and cancel to NaN.
    volume = np.float64(moocore.hypervolume(normalized(array, low, ref), ref=np.ones(len(ref))))
    with np.errstate(over="ignore"):
        for side in sides:  # ascending, so that only a volume that is beyond a float becomes inf
            volume = volume * side
    return float(volume)


def _span(low: Floats, high: Floats) -> Floats:
    """``high - low`` without a warning where it is beyond the largest float: inf then."""
    with np.errstate(over="ignore"):
        span: Floats = high - low
    return span


def normalized(values: ArrayLike, low: ArrayLike, high: ArrayLike) -> Floats:
    """Values mapped so that ``low`` is 0 and ``high`` is 1 per objective.

    A range of zero maps to 0.
    """
    array = as_values(values)
    lo, hi = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    # Halves, where the range itself is beyond the largest float.
    scale = np.where(np.isfinite(_span(lo, hi)), 1.0, 0.5)
    array, lo, hi = array * scale, lo * scale, hi * scale
    result: Floats = (array - lo) / np.where(hi > lo, hi - lo, 1.0)
    return result


def extreme_rows(values: ArrayLike) -> NDArray[np.int64]:
    """Rows that hold the least or the greatest finite value of an objective, one per end.

    They bound the reference point, so a pool reduced to its front and these keeps it.
    """
    array = as_values(values)
    rows = np.flatnonzero(finite_rows(array))
    if not len(rows):
        return rows
    ends = np.concatenate([array[rows].argmin(axis=0), array[rows].argmax(axis=0)])
    extreme: NDArray[np.int64] = np.unique(rows[ends])
    return extreme


def crowding_distance(values: ArrayLike) -> Floats:
    """NSGA-II crowding distance within a row's own rank: inf at the ends, 0 where not finite.

    Source:
        Deb et al. 2002, A fast and elitist multiobjective genetic algorithm: NSGA-II, section
        III-B.
    """
    array = as_values(values)
    rank = ranks(array)
    distance = np.zeros(len(array))
    for level in range(int(rank.max(initial=-1)) + 1):
        members = np.flatnonzero(rank == level)
        for column in array[members].T:
            if not np.isfinite(_span(column.min(), column.max())):
                column = column / 2.0  # the range itself is beyond the largest float
            order = np.argsort(column, kind="stable")
            span = column[order[-1]] - column[order[0]]
            distance[members[order[[0, -1]]]] = np.inf
            if span > 0 and len(order) > 2:
                gaps: Any = (column[order[2:]] - column[order[:-2]]) / span
                distance[members[order[1:-1]]] += gaps
    return distance
