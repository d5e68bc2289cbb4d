"""Images with a description at several granularities, before anything has been encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lamps.errors import ProblemError
from lamps.types import Json

__all__ = ["Described", "refuse_labels_in_texts", "spelled_out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """n images with their texts.

    Args:
        images: Pictures on white, [n, side, side, 3] uint8.
        texts: One string an image, by granularity.
        truth: Class of each image, [n] int64, or None.
        classes: Names of the classes; empty where they have none.
        facts: Source and licence, for the card.

    Raises:
        ProblemError: A granularity has another length, an empty text, or one text for all images.
    """

    images: NDArray[np.uint8]
    texts: Mapping[str, tuple[str, ...]]
    truth: NDArray[np.int64] | None = None
    classes: tuple[str, ...] = ()
    facts: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, texts in self.texts.items():
            if len(texts) != len(self.images):
                raise ProblemError(
                    f"there are {len(texts)} {name!r} texts for {len(self.images)} images; every "
                    "image needs one"
                )
            for row, text in enumerate(texts):
                if not text.strip():
                    raise ProblemError(
                        f"the {name!r} text of image {row} is empty; describe it or drop the image"
                    )
            if len(set(texts)) == 1:
                raise ProblemError(
                    f"all images have the same {name!r} text {texts[0][:40]!r}; it tells nothing, "
                    "leave it out"
                )


def spelled_out(text: str, classes: Sequence[str]) -> str | None:
    """The class name that stands in a text as whole words, whatever the case; None if none does.

    Example:
        >>> spelled_out("a plate of Food & Drink", ["Food & Drink", "Objects"])
        'Food & Drink'
        >>> spelled_out("an objection", ["Objects"]) is None
        True
    """
    inside = f" {text.casefold()} "
    return next((c for c in classes if c.strip() and f" {c.casefold()} " in inside), None)


def refuse_labels_in_texts(texts: Mapping[str, tuple[str, ...]], classes: Sequence[str]) -> None:
    """Refuse texts that spell out the name of a class: clustering them would be reading labels.

    Raises:
        ProblemError: There is one; the message names class and text.
    """
    for name, found in texts.items():
        for text in found:
            if (label := spelled_out(text, classes)) is not None:
                raise ProblemError(
                    f"the {name!r} text {text[:60]!r} contains the class name {label!r}; take "
                    "class names out of the texts"
                )
