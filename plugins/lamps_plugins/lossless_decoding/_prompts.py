"""Prompts of the built-in problems: held-out sources of the standard library, and made-up sums.

Validation and test prompts come from different files. Each kind asks for another thing: ``code``
continues a function, ``docstrings`` English in it, ``lists`` a table of literals, ``arithmetic``
lines of sums, ``copy-edit`` a function that was shown and comes again under another name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from lamps.errors import ProblemError
from lamps_plugins._small_lms._corpus import stdlib

__all__ = ["Prompt", "texts"]

_LONGEST = 400  # characters of a prompt, from the end


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is to be continued.

    Args:
        task: Its kind.
        tokens: Token ids.
    """

    task: str
    tokens: tuple[int, ...]


def texts(tasks: Sequence[str], n: int, *, part: str, seed: int) -> list[tuple[str, str]]:
    """The first ``n`` prompts, kinds in turn, so that fewer prompts are a part of more.

    Args:
        tasks: Kinds.
        n: How many over all kinds.
        part: ``val`` or ``test``; they share no file.
        seed: Of the choice.

    Returns:
        Kind and text.

    Raises:
        ProblemError: The sources do not hold so many.
    """
    files = _files(part)
    found: list[tuple[str, str]] = []
    each = {task: _KINDS[task](files, np.random.default_rng([seed, part == "test", place]))
            for place, task in enumerate(_KINDS) if task in tasks}  # fmt: skip
    while len(found) < n:
        for task in tasks:
            text = next(each[task], None)
            if text is None:
                raise ProblemError(
                    f"the sources hold fewer than {n} prompts of {', '.join(tasks)}; there are "
                    f"{len(found)} up to the last of {task}"
                )
            found.append((task, text))
    return found[:n]


def _files(part: str) -> list[str]:
    """Held-out sources of one part, by a second hash of their path."""
    wanted = part == "test"
    return [
        text
        for name, text in stdlib().held_out.items()
        if (hashlib.sha256(name.encode()).digest()[1] % 2 == 1) == wanted and len(text) > 2000
    ]


def _clipped(lines: Sequence[str]) -> str:
    """The last lines that fit."""
    text = "".join(lines)
    if len(text) <= _LONGEST:
        return text
    return text[text.find("\n", len(text) - _LONGEST) + 1 :]


def _spread(items: list[str], rng: Generator) -> Iterator[str]:
    for place in rng.permutation(len(items)):
        yield items[place]


def _code(files: list[str], rng: Generator) -> Iterator[str]:
    """Behind a line of code, some lines into a function."""
    found = []
    for text in files:
        lines = text.splitlines(keepends=True)
        for i in range(12, len(lines) - 12):
            if re.match(r"\s{4,}\S.*[\w):]\n", lines[i - 1]) and any(
                line.lstrip().startswith("def ") for line in lines[i - 10 : i - 2]
            ):
                found.append(_clipped(lines[i - 12 : i]))
    return _spread(found, rng)


def _docstrings(files: list[str], rng: Generator) -> Iterator[str]:
    """Behind the first line of a docstring of several lines."""
    found = []
    for text in files:
        lines = text.splitlines(keepends=True)
        for i in range(8, len(lines) - 4):
            if re.match(r'\s+r?"""[A-Z][^"]{16,}\n', lines[i]):
                found.append(_clipped(lines[i - 6 : i + 1]))
    return _spread(found, rng)


def _lists(files: list[str], rng: Generator) -> Iterator[str]:
    """Inside a table of literals, behind some of its lines."""
    row = re.compile(r"""\s+(\(|\[|\{|['"]|\d|[A-Z_]{3,}\b).*,\s*\n""")
    found = []
    for text in files:
        lines = text.splitlines(keepends=True)
        run = 0
        for i, line in enumerate(lines):
            run = run + 1 if row.fullmatch(line) else 0
            if run >= 4 and run % 4 == 0:
                found.append(_clipped(lines[max(0, i - 8) : i + 1]))
    return _spread(found, rng)


def _arithmetic(files: list[str], rng: Generator) -> Iterator[str]:
    """Sums with their results, the last one open."""
    while True:
        pairs = rng.integers(1, 100, (9, 2)).tolist()
        yield "".join(f"{a} + {b} = {a + b}\n" for a, b in pairs[:-1]) + (
            f"{pairs[-1][0]} + {pairs[-1][1]} = "
        )


def _copy_edit(files: list[str], rng: Generator) -> Iterator[str]:
    """A function, and the head of the same one under another name."""
    block = re.compile(r"^( *)def (\w+)(\(.*\):\n)((?:\1 +\S.*\n){3,9})", re.MULTILINE)
    found = []
    for text in files:
        for match in block.finditer(text):
            indent, name, rest, _ = match.groups()
            if len(match[0]) <= _LONGEST:
                found.append(f"{match[0]}\n{indent}def {name}_again{rest}")
    return _spread(found, rng)


_KINDS: dict[str, Callable[[list[str], Generator], Iterator[str]]] = {
    "code": _code,
    "docstrings": _docstrings,
    "lists": _lists,
    "arithmetic": _arithmetic,
    "copy-edit": _copy_edit,
}
