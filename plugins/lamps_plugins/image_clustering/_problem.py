"""The family ``image-clustering``: K clusters of images, helped by texts at several granularities.

The first view is that of the images, the others are texts from coarse to fine. Features have
length 1 and are not standardised, because angles between them are what their encoders mean. Texts
may be missing, images never: whatever is learned from texts, an image alone must be enough to
answer. See `lamps_plugins._views.problem` for landmarks and tracks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from threadpoolctl import threadpool_limits

from lamps.errors import ProblemError
from lamps.types import Json
from lamps_plugins._views.data import Scaler, ViewData
from lamps_plugins._views.family import ClusterFamily, refuse_options
from lamps_plugins._views.problem import ClusterProblem
from lamps_plugins.image_clustering._options import OPTIONS

__all__ = ["FAMILY", "ImageFamily", "ImageProblem", "unit_rows_of"]

_FLOOR = 1e-8


class ImageProblem(ClusterProblem):
    """Images first, then texts; see `ClusterProblem`.

    Raises:
        ProblemError: An image is missing, a vector is zero, or all texts of a kind are equal.
    """

    family: ClassVar[str] = "image-clustering"

    def __init__(self, *, raw: ViewData, **settings: Any) -> None:
        unit = unit_rows_of(raw)
        super().__init__(raw=unit, scaler=_as_it_is(unit), **settings)


def _as_it_is(data: ViewData) -> Scaler:
    return Scaler(
        tuple(np.ones(d, dtype=np.bool_) for d in data.dims),
        tuple(np.zeros(d) for d in data.dims),
        tuple(np.ones(d) for d in data.dims),
    )


def unit_rows_of(raw: ViewData) -> ViewData:
    """The same with rows of length 1.

    Raises:
        ProblemError: As `ImageProblem`.
    """
    if raw.n_views < 2:
        raise ProblemError(
            "there are no texts; give --text-features, or use multi-view-clustering"
        )
    for v, (name, array) in enumerate(zip(raw.names, raw.arrays, strict=True)):
        seen = array[raw.mask[:, v]]
        if len(seen) and not np.ptp(seen, axis=0).any():
            raise ProblemError(
                f"all {name!r} features are equal; they tell nothing, leave them out"
            )
    return _scaled(raw)


def _scaled(raw: ViewData) -> ViewData:
    if not raw.mask[:, 0].all():
        row = int(np.flatnonzero(~raw.mask[:, 0])[0])
        raise ProblemError(f"image {row} has no features; drop it, only texts may be missing")
    arrays = []
    for v, (name, array) in enumerate(zip(raw.names, raw.arrays, strict=True)):
        length = np.linalg.norm(array, axis=1, keepdims=True)
        empty = np.flatnonzero((length[:, 0] < _FLOOR) & raw.mask[:, v])
        if len(empty):
            raise ProblemError(
                f"the {name!r} features of row {empty[0]} are all zero ({len(empty)} such); drop "
                "the row, or mark a missing text with NaN"
            )
        arrays.append((array / np.maximum(length, _FLOOR)).astype(np.float32))
    return dataclasses.replace(raw, arrays=tuple(arrays))


class ImageFamily(ClusterFamily):
    """Clustering of images with the help of texts."""

    name: ClassVar[str] = "image-clustering"
    summary: ClassVar[str] = "Cluster images with the help of texts about them."
    default_objectives: ClassVar[tuple[str, ...]] = ("val_loss", "train_s")
    options = OPTIONS

    def open_given(self, reference: str | None, given: Mapping[str, Any]) -> ClusterProblem:
        """See `ClusterFamily.open_given`."""
        from lamps_plugins.image_clustering import _opening

        return _opening.open_any(reference, given)

    def toy_problem(self, *, seed: int = 0) -> ClusterProblem:
        """180 made-up feature vectors of three classes, with texts at two granularities."""
        return self.open_problem("toy", {"data_seed": seed, "split_seed": seed})

    def predict(
        self, directory: Path, rows: Path | None, options: Mapping[str, Any]
    ) -> Iterable[Mapping[str, Json]]:
        """Cluster and shares of new images by their features alone; see `_views.export`.

        Features are brought to length 1 first, as those of the problem were.
        """
        from lamps_plugins._views import export

        refuse_options(options)
        if rows is None:
            raise ProblemError("new images are read from one NPZ file, not from standard input")
        data = _scaled(export.read_rows(directory, rows))
        method, _ = export.load(directory, data)
        with threadpool_limits(1):
            labels, soft = method.assign(data)
        for row, (label, shares) in enumerate(zip(labels.tolist(), soft.tolist(), strict=True)):
            each: dict[str, Json] = {str(k): share for k, share in enumerate(shares)}
            yield {"row": row, "cluster": label, "share": max(shares), "shares": each}

    def bad_inputs(self) -> Iterator[tuple[str, Any, str]]:
        """Data that must be refused: name, call that must raise, part of the message."""
        from lamps_plugins.image_clustering import _refused

        yield from _refused.bad_inputs(self.open_problem)


FAMILY = ImageFamily()
