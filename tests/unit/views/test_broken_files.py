"""Files that are no views: one line each, whatever NumPy makes of them."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from lamps_plugins._views.files import check_mask, named_files, read_arrays, require_single

from lamps.errors import ProblemError


def empty(path: Path) -> None:
    path.touch()


def text(path: Path) -> None:
    path.write_text("1,2,3\n")


def foreign_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hi")


def empty_member(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"")


def objects(path: Path) -> None:
    np.savez(path, x=np.array([{}, {}], dtype=object))


def truncated(path: Path) -> None:
    np.savez(path, x=np.zeros((50, 3)))
    path.write_bytes(path.read_bytes()[:200])


def folder(path: Path) -> None:
    path.mkdir()


def missing(path: Path) -> None:
    del path


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (empty, "is empty"),
        (text, "is no NPZ"),
        (foreign_zip, "is no array"),
        (empty_member, ""),
        (objects, "it holds objects"),
        (truncated, "it is damaged"),
        (folder, "is a folder"),
        (missing, "is not there"),
    ],
)
def test_what_is_no_npz_is_told_in_one_line(
    make: Callable[[Path], None], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "v.npz"
    make(path)
    with pytest.raises(ProblemError) as caught:
        read_arrays(path, "one array of numbers")
    message = str(caught.value)
    assert said in message
    assert "expected one array of numbers" in message
    assert "\n" not in message
    assert "pickle" not in message


@pytest.mark.parametrize("value", [2.0, 0.5, -1.0, np.nan])
def test_a_mask_holds_true_and_false(value: float) -> None:
    mask = np.ones((4, 2))
    mask[2, 1] = value
    with pytest.raises(ProblemError, match=r"holds .* in row 2, expected true"):
        check_mask(mask, "m.npz")
    check_mask(np.ones((4, 2), dtype=bool), "m.npz")
    with pytest.raises(ProblemError, match="expected true and false"):
        check_mask(np.full((4, 2), "x"), "m.npz")


def test_values_beyond_float32_are_named() -> None:
    require_single(np.array([[1e30, np.nan]]), "view 'a'")
    with pytest.raises(ProblemError, match=r"holds 3e\+300, which is too large"):
        require_single(np.array([[3e300]]), "view 'a'")


def test_views_have_names(tmp_path: Path) -> None:
    names, paths = named_files([f"gene={tmp_path}/a.npz", f"{tmp_path}/b.x.npz"])
    assert names == ["gene", "b"]
    assert [p.name for p in paths] == ["a.npz", "b.x.npz"]
    for given in ("=a.npz", " =a.npz", "x/y=b.npz"):
        with pytest.raises(ProblemError, match="gives the view no name"):
            named_files([given])
