"""Data that the family must refuse: each differs from good data in one thing."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lamps_plugins.image_clustering._opening import toy_data

Open = Callable[[str | None, Mapping[str, Any]], Any]
Edit = Callable[[dict[str, Any]], object]


def bad_inputs(open_problem: Open) -> Iterator[tuple[str, Callable[[], Any], str]]:
    """Name, call that must raise, and what the message must name."""
    for name, edit, culprit in _CASES:
        yield name, partial(_refused, open_problem, edit), culprit
    for name, change, culprit in _LISTED:
        yield name, partial(_refused_list, open_problem, change), culprit
    toy = partial(open_problem, "toy")
    yield "unknown-builtin", partial(open_problem, "emojis", {}), "emoji"
    yield "nothing-named", partial(open_problem, None, {}), "--image-features"
    yield "unknown-option", partial(toy, {"flag": True}), "flags"
    yield "option-of-another-builtin", partial(toy, {"distractors": 1}), "distractors"
    yield "unknown-track", partial(toy, {"track": "oracle"}), "internal"
    yield "all-texts-hidden", partial(toy, {"text_hidden": 1.0}), "text_hidden"
    yield "no-texts", partial(open_problem, None, {"images": ".", "clusters": 2}), "--texts"


def _refused(open_problem: Open, edit: Edit) -> Any:
    with tempfile.TemporaryDirectory() as text:
        return open_problem(None, written(Path(text), edit))


def written(folder: Path, edit: Edit = lambda good: None) -> dict[str, Any]:
    """Options of a user's own features of the toy, as files in a folder.

    Args:
        folder: Where they are written.
        edit: Changes the content before it is written: arrays by name, and ``clusters``; what is
            removed is not written.
    """
    data, truth = toy_data(0)
    good: dict[str, Any] = dict(zip(data.names, (a[:90].copy() for a in data.arrays), strict=True))
    good |= {"labels": truth[:90].copy(), "clusters": 3}
    edit(good)
    options: dict[str, Any] = {"text_features": []}
    for name, value in good.items():
        if name in ("clusters", "track", "flags"):
            options[name] = value
            continue
        file = folder / f"{name}.npz"
        np.savez(file, values=value)
        if name == "image":
            options["image_features"] = str(file)
        elif name == "labels":
            options["labels"] = str(file)
        else:
            options["text_features"].append(str(file))
    return options


def _put(name: str, make: Callable[[Any], Any]) -> Edit:
    return lambda good: good.update({name: make(good[name])})


def _without(*names: str) -> Edit:
    return lambda good: [good.pop(name) for name in names]


def _zero_row(good: dict[str, Any]) -> None:
    good["image"][3] = 0.0


def _missing_image(good: dict[str, Any]) -> None:
    good["image"][5] = np.nan


_CASES: tuple[tuple[str, Edit, str], ...] = (
    # what is wrong, the edit, what the message must name
    ("mismatched-rows", _put("fine", lambda x: x[:-1]), "89"),
    ("one-cluster", _put("clusters", lambda k: 1), "2 or more"),
    ("more-clusters-than-rows", _put("clusters", lambda k: 91), "91"),
    ("no-number-of-clusters", _without("clusters"), "--clusters"),
    ("no-text-features", _without("fine", "coarse"), "--text-features"),
    ("zero-features", _zero_row, "row 3"),
    ("missing-image", _missing_image, "image 5"),
    ("equal-texts", _put("coarse", np.ones_like), "coarse"),
    ("nan-in-features", _put("fine", lambda x: np.where(x == x.max(), np.nan, x)), "fine"),
    ("labels-of-another-length", _put("labels", lambda y: y[:-1]), "89"),
    ("builtin-option-for-files", lambda good: good.update(flags=True), "flags"),
)


def _refused_list(
    open_problem: Open, change: Callable[[list[dict[str, str]], Path], object]
) -> Any:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        rows = pictures(folder)
        change(rows, folder)
        file = folder / "texts.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        options = {"images": text, "texts": str(file), "clusters": 2}
        return open_problem(None, {**options, "image_encoder": "hog-colour"})


def pictures(folder: Path, n: int = 8) -> list[dict[str, str]]:
    """Write small pictures into a folder; the rows of a table that describes them."""
    from PIL import Image

    rng = np.random.default_rng(0)
    rows = []
    for i in range(n):
        colour = rng.integers(256, size=(16, 16, 3), dtype=np.uint8)
        Image.fromarray(colour).save(folder / f"{i}.png")
        kind = ("noise", "pattern")[i % 2]
        rows.append(
            {
                "file": f"{i}.png",
                "coarse": kind,
                "fine": f"a {kind} of number {i}",
                "label": "xy"[i % 2],
            }
        )
    return rows


def _text(name: str, text: str, every: bool = False) -> Callable[[Any, Path], object]:
    def change(rows: list[dict[str, str]], folder: Path) -> None:
        for row in rows if every else rows[2:3]:
            row[name] = text

    return change


_LISTED: tuple[tuple[str, Callable[[Any, Path], object], str], ...] = (
    ("empty-description", _text("fine", " "), "image 2"),
    ("one-text-for-all", _text("coarse", "thing", every=True), "coarse"),
    ("class-name-in-a-text", _text("fine", "this is X"), "'x'"),
    ("missing-file", _text("file", "nine.png"), "nine.png"),
    ("no-picture", lambda rows, at: (at / "3.png").write_bytes(b"no"), "3.png"),
    ("column-missing", lambda rows, at: rows[4].pop("fine"), "row 5"),
    ("no-rows", lambda rows, at: rows.clear(), "no rows"),
)
