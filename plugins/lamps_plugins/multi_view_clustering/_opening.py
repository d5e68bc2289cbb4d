"""From what a user typed to a clustering problem."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from lamps.errors import ConfigError, ProblemError, did_you_mean
from lamps.types import Json
from lamps_plugins._views.builtin import Builtin, load
from lamps_plugins._views.checks import check_views
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.files import named_files, open_views, read_column, read_table
from lamps_plugins._views.masks import missing_mask
from lamps_plugins._views.problem import ClusterProblem
from lamps_plugins._views.toy import toy_views

__all__ = ["BUILTIN", "open_any", "own_views"]

BUILTIN = ("toy", "hand6", "hand5", "mnist5", "dig5", "nutri", "text2")

_OF_FILES = ("view", "mask", "clusters", "labels")
_OF_BUILTIN = ("missing", "rate", "mask_seed")


def open_any(reference: str | None, options: Mapping[str, Any]) -> ClusterProblem:
    """A built-in problem by its name, or the user's own views; see `MultiViewFamily`."""
    if reference is None:
        return _own(options)
    if reference not in BUILTIN:
        raise ProblemError(
            f"multi-view-clustering has no problem {reference!r}; for your own data give --view. "
            f"{did_you_mean(reference, BUILTIN)}"
        )
    meaningless = sorted(set(options) & set(_OF_FILES))
    if meaningless:
        raise ConfigError(
            f"option {meaningless[0]!r} is for views from files, the built-in {reference!r} has "
            "its own"
        )
    protocol = str(options.get("missing", "sample-rate"))
    rate, mask_seed = float(options.get("rate", 0.5)), int(options.get("mask_seed", 0))
    seed = int(options.get("split_seed", 0))
    found = _toy(seed) if reference == "toy" else load(reference)
    complete = found.data
    mask = missing_mask(protocol, rate, complete.n, complete.n_views, mask_seed)
    raw = ViewData(
        names=complete.names, arrays=complete.arrays, mask=mask, n_clusters=complete.n_clusters
    )
    suffix = "" if protocol == "none" else f"-{protocol}-{rate:g}-{mask_seed}"
    return ClusterProblem(
        name=f"{reference}{suffix}",
        raw=raw,
        truth=found.truth,
        track=str(options.get("track", "internal")),
        source={"builtin": reference, "options": dict(options)},
        facts={**found.facts, "missing": protocol, "rate": rate, "mask_seed": mask_seed},
        notes=check_views(raw),
        seed=seed,
        complete=complete,
    )


def _toy(seed: int) -> Builtin:
    data, truth = toy_views(seed)
    facts: dict[str, Json] = {"source": "made in code", "licence": "none needed"}
    return Builtin(data, truth, facts)


def _own(options: Mapping[str, Any]) -> ClusterProblem:
    meaningless = sorted(set(options) & set(_OF_BUILTIN))
    if meaningless:
        flag = meaningless[0].replace("_", "-")
        raise ConfigError(
            f"--{flag} hides views of a built-in problem; what is missing in files is said by "
            "--mask, or by rows of NaN"
        )
    data, ids, source = own_views(options)
    truth = None
    if "labels" in options:
        path = _absolute(options["labels"])
        truth, source["labels"] = read_column(path, data.n, ids, "labels"), str(path)
    track, seed = str(options.get("track", "internal")), int(options.get("split_seed", 0))
    return ClusterProblem(
        name="+".join(data.names)[:60],
        raw=data,
        truth=truth,
        track=track,
        source={"options": source | {"track": track, "split_seed": seed}},
        facts={"source": "the user's files"},
        notes=check_views(data),
        seed=seed,
    )


def own_views(
    options: Mapping[str, Any],
) -> tuple[ViewData, NDArray[Any] | None, dict[str, Json]]:
    """Views of the options ``view``, ``mask`` and ``clusters``.

    Returns:
        The views, their ids where they have them, and the options with absolute paths.

    Raises:
        ProblemError: Files that cannot be used.
        ConfigError: An option is missing.
    """
    given = options.get("view") or []
    if len(given) < 2:
        raise ConfigError(
            f"{len(given)} views were given, expected 2 or more: --view a.npz --view b.npz, or a "
            f"built-in problem: {', '.join(BUILTIN)}"
        )
    if "clusters" not in options:
        raise ConfigError("the number of clusters is needed: --clusters K")
    names, paths = named_files(given)
    mask = _absolute(options["mask"]) if "mask" in options else None
    data, ids = open_views(
        [read_table(path) for path in paths],
        names,
        None if mask is None else read_table(mask),
        int(options["clusters"]),
    )
    source: dict[str, Json] = {
        "view": [f"{name}={path}" for name, path in zip(names, paths, strict=True)],
        "clusters": int(options["clusters"]),
    }
    if mask is not None:
        source["mask"] = str(mask)
    return data, ids, source


def _absolute(path: object) -> Path:
    return Path(str(path)).expanduser().absolute()
