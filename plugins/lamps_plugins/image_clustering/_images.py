"""Pictures from files, as arrays of one size on a white ground."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamps.errors import MissingExtra, ProblemError

__all__ = ["SIDE", "read_images"]

SIDE = 64
"""Pixels of a side; pictures of another size are resampled, their shape kept on a white square."""


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtra("reading images", "pillow", "views") from error
    return Image


def read_images(files: Sequence[Path]) -> NDArray[np.uint8]:
    """Pictures of `SIDE` pixels, transparent parts white. Shape: [n, SIDE, SIDE, 3].

    Raises:
        ProblemError: A file cannot be read as a picture.
    """
    image = _pillow()
    found = np.full((len(files), SIDE, SIDE, 3), 255, dtype=np.uint8)
    for row, file in enumerate(files):
        try:
            with image.open(file) as opened:
                picture = opened.convert("RGBA")
        except (OSError, ValueError) as error:
            raise ProblemError(f"{file} cannot be read as a picture: {error}") from error
        picture.thumbnail((SIDE, SIDE), image.Resampling.BICUBIC)
        ground = image.new("RGBA", (SIDE, SIDE), (255, 255, 255, 255))
        corner = ((SIDE - picture.width) // 2, (SIDE - picture.height) // 2)
        ground.alpha_composite(picture, corner)
        found[row] = np.asarray(ground.convert("RGB"))
    return found
