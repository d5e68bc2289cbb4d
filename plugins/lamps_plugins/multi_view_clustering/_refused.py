"""Views that the family must refuse: each differs from good ones in one thing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lamps_plugins._views.toy import toy_views

Open = Callable[[str | None, Mapping[str, Any]], Any]
Edit = Callable[[dict[str, Any]], object]


def bad_inputs(open_problem: Open) -> Iterator[tuple[str, Callable[[], Any], str]]:
    """Name, call that must raise, and what the message must name."""
    for name, edit, culprit in _CASES:
        yield name, partial(_refused, open_problem, edit), culprit
    toy = partial(open_problem, "toy")
    yield "unknown-builtin", partial(open_problem, "hand7", {}), "hand6"
    yield "nothing-named", partial(open_problem, None, {}), "--view"
    yield "unknown-option", partial(toy, {"ratte": 0.5}), "rate"
    yield "unknown-protocol", partial(toy, {"missing": "sample"}), "sample-rate"
    yield "unknown-track", partial(toy, {"track": "oracle"}), "internal"
    yield "rate-above-one", partial(toy, {"rate": 1.5}), "1.5"
    yield "rate-without-a-view-left", partial(toy, {"missing": "entry-rate", "rate": 0.8}), "0.667"
    yield "files-for-a-builtin", partial(toy, {"clusters": 3}), "clusters"


def _refused(open_problem: Open, edit: Edit) -> Any:
    with tempfile.TemporaryDirectory() as text:
        given = written(Path(text), edit)
        return open_problem(None, given)


def written(folder: Path, edit: Edit = lambda good: None) -> dict[str, Any]:
    """Options of a user's own views of the toy, as files in a folder.

    Args:
        folder: Where they are written.
        edit: Changes the content before it is written: arrays by name of the view, ``mask``,
            ``labels`` and ``clusters``; what is removed is not written.
    """
    data, truth = toy_views(0, n=60)
    good: dict[str, Any] = dict(zip(data.names, (a.copy() for a in data.arrays), strict=True))
    good |= {"mask": data.mask.copy(), "labels": truth, "clusters": 3}
    edit(good)
    options: dict[str, Any] = {"view": []}
    for name, value in good.items():
        if name in ("clusters", "track", "missing"):
            options[name] = value
            continue
        file = folder / f"{name}.npz"
        arrays = value if isinstance(value, dict) else {"values": value}
        np.savez(file, **arrays)
        if name in ("mask", "labels"):
            options[name] = str(file)
        else:
            options["view"].append(str(file))
    return options


def _put(name: str, make: Callable[[Any], Any]) -> Edit:
    return lambda good: good.update({name: make(good[name])})


def _nan_cell(good: dict[str, Any]) -> None:
    good["view1"][7, 2] = np.nan


def _no_view(good: dict[str, Any]) -> None:
    good["mask"][5] = False


def _never_observed(good: dict[str, Any]) -> None:
    good["mask"][:, 1] = False


def _all_alike(good: dict[str, Any]) -> None:
    for name in ("view0", "view1", "view2"):
        good[name][:] = good[name][np.arange(60) % 2]


def _one_view(good: dict[str, Any]) -> None:
    del good["view1"], good["view2"], good["mask"]


def _no_clusters(good: dict[str, Any]) -> None:
    del good["clusters"]


def _no_labels(good: dict[str, Any]) -> None:
    del good["labels"]
    good["track"] = "labelled"


def _some_ids(good: dict[str, Any]) -> None:
    good["view0"] = {"values": good["view0"], "id": np.arange(60)}


def _twin_ids(good: dict[str, Any]) -> None:
    good["view0"] = {"values": good["view0"], "id": np.zeros(60, dtype=np.int64)}


_CASES: tuple[tuple[str, Edit, str], ...] = (
    # what is wrong, the edit, what the message must name
    ("more-clusters-than-rows", _put("clusters", lambda k: 61), "61"),
    ("one-cluster", _put("clusters", lambda k: 1), "2 or more"),
    ("no-number-of-clusters", _no_clusters, "--clusters"),
    ("one-view", _one_view, "2 or more"),
    ("nan-in-an-observed-cell", _nan_cell, "row 7"),
    ("infinite-value", _put("view0", lambda x: np.where(x == x.max(), np.inf, x)), "view0"),
    ("row-without-a-view", _no_view, "row 5"),
    ("view-never-observed", _never_observed, "view1"),
    ("mismatched-rows", _put("view2", lambda x: x[:-1]), "59"),
    ("constant-view", _put("view2", np.ones_like), "view2"),
    ("too-few-distinct-rows", _all_alike, "2 of 60"),
    ("labels-of-another-length", _put("labels", lambda y: y[:-1]), "59"),
    ("missing-label", _put("labels", lambda y: np.where(y == 0, np.nan, y)), "no value"),
    ("labels-needed", _no_labels, "--labels"),
    ("mask-of-another-shape", _put("mask", lambda m: m[:, :2]), "[60, 2]"),
    ("mask-of-other-values", _put("mask", lambda m: m * 2.0), "mask"),
    ("ids-in-some-views", _some_ids, "view1"),
    ("ids-that-repeat", _twin_ids, "repeat"),
    ("two-arrays", _put("view0", lambda x: {"a": x, "b": x}), "one array"),
    ("text-in-a-view", _put("view0", lambda x: x.astype(str)), "numbers"),
    ("hidden-views-of-files", lambda good: good.update(missing="none"), "missing"),
)
