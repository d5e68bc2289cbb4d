from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lamps_plugins._views.files import open_views, read_column, read_table
from pyarrow import parquet

from lamps.errors import ProblemError

RNG = np.random.default_rng(0)


def npz(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def opened(paths: list[Path], mask: Path | None = None, k: int = 2) -> Any:
    names = [p.stem for p in paths]
    given = None if mask is None else read_table(mask)
    return open_views([read_table(p) for p in paths], names, given, k)


def test_npz_npy_and_parquet_hold_the_same_view(tmp_path: Path) -> None:
    x = RNG.normal(size=(6, 3))
    np.save(tmp_path / "a.npy", x)
    table = pa.table({f"c{j}": x[:, j] for j in range(3)})
    parquet.write_table(table, tmp_path / "c.parquet")
    paths = [tmp_path / "a.npy", npz(tmp_path / "b.npz", anything=x), tmp_path / "c.parquet"]
    data, ids = opened(paths)
    assert ids is None
    for array in data.arrays:
        assert array == pytest.approx(x, abs=1e-6)
    assert data.mask.all()


def test_rows_of_nan_are_missing_and_so_are_nulls_of_parquet(tmp_path: Path) -> None:
    x = RNG.normal(size=(4, 2))
    x[1] = np.nan
    parquet.write_table(
        pa.table({"p": [1.0, 2.0, None, 4.0], "q": [1, 2, None, 4]}), tmp_path / "b.parquet"
    )
    data, _ = opened([npz(tmp_path / "a.npz", x=x), tmp_path / "b.parquet"])
    assert data.mask.tolist() == [[True, True], [False, True], [True, False], [True, True]]
    assert not data.arrays[0][1].any()


def test_ids_join_rows_in_any_order_and_what_lacks_one_is_missing(tmp_path: Path) -> None:
    x, y = RNG.normal(size=(3, 2)), RNG.normal(size=(3, 1))
    a = npz(tmp_path / "a.npz", x=x, id=np.array(["u", "v", "w"]))
    parquet.write_table(pa.table({"id": ["w", "t", "u"], "y": y[:, 0]}), tmp_path / "b.parquet")
    data, ids = opened([a, tmp_path / "b.parquet"])
    assert ids is not None
    assert ids.tolist() == ["u", "v", "w", "t"]
    assert data.mask.tolist() == [[True, True], [True, False], [True, True], [False, True]]
    assert data.arrays[1][:, 0] == pytest.approx([y[2, 0], 0.0, y[0, 0], y[1, 0]])
    labels = npz(tmp_path / "y.npz", y=np.array([7, 5, 5, 7]), id=np.array(["t", "u", "v", "w"]))
    assert read_column(labels, 4, ids, "labels").tolist() == [0, 0, 1, 1]
    mask = npz(tmp_path / "m.npz", m=np.ones((4, 2), bool), id=np.array(["t", "u", "v", "w"]))
    with_mask, _ = opened([a, tmp_path / "b.parquet"], mask)
    assert (with_mask.mask == data.mask).all()


def test_a_mask_hides_what_files_hold(tmp_path: Path) -> None:
    x = RNG.normal(size=(3, 2))
    paths = [npz(tmp_path / f"{n}.npz", x=x) for n in "ab"]
    mask = np.array([[1, 0], [1, 1], [0, 1]])
    data, _ = opened(paths, npz(tmp_path / "m.npz", m=mask))
    assert (data.mask == mask.astype(bool)).all()


def test_nan_that_a_mask_calls_observed_is_refused(tmp_path: Path) -> None:
    x = RNG.normal(size=(3, 2))
    x[2] = np.nan
    paths = [npz(tmp_path / "a.npz", x=x), npz(tmp_path / "b.npz", x=np.ones((3, 1)))]
    with pytest.raises(ProblemError, match=r"'a' .*row 2"):
        opened(paths, npz(tmp_path / "m.npz", m=np.ones((3, 2))))


def test_numbers_of_classes_may_be_any(tmp_path: Path) -> None:
    path = npz(tmp_path / "y.npz", y=np.array([-3, 10, 10, 4]))
    assert read_column(path, 4, None, "labels").tolist() == [0, 2, 2, 1]


@pytest.mark.parametrize(
    ("content", "culprit"),
    [
        ({}, "holds: none"),
        ({"a": np.ones(3), "b": np.ones(3)}, "holds: a, b"),
        ({"a": np.array(["x"])}, "expected numbers"),
        ({"a": np.ones((2, 2, 2))}, r"\[2, 2, 2\]"),
        ({"a": np.ones((0, 2))}, r"\[0, 2\]"),
        ({"a": np.ones(3), "id": np.arange(2)}, "3 rows and 2 ids"),
        ({"a": np.ones(2), "id": np.zeros(2)}, "repeat"),
        ({"a": np.array([object()])}, "cannot be read"),
    ],
)
def test_arrays_that_are_no_view_are_refused(
    tmp_path: Path, content: dict[str, Any], culprit: str
) -> None:
    with pytest.raises(ProblemError, match=culprit) as caught:
        read_table(npz(tmp_path / "a.npz", **content))
    assert "\n" not in str(caught.value)


def test_files_that_are_no_view_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2\n")
    (tmp_path / "b.npz").write_bytes(b"no zip")
    (tmp_path / "c.parquet").write_bytes(b"no parquet")
    parquet.write_table(pa.table({"t": ["x"]}), tmp_path / "d.parquet")
    for name, culprit in {
        "a.csv": "neither", "b.npz": "is no NPZ", "c.parquet": "cannot be read",
        "d.parquet": "'t' is string", "e.npz": "no file",
    }.items():  # fmt: skip
        with pytest.raises(ProblemError, match=culprit):
            read_table(tmp_path / name)


def test_two_views_of_one_name_are_refused(tmp_path: Path) -> None:
    table = read_table(npz(tmp_path / "a.npz", x=np.eye(3)))
    with pytest.raises(ProblemError, match="NAME=FILE"):
        open_views([table, table], ["a", "a"], None, 2)
