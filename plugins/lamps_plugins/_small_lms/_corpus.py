"""Sources of the Python standard library that this interpreter came with, split by file.

A file is held out when a hash of its path says so (one in ten), so the split is the same on every
machine with the same files. Left out are tests, tables of encodings, and files that are no UTF-8.
"""

from __future__ import annotations

import functools
import hashlib
import sysconfig
from pathlib import Path
from typing import NamedTuple

from lamps.errors import ProblemError

__all__ = ["Corpus", "stdlib"]

_LEFT_OUT = frozenset(
    ("test", "tests", "idlelib", "lib2to3", "encodings", "pydoc_data", "site-packages",
     "dist-packages", "turtledemo", "__pycache__")
)  # fmt: skip
_HELD_OUT = 10  # one file in so many


class Corpus(NamedTuple):
    """Texts by path relative to the library's root, in the order of paths; and their hash."""

    train: dict[str, str]
    held_out: dict[str, str]
    sha256: str


@functools.lru_cache(maxsize=1)
def stdlib() -> Corpus:
    """The sources of the running interpreter.

    Raises:
        ProblemError: This interpreter came without sources.
    """
    root = Path(sysconfig.get_path("stdlib"))
    parts: tuple[dict[str, str], dict[str, str]] = ({}, {})
    total = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if _LEFT_OUT & set(name.split("/")[:-1]):
            continue
        raw = path.read_bytes()
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            continue  # a handful of sources in other encodings
        total.update(name.encode() + b"\0" + hashlib.sha256(raw).digest())
        held = hashlib.sha256(name.encode()).digest()[0] % _HELD_OUT == 0
        parts[held][name] = text
    if not all(parts):
        raise ProblemError(
            f"{root} holds no Python sources of the standard library, expected those of the "
            "running interpreter; use an installation that has them"
        )
    return Corpus(*parts, total.hexdigest())
