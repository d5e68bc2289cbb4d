"""A user's views, mask and labels from files, rows joined by position or by ``id``.

    NPZ         one array, or one that is neither named id; [n, d] (vectors count as one column)
    Parquet     numeric columns, in their order

Where every view has an ``id`` rows are the union of all ids, in order of first appearance, and a
view that lacks an id is missing there. Rows of NaN are missing too. Nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from lamps.errors import MissingExtra, ProblemError
from lamps_plugins._views.data import ViewData

__all__ = ["Table", "named_files", "open_views", "read_arrays", "read_column", "read_table"]

ID = "id"


@dataclass(frozen=True, slots=True)
class Table:
    """One file: values [n, d] and, where it has them, ids [n]."""

    path: Path
    values: NDArray[Any]
    ids: NDArray[Any] | None


def read_table(path: Path) -> Table:
    """The array of an NPZ, or the numeric columns of a Parquet file.

    Raises:
        ProblemError: It cannot be read, or holds something else.
    """
    if not path.is_file():
        raise ProblemError(f"{path} is a folder" if path.is_dir() else f"there is no file {path}")
    if path.suffix.lower() == ".parquet":
        return _parquet(path)
    if path.suffix.lower() in (".npz", ".npy"):
        return _npz(path)
    raise ProblemError(f"{path} is neither .npz nor .parquet; write the view as one of these")


def read_arrays(path: Path, expected: str) -> dict[str, NDArray[Any]]:
    """The arrays of an NPZ, or the one of an NPY; nothing is unpickled.

    Args:
        path: The file.
        expected: What should be in it, for the message.

    Raises:
        ProblemError: It is missing, empty, damaged, of another format, or holds objects.
    """
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "not there"
        raise ProblemError(f"{path} is {kind}; expected {expected}")
    if not path.stat().st_size:
        raise ProblemError(f"{path} is empty; expected {expected}, written with numpy.savez")
    # NumPy leaves a damaged archive open, so the file is ours.
    with path.open("rb") as file:
        head = file.read(6)
        if head[:2] != b"PK" and head != b"\x93NUMPY":
            raise ProblemError(f"{path} is no NPZ; expected {expected}, written with numpy.savez")
        file.seek(0)
        try:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {path.stem: loaded}
            arrays = {name: loaded[name] for name in loaded}
        except (OSError, ValueError, EOFError, BadZipFile) as error:
            objects = "allow_pickle" in str(error)
            reason = "it holds objects" if objects else f"it is damaged ({error})"
            raise ProblemError(
                f"{path} cannot be read: {reason}; expected {expected}, written with numpy.savez"
            ) from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):  # a member of the archive that is no array
            raise ProblemError(
                f"{path} holds {name!r}, which is no array; expected {expected}, written with "
                "numpy.savez"
            )
    return arrays


def _npz(path: Path) -> Table:
    arrays = read_arrays(path, "one array of numbers")
    ids = arrays.pop(ID, None)
    if len(arrays) != 1:
        names = ", ".join(sorted(arrays)) or "none"
        raise ProblemError(f"{path} must hold one array beside {ID!r}, it holds: {names}")
    (values,) = arrays.values()
    if values.dtype.kind not in "biuf":
        raise ProblemError(
            f"{path} holds values of type {values.dtype}, expected numbers; number classes and "
            "groups, for example with numpy.unique(x, return_inverse=True)"
        )
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or 0 in values.shape:
        raise ProblemError(f"{path} has shape {list(values.shape)}, expected [rows, features]")
    return _with_ids(path, values, ids)


def _parquet(path: Path) -> Table:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra("reading Parquet", "pyarrow", "text") from error
    try:
        table = parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise ProblemError(f"{path} cannot be read as Parquet: {error}") from error
    ids = np.asarray(table[ID].to_pylist()) if ID in table.column_names else None
    names = [name for name in table.column_names if name != ID]
    columns = []
    for name in names:
        kind = table.schema.field(name).type
        if not (
            pyarrow.types.is_integer(kind)
            or pyarrow.types.is_floating(kind)
            or pyarrow.types.is_boolean(kind)
        ):
            raise ProblemError(f"{path}: column {name!r} is {kind}, expected numbers; drop it")
        columns.append(table[name].cast(pyarrow.float64()).to_numpy(zero_copy_only=False))
    if not columns or not table.num_rows:
        raise ProblemError(f"{path} has {len(columns)} numeric columns, {table.num_rows} rows")
    return _with_ids(path, np.stack(columns, axis=1), ids)


def _with_ids(path: Path, values: NDArray[Any], ids: NDArray[Any] | None) -> Table:
    if ids is not None:
        if ids.shape != (len(values),):
            raise ProblemError(f"{path} has {len(values)} rows and {ids.size} ids")
        if len(np.unique(ids)) != len(ids):
            raise ProblemError(f"{path} has ids that repeat; every row needs its own")
    return Table(path, values, ids)


def named_files(given: Sequence[str]) -> tuple[list[str], list[Path]]:
    """Names and absolute paths of ``NAME=FILE`` or ``FILE``.

    Raises:
        ProblemError: A name is empty, or no name for an array.
    """
    names, paths = [], []
    for text in given:
        name, equals, rest = str(text).partition("=")
        path = Path(rest if equals else text).expanduser().absolute()
        name = name if equals else path.name.split(".")[0]
        if not name.strip() or "/" in name:
            raise ProblemError(f"{text!r} gives the view no name; write NAME=FILE")
        names.append(name)
        paths.append(path)
    return names, paths


def open_views(
    tables: Sequence[Table], names: Sequence[str], mask: Table | None, n_clusters: int
) -> tuple[ViewData, NDArray[Any] | None]:
    """The views, and the common ids [n] where rows were joined by them.

    Raises:
        ProblemError: Rows do not match, or an observed value is not finite.
    """
    repeated = {name for name in names if list(names).count(name) > 1}
    if repeated:
        raise ProblemError(
            f"two views are called {sorted(repeated)[0]!r}; give each its own name: NAME=FILE"
        )
    ids = _common_ids(tables)
    arrays = [_aligned(t, ids) for t in tables]
    lengths = {len(a) for a in arrays}
    if len(lengths) > 1:
        listed = ", ".join(f"{n} {len(a)}" for n, a in zip(names, arrays, strict=True))
        raise ProblemError(
            f"the views have different numbers of rows ({listed}); give all of them an {ID!r}, or "
            "one row a thing in each"
        )
    seen = np.stack([~np.isnan(a).all(axis=1) for a in arrays], axis=1)
    if mask is not None:
        given = _aligned(mask, ids, fill=0.0)
        if given.shape != seen.shape:
            raise ProblemError(
                f"{mask.path} has shape {list(given.shape)}, expected {list(seen.shape)} of true "
                "and false: one column a view"
            )
        check_mask(given, str(mask.path))
        # A missing id is missing whatever the mask says of it; NaN under a true cell is an error.
        absent = seen if ids is not None else np.ones_like(seen)
        seen = given.astype(np.bool_) & absent
    for name, array in zip(names, arrays, strict=True):
        require_single(array, f"view {name!r}")
    data = ViewData(
        names=tuple(names),
        arrays=tuple(a.astype(np.float32) for a in arrays),
        mask=seen,
        n_clusters=n_clusters,
    )
    return data, ids


def require_single(array: NDArray[Any], where: str) -> None:
    """Refuse finite values that float32 cannot hold.

    Raises:
        ProblemError: It names the largest one.
    """
    size = np.abs(array[np.isfinite(array)])
    if size.size and size.max() > np.finfo(np.float32).max:
        raise ProblemError(
            f"{where} holds {size.max():.3g}, which is too large for float32; rescale it"
        )


def check_mask(mask: NDArray[Any], where: str) -> None:
    """Refuse a mask of anything but true and false, or 1 and 0.

    Raises:
        ProblemError: It names the first other value.
    """
    if mask.dtype.kind not in "biuf":
        raise ProblemError(f"{where} holds values of type {mask.dtype}, expected true and false")
    odd = ~np.isin(mask, (0, 1))
    if odd.any():
        row = int(np.flatnonzero(odd.any(axis=1))[0])
        raise ProblemError(
            f"{where} holds {mask[odd][0]:g} in row {row}, expected true (1, observed) and false "
            "(0, missing)"
        )


def _common_ids(tables: Sequence[Table]) -> NDArray[Any] | None:
    have = [t for t in tables if t.ids is not None]
    if not have:
        return None
    if len(have) < len(tables):
        lacking = next(t for t in tables if t.ids is None)
        raise ProblemError(
            f"{have[0].path} has an {ID!r} and {lacking.path} has none; give it to all or none"
        )
    kinds = {t.ids.dtype.kind in "US" for t in have if t.ids is not None}
    if len(kinds) > 1:
        text = next(t for t in have if t.ids is not None and t.ids.dtype.kind in "US")
        other = next(t for t in have if t.ids is not None and t.ids.dtype.kind not in "US")
        raise ProblemError(
            f"{text.path} has ids of text and {other.path} has numbers; use one type of {ID!r}"
        )
    every = np.concatenate([t.ids for t in have if t.ids is not None])
    values, first = np.unique(every, return_index=True)
    return values[np.argsort(first)]


def _aligned(table: Table, ids: NDArray[Any] | None, fill: float = np.nan) -> NDArray[np.float64]:
    values = table.values.astype(np.float64)
    if ids is None:
        return values
    if table.ids is None:
        raise ProblemError(f"the views have an {ID!r} and {table.path} has none; add it")
    found = np.full((len(ids), values.shape[1]), fill)
    place = {key: row for row, key in enumerate(ids.tolist())}
    unknown = [key for key in table.ids.tolist() if key not in place]
    if unknown:
        raise ProblemError(f"{table.path} has the id {unknown[0]!r}, which no view has")
    found[[place[key] for key in table.ids.tolist()]] = values
    return found


def read_column(path: Path, n: int, ids: NDArray[Any] | None, what: str) -> NDArray[np.int64]:
    """Classes or groups of all rows, re-numbered from 0 in sorted order. Shape: [n].

    Raises:
        ProblemError: There is not one finite value a row.
    """
    table = read_table(path)
    values = _aligned(table, ids)
    if values.shape != (n, 1):
        raise ProblemError(
            f"{path} has shape {list(values.shape)} for the {what} of {n} rows; expected one "
            "value a row"
        )
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values[:, 0]))[0])
        raise ProblemError(f"{path} has no value for row {row}; expected one value a row: {what}")
    return np.unique(values[:, 0], return_inverse=True)[1].astype(np.int64).ravel()
