"""Emoji as images with names: the pictures of Twitter, the names of Unicode.

The package ``emoji-datasource-twitter`` of the npm registry, unpacked by the user, has both. Names
are the fine description, the last word of the short name the coarse one; classes are categories,
and emoji whose name spells out a category are left out. Rows are base emoji: skin tones and other
variants would be near-duplicates. Country flags are left out unless asked for: they make one
trivial cluster.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from lamps.errors import ProblemError
from lamps.method import cache_dir
from lamps_plugins.image_clustering._described import Described, spelled_out

__all__ = ["VARIABLE", "emoji", "emoji_folder"]

PACKAGE, VERSION = "emoji-datasource-twitter", "16.0.0"
VARIABLE = "LAMPS_EMOJI"
"""Environment variable that names the unpacked package; else it is looked for in the cache."""

_LEAST_ROWS = 20  # of a category; smaller ones are left out
_DROPPED = ("Component",)


def emoji_folder() -> Path:
    """The unpacked package.

    Raises:
        ProblemError: It is not there; the message holds the command that gets it.
    """
    given = os.environ.get(VARIABLE)
    folder = Path(given).expanduser() if given else cache_dir() / PACKAGE
    for place in (folder, folder / "package"):
        if (place / "emoji.json").is_file():
            return place
    raise ProblemError(
        f"no emoji in {folder}; get them with: mkdir -p {folder} && npm pack {PACKAGE}@{VERSION} "
        f"--pack-destination {folder} && tar xzf {folder}/{PACKAGE}-{VERSION}.tgz -C {folder}"
    )


def emoji(*, flags: bool = False) -> Described:
    """Base emoji with a picture, in Unicode's order.

    Args:
        flags: Whether country flags stay.
    """
    from lamps_plugins.image_clustering._images import read_images

    folder = emoji_folder()
    listed = json.loads((folder / "emoji.json").read_text(encoding="utf-8"))
    kept = [e for e in sorted(listed, key=lambda e: int(e["sort_order"])) if _wanted(e, flags)]
    sizes = Counter(e["category"] for e in kept)
    classes = sorted(name for name, size in sizes.items() if size >= _LEAST_ROWS)
    kept = [
        e
        for e in kept
        if e["category"] in classes and spelled_out(_words(e["name"]), classes) is None
    ]
    return Described(
        images=read_images([folder / "img" / "twitter" / "64" / e["image"] for e in kept]),
        texts={
            "fine": tuple(_words(e["name"]) for e in kept),
            "coarse": tuple(_head(e["short_name"]) for e in kept),
        },
        truth=np.array([classes.index(e["category"]) for e in kept], dtype=np.int64),
        classes=tuple(classes),
        facts={
            "what": "emoji with their Unicode names; classes are categories of 20 rows or more",
            "source": f"npm {PACKAGE}=={VERSION}",
            "licence": "CC BY 4.0 (pictures), MIT (package), Unicode licence (names)",
            "country_flags": "kept" if flags else "left out",
        },
    )


def _wanted(entry: dict[str, Any], flags: bool) -> bool:
    if not entry["has_img_twitter"] or entry["category"] in _DROPPED:
        return False
    return flags or entry["subcategory"] != "country-flag"


def _words(text: str) -> str:
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def _head(short_name: str) -> str:
    words = [w for w in re.findall(r"[a-z0-9]+", short_name.lower()) if not w.isdigit()]
    return words[-1] if words else _words(short_name)
