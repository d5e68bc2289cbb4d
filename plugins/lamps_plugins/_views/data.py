"""Views of n things as arrays with a mask, and their scaling by what was observed.

z = (x - mean) / std                   mean and std over observed rows, features of std 0 go
clip(z, -8, 8)                         a feature that is nearly constant must not rule a view
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lamps.errors import ProblemError

__all__ = ["CLIP", "Scaler", "ViewData", "fit_scaler", "standardised"]

CLIP = 8.0
"""Largest absolute value of a standardised feature."""

_LEAST_STD = 1e-6  # relative to the size of the feature: below lies the rounding of float32


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewData:
    """What V views tell of n things, and which of it was observed.

    What a mask hides is overwritten with zeros when the object is made, so junk or NaN in hidden
    cells reaches nobody. Arrays are read-only.

    Args:
        names: Names of the views. Length: V.
        arrays: Features. Shape: V times [n, d_v] float32.
        mask: Which view of which row was observed. Shape: [n, V] bool.
        n_clusters: K.
        group: Group of each row, 0..t-1, or None. Shape: [n] int64.

    Raises:
        ProblemError: Shapes do not fit, or an observed cell is not finite; one line.
    """

    names: tuple[str, ...]
    arrays: tuple[NDArray[np.float32], ...]
    mask: NDArray[np.bool_]
    n_clusters: int
    group: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        mask = np.array(self.mask, dtype=np.bool_)
        if mask.ndim != 2 or mask.shape[1] != len(self.arrays):
            raise ProblemError(
                f"the mask has shape {list(mask.shape)}, expected [n, {len(self.arrays)}]: one "
                "column a view"
            )
        if len(self.names) != len(self.arrays):
            raise ProblemError(f"{len(self.names)} names for {len(self.arrays)} views")
        arrays = tuple(
            _observed(name, array, mask[:, v])
            for v, (name, array) in enumerate(zip(self.names, self.arrays, strict=True))
        )
        group = None if self.group is None else np.array(self.group, dtype=np.int64)
        if group is not None and group.shape != (len(mask),):
            raise ProblemError(
                f"group has shape {list(group.shape)}, expected [{len(mask)}]: one value a row"
            )
        for array in (mask, *arrays, *(() if group is None else (group,))):
            array.flags.writeable = False
        object.__setattr__(self, "mask", mask)
        object.__setattr__(self, "arrays", arrays)
        object.__setattr__(self, "group", group)

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.mask)

    @property
    def n_views(self) -> int:
        """V."""
        return len(self.arrays)

    @property
    def dims(self) -> tuple[int, ...]:
        """Features of each view."""
        return tuple(a.shape[1] for a in self.arrays)

    @property
    def complete(self) -> NDArray[np.bool_]:
        """Rows of which every view was observed. Shape: [n]."""
        return np.asarray(self.mask.all(axis=1))

    def take(self, rows: NDArray[np.int64]) -> ViewData:
        """The same views of some rows, in their order."""
        return dataclasses.replace(
            self,
            arrays=tuple(a[rows] for a in self.arrays),
            mask=self.mask[rows],
            group=None if self.group is None else self.group[rows],
        )

    def only(self, views: Sequence[int]) -> ViewData:
        """Some of the views, in the order asked; rows may be left without any."""
        return dataclasses.replace(
            self,
            names=tuple(self.names[v] for v in views),
            arrays=tuple(self.arrays[v] for v in views),
            mask=self.mask[:, list(views)],
        )

    def digest(self) -> str:
        """SHA-256 of names, values, mask, K and groups."""
        total = hashlib.sha256(f"{self.names}:{self.dims}:{self.n_clusters}:{self.n}".encode())
        for array in (*self.arrays, self.mask, *(() if self.group is None else (self.group,))):
            total.update(np.ascontiguousarray(array).tobytes())
        return total.hexdigest()

    def __repr__(self) -> str:
        views = ", ".join(f"{n} {d}" for n, d in zip(self.names, self.dims, strict=True))
        return f"ViewData({self.n} rows, {views}, {self.mask.mean():.0%} observed)"


def _observed(name: str, array: NDArray[np.float32], seen: NDArray[np.bool_]) -> NDArray:  # type: ignore[type-arg]
    if array.ndim != 2 or len(array) != len(seen):
        raise ProblemError(
            f"view {name!r} has shape {list(array.shape)}, the mask has {len(seen)} rows; every "
            "view needs one row a thing: [n, features]"
        )
    # One order in memory: torch rounds sums over another one differently.
    copy = np.array(array, dtype=np.float32, order="C")
    copy[~seen] = 0.0
    if not np.isfinite(copy).all():
        row = int(np.flatnonzero(~np.isfinite(copy).all(axis=1))[0])
        raise ProblemError(
            f"view {name!r} has a value that is not finite in row {row}, which is marked as "
            "observed; mark the row as missing or repair it"
        )
    return copy


@dataclass(frozen=True, slots=True)
class Scaler:
    """How a view is standardised; see `fit_scaler`.

    Args:
        keep: Features that vary, by view. Shape: [d_v] bool.
        mean: Mean over observed rows of all features. Shape: [d_v] float64.
        std: Their standard deviation, 1 where it is not kept. Shape: [d_v] float64.
    """

    keep: tuple[NDArray[np.bool_], ...]
    mean: tuple[NDArray[np.float64], ...]
    std: tuple[NDArray[np.float64], ...]

    def apply(self, data: ViewData) -> ViewData:
        """Data of the same views, standardised; hidden cells stay 0, which is the mean."""
        if data.dims != tuple(len(k) for k in self.keep):
            raise ProblemError(
                f"the views have {list(data.dims)} features, expected "
                f"{[len(k) for k in self.keep]}"
            )
        arrays = tuple(
            np.clip((a - m)[:, k] / s[k], -CLIP, CLIP).astype(np.float32)
            for a, k, m, s in zip(data.arrays, self.keep, self.mean, self.std, strict=True)
        )
        return dataclasses.replace(data, arrays=arrays)


def fit_scaler(data: ViewData, rows: NDArray[np.int64] | None = None) -> Scaler:
    """Mean and deviation of each feature over the observed ones of some rows.

    Args:
        data: The views.
        rows: Rows that count; all if None.

    Raises:
        ProblemError: A view is never observed, or constant; one line that names it.
    """
    chosen = data if rows is None else data.take(rows)
    keep, mean, std = [], [], []
    for v, (name, array) in enumerate(zip(chosen.names, chosen.arrays, strict=True)):
        seen = array[chosen.mask[:, v]].astype(np.float64)
        if not len(seen):
            raise ProblemError(f"view {name!r} is never observed; leave it out")
        centre, spread = seen.mean(axis=0), seen.std(axis=0)
        varies = spread > _LEAST_STD * np.maximum(np.abs(centre), 1e-12)
        if not varies.any():
            raise ProblemError(
                f"view {name!r} is constant over its {len(seen)} observed rows; leave it out"
            )
        keep.append(varies)
        mean.append(centre)
        std.append(np.where(varies, spread, 1.0))
    return Scaler(tuple(keep), tuple(mean), tuple(std))


def standardised(data: ViewData, rows: NDArray[np.int64] | None = None) -> ViewData:
    """All rows, standardised by the observed ones of ``rows`` alone; see the module's formulas."""
    return fit_scaler(data, rows).apply(data)
