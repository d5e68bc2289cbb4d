"""From what a user typed to a fair clustering problem."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lamps.errors import ConfigError, ProblemError, did_you_mean
from lamps.types import Json
from lamps_plugins._views.checks import check_views
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.files import read_column
from lamps_plugins.fair_multi_view_clustering._data import BUILTIN, builtin
from lamps_plugins.fair_multi_view_clustering._problem import FairProblem
from lamps_plugins.multi_view_clustering._opening import own_views

__all__ = ["open_any"]

_OF_FILES = ("view", "group", "clusters", "labels")
_OF_BUILTIN = ("delta", "rho", "data_seed")


def open_any(reference: str | None, options: Mapping[str, Any]) -> FairProblem:
    """A built-in problem by its name, or the user's own views; see `FairFamily`."""
    if reference is None:
        return _own(options)
    if reference not in BUILTIN:
        raise ProblemError(
            f"fair-multi-view-clustering has no problem {reference!r}; for your own data give "
            f"--view and --group. {did_you_mean(reference, BUILTIN)}"
        )
    _refuse(options, _OF_FILES, f"is for views from files, the built-in {reference!r} has its own")
    if reference != "plant":
        _refuse(options, ("delta", "rho"), "is for the built-in 'plant' alone")
    delta, rho = float(options.get("delta", 1.0)), float(options.get("rho", 0.0))
    found = builtin(reference, delta=delta, rho=rho, seed=int(options.get("data_seed", 0)))
    raw = ViewData(
        names=found.names,
        arrays=found.arrays,
        mask=np.ones((len(found.truth), len(found.names)), dtype=np.bool_),
        n_clusters=found.n_clusters,
        group=found.group,
    )
    return FairProblem(
        name=f"plant-{delta:g}-{rho:g}" if reference == "plant" else reference,
        raw=raw,
        truth=found.truth,
        track=str(options.get("track", "internal")),
        source={"builtin": reference, "options": dict(options)},
        facts=found.facts,
        notes=check_views(raw),
        seed=int(options.get("split_seed", 0)),
    )


def _refuse(options: Mapping[str, Any], names: tuple[str, ...], why: str) -> None:
    for name in names:
        if name in options:
            raise ConfigError(f"option {name!r} {why}")


def _own(options: Mapping[str, Any]) -> FairProblem:
    _refuse(options, _OF_BUILTIN, "is for built-in data; views from files are taken as they are")
    if "group" not in options:
        raise ConfigError(
            "the sensitive group of each row is needed: --group g.npz, or a built-in problem: "
            f"{', '.join(BUILTIN)}"
        )
    data, ids, source = own_views(options)
    track, seed = str(options.get("track", "internal")), int(options.get("split_seed", 0))
    columns: dict[str, Any] = {}
    for name in ("group", "labels"):
        if name in options:
            path = Path(str(options[name])).expanduser().absolute()
            columns[name], source[name] = read_column(path, data.n, ids, name), str(path)
    raw = dataclasses.replace(data, group=columns["group"])
    more: dict[str, Json] = {"track": track, "split_seed": seed}
    return FairProblem(
        name="+".join(data.names)[:60],
        raw=raw,
        truth=columns.get("labels"),
        track=track,
        source={"options": source | more},
        facts={"source": "the user's files"},
        notes=check_views(raw),
        seed=seed,
    )
