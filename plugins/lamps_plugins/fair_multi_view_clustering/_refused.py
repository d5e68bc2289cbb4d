"""Data that the family must refuse: each differs from good data in one thing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lamps_plugins.fair_multi_view_clustering._data import builtin

Open = Callable[[str | None, Mapping[str, Any]], Any]
Edit = Callable[[dict[str, Any]], object]


def bad_inputs(open_problem: Open) -> Iterator[tuple[str, Callable[[], Any], str]]:
    """Name, call that must raise, and what the message must name."""
    for name, edit, culprit in _CASES:
        yield name, partial(_refused, open_problem, edit), culprit
    toy, plant = partial(open_problem, "toy"), partial(open_problem, "plant")
    yield "unknown-builtin", partial(open_problem, "src3", {}), "src2"
    yield "nothing-named", partial(open_problem, None, {}), "--group"
    yield "unknown-option", partial(toy, {"grup": 1}), "group"
    yield "unknown-track", partial(toy, {"track": "oracle"}), "internal"
    yield "files-for-a-builtin", partial(toy, {"clusters": 3}), "clusters"
    yield "planted-option-elsewhere", partial(toy, {"rho": 0.5}), "rho"
    yield "tie-above-one", partial(plant, {"rho": 1.5}), "rho=1.5"
    yield "negative-shift", partial(plant, {"delta": -1.0}), "delta=-1"


def _refused(open_problem: Open, edit: Edit) -> Any:
    with tempfile.TemporaryDirectory() as text:
        return open_problem(None, written(Path(text), edit))


def written(folder: Path, edit: Edit = lambda good: None) -> dict[str, Any]:
    """Options of a user's own views with groups, as files in a folder.

    Args:
        folder: Where they are written.
        edit: Changes the content before it is written: arrays by name of the view, ``group``,
            ``labels``, and ``clusters``; what is removed is not written.
    """
    toy = builtin("toy")
    good: dict[str, Any] = {n: a[:60].copy() for n, a in zip(toy.names, toy.arrays, strict=True)}
    good |= {"group": toy.group[:60].copy(), "labels": toy.truth[:60].copy(), "clusters": 3}
    edit(good)
    options: dict[str, Any] = {"view": []}
    for name, value in good.items():
        if name in ("clusters", "track", "delta"):
            options[name] = value
            continue
        file = folder / f"{name}.npz"
        np.savez(file, values=value)
        if name in ("group", "labels"):
            options[name] = str(file)
        else:
            options["view"].append(str(file))
    return options


def _put(name: str, make: Callable[[Any], Any]) -> Edit:
    return lambda good: good.update({name: make(good[name])})


def _missing_view(good: dict[str, Any]) -> None:
    good["left"][4] = np.nan


def _small_group(good: dict[str, Any]) -> None:
    good["group"][:] = 0
    good["group"][:2] = 1


def _without(name: str) -> Edit:
    return lambda good: good.pop(name)


_CASES: tuple[tuple[str, Edit, str], ...] = (
    # what is wrong, the edit, what the message must name
    ("no-group", _without("group"), "--group"),
    ("one-group", _put("group", np.zeros_like), "one group"),
    ("group-smaller-than-k", _small_group, "2 rows for 3 clusters"),
    ("measured-value-as-group", _put("group", lambda g: np.arange(60) / 7.0), "60 groups"),
    (
        "group-of-another-length",
        _put("group", lambda g: g[:-1]),
        "[59, 1] for the group of 60 rows",
    ),
    ("group-with-nan", _put("group", lambda g: np.where(g == 0, np.nan, g)), "no value"),
    ("missing-view", _missing_view, "row 4"),
    ("nan-in-a-view", _put("left", lambda x: np.where(x == x.max(), np.nan, x)), "left"),
    ("mismatched-rows", _put("right", lambda x: x[:-1]), "59"),
    ("constant-view", _put("right", np.ones_like), "right"),
    ("no-number-of-clusters", _without("clusters"), "--clusters"),
    ("one-cluster", _put("clusters", lambda k: 1), "2 or more"),
    ("more-clusters-than-rows", _put("clusters", lambda k: 61), "61"),
    ("one-view", _without("right"), "2 or more"),
    ("planted-option-for-files", lambda good: good.update(delta=1.0), "delta"),
)
