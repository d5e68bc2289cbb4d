"""Views of grey images: pixels, oriented gradients, spectrum, local patterns, profiles.

    HOG     histograms of oriented gradients over cells, normalised over blocks of 2 x 2 cells
    FFT     log(1 + |F|) of the lowest frequencies
    LBP     uniform local binary patterns of 8 neighbours, histograms over a 4 x 4 grid
    prof    row sums, column sums and the seven moments of Hu on a log scale

HOG, local binary patterns and moments are those of scikit-image.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamps.errors import MissingExtra

__all__ = ["fourier", "gradients", "patterns", "pixels", "profiles", "resized"]

Images = NDArray[np.float32]
"""Grey values, any scale. Shape: [n, height, width]."""

_POINTS, _RADIUS, _GRID = 8, 1, 4
_UNIFORM = _POINTS + 2  # values of a rotation-invariant uniform pattern


def _skimage(name: str) -> Any:
    try:
        from importlib import import_module

        return import_module(f"skimage.{name}")
    except ImportError as error:
        raise MissingExtra("deriving views of images", "scikit-image", "views") from error


def pixels(images: Images) -> Images:
    """Grey values in reading order. Shape: [n, height * width]."""
    return images.reshape(len(images), -1)


def resized(images: Images, side: int) -> Images:
    """Bilinear resampling to ``side`` x ``side``, smoothed first where it shrinks."""
    resize = _skimage("transform").resize
    made = [resize(i, (side, side), order=1, anti_aliasing=side < i.shape[0]) for i in images]
    return np.stack(made).astype(np.float32)


def gradients(images: Images, *, cell: int = 7, orientations: int = 9) -> Images:
    """HOG: 324 numbers of a 28 x 28 image with the defaults."""
    hog = _skimage("feature").hog
    made = [
        hog(
            image,
            orientations=orientations,
            pixels_per_cell=(cell, cell),
            cells_per_block=(2, 2),
            feature_vector=True,
        )
        for image in images
    ]
    return np.stack(made).astype(np.float32)


def fourier(images: Images, rows: int = 10, columns: int = 10) -> Images:
    """Log magnitudes of the first ``rows`` x ``columns`` frequencies of the 2-D transform."""
    spectrum = np.log1p(np.abs(np.fft.fft2(images)))[:, :rows, :columns]
    return spectrum.reshape(len(images), -1).astype(np.float32)


def patterns(images: Images) -> Images:
    """Rotation-invariant uniform local binary patterns, shares per cell: [n, 16 * 10]."""
    local = _skimage("feature").local_binary_pattern
    step = images.shape[1] // _GRID
    made = []
    for image in images:
        # Patterns compare grey values, which are integers in the sources; floats may tie wrongly.
        codes = local(np.rint(image).astype(np.int64), _POINTS, _RADIUS, method="uniform")
        cells = codes[: step * _GRID, : step * _GRID].reshape(_GRID, step, _GRID, step)
        flat = cells.swapaxes(1, 2).reshape(_GRID * _GRID, step * step).astype(np.int64)
        counts = [np.bincount(c, minlength=_UNIFORM) for c in flat]
        made.append(np.concatenate(counts) / (step * step))
    return np.stack(made).astype(np.float32)


def profiles(images: Images, *, moments: bool = True) -> Images:
    """Row sums, column sums and, if wanted, Hu's moments: [n, height + width + 7]."""
    sums = np.concatenate([images.sum(axis=2), images.sum(axis=1)], axis=1)
    if not moments:
        return sums.astype(np.float32)
    measure = _skimage("measure")
    hu = []
    for image in images.astype(np.float64):
        central = measure.moments_central(image)
        found = measure.moments_hu(measure.moments_normalized(central))
        hu.append(np.sign(found) * np.log1p(np.abs(found) * 1e6))
    return np.concatenate([sums, np.stack(hu)], axis=1).astype(np.float32)
