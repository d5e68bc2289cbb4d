"""A clustering on disk, and the assignment of new rows by it.

    lamps.json           method, params, views, K, scores
    clusters.npz         labels [n], soft [n, K], embedding [n, q], rows [n]
    scaler.npz           how each view is standardised
    model.safetensors    the checkpoint of the method

``clusters.npz`` is read with NumPy alone. New rows come as one NPZ: an array [n, d_v] per view by
the view's name, a view that is left out is missing in all rows; rows of NaN are missing, or what
an array ``mask`` [n, V] says, in the order of the views.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lamps.artifacts import decode_state, encode_state
from lamps.errors import ProblemError, StoreError
from lamps.types import Json
from lamps_plugins._views.data import Scaler, ViewData
from lamps_plugins._views.files import check_mask, read_arrays, require_single

if TYPE_CHECKING:
    from lamps_plugins._views.clusterer import Clusterer
    from lamps_plugins._views.problem import ClusterProblem

__all__ = ["load", "predict", "read_rows", "with_scores", "write"]

CARD, CLUSTERS, SCALER, MODEL = "lamps.json", "clusters.npz", "scaler.npz", "model.safetensors"
FORMAT = 1


def write(method: Clusterer[Any], problem: ClusterProblem, directory: Path) -> None:
    """Write a fitted method into an existing empty folder."""
    found = method.require_fitted()
    soft = found.soft
    if soft is None:  # a hard clustering
        soft = np.eye(problem.n_clusters, dtype=np.float32)[found.labels]
    np.savez_compressed(
        directory / CLUSTERS,
        labels=found.labels,
        soft=np.asarray(soft, dtype=np.float32),
        embedding=found.embedding,
        rows=method.rows_,
    )
    arrays: dict[str, Any] = {}
    for v in range(problem.raw.n_views):
        scaler = problem.scaler
        arrays |= {
            f"keep{v}": scaler.keep[v],
            f"mean{v}": scaler.mean[v],
            f"std{v}": scaler.std[v],
        }
    np.savez_compressed(directory / SCALER, **arrays)
    (directory / MODEL).write_bytes(encode_state(method.state_dict()))
    views: list[Json] = [
        {"name": name, "features": d}
        for name, d in zip(problem.raw.names, problem.raw.dims, strict=True)
    ]
    card: dict[str, Json] = {
        "format": FORMAT,
        "family": problem.family,
        **method.card(),
        "problem": problem.name,
        "problem_fingerprint": problem.fingerprint(),
        "track": problem.track,
        "views": views,
        "clusters": problem.n_clusters,
        "soft": "one-hot" if found.soft is None else "by the method",
    }
    _write_card(directory, card)


def _write_card(directory: Path, card: Mapping[str, Json]) -> None:
    text = json.dumps(card, indent=2, ensure_ascii=False)
    (directory / CARD).write_text(text + "\n", encoding="utf-8")


def _read_card(directory: Path) -> dict[str, Any]:
    try:
        card: dict[str, Any] = json.loads((directory / CARD).read_text(encoding="utf-8"))
        missing = {"module", "class", "params", "views", "clusters"} - set(card)
        if missing:
            raise KeyError(sorted(missing)[0])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProblemError(
            f"{directory} is no exported clustering: {CARD}: {type(error).__name__} {error}"
        ) from error
    return card


def with_scores(directory: Path, scores: Mapping[str, float]) -> None:
    """Put the measured scores into the card."""
    _write_card(directory, {**_read_card(directory), "scores": dict(scores)})


def load(directory: Path, data: ViewData | None = None) -> tuple[Clusterer[Any], Scaler]:
    """The method of an export, ready to `Clusterer.assign`, and how to standardise rows for it.

    Args:
        directory: The exported folder.
        data: Raw rows that will be assigned; methods that need none ignore them.

    Raises:
        ProblemError: It is no export, or its method cannot be imported.
    """
    from lamps_plugins._views.problem import ClusterProblem

    card = _read_card(directory)
    try:
        kind: type[Clusterer[Any]] = getattr(import_module(card["module"]), card["class"])
    except (ImportError, AttributeError) as error:
        raise ProblemError(
            f"{directory} was written by {card['module']}.{card['class']}, which cannot be "
            f"imported here: {error}"
        ) from error
    kept = read_arrays(directory / SCALER, "the scales of an exported clustering")
    try:
        parts = [
            tuple(kept[f"{part}{v}"] for v in range(len(card["views"])))
            for part in ("keep", "mean", "std")
        ]
        state = decode_state((directory / MODEL).read_bytes())
    except (KeyError, StoreError, OSError) as error:
        raise ProblemError(
            f"{directory} is damaged ({error}); export the candidate again: lamps export RUN N DIR"
        ) from error
    scaler = Scaler(*parts)
    rows = data or ViewData(
        names=tuple(view["name"] for view in card["views"]),
        arrays=tuple(np.zeros((0, view["features"]), np.float32) for view in card["views"]),
        mask=np.zeros((0, len(card["views"])), np.bool_),
        n_clusters=int(card["clusters"]),
    )
    method = kind.from_params(card["params"])
    method.load_state_dict(state, ClusterProblem(name="new rows", raw=rows, scaler=scaler))
    return method, scaler


def read_rows(directory: Path, file: Path) -> ViewData:
    """New rows for an export, raw; see the module for the layout of the file.

    Raises:
        ProblemError: Views or mask do not fit the export, or a row has no view; one line.
    """
    card = _read_card(directory)
    names = [view["name"] for view in card["views"]]
    arrays = read_arrays(file, f"an array per view: {', '.join(names)}")
    mask = arrays.pop("mask", None)
    unknown = sorted(set(arrays) - set(names))
    if unknown or not arrays:
        raise ProblemError(
            f"{file} holds {', '.join(unknown) or 'no view'}; expected those of the arrays "
            f"{', '.join(names)} that were seen, and optionally mask; rows are told by position"
        )
    first = next(iter(arrays.values()))
    n = len(first) if first.ndim else 0
    views, seen = [], np.zeros((n, len(names)), dtype=np.bool_)
    for v, view in enumerate(card["views"]):
        array = arrays.get(view["name"])
        if array is None:
            views.append(np.zeros((n, view["features"]), np.float32))
            continue
        if array.shape != (n, view["features"]) or array.dtype.kind not in "biuf":
            raise ProblemError(
                f"{file}: view {view['name']!r} has shape {list(array.shape)} of {array.dtype}, "
                f"expected {[n, view['features']]} of numbers"
            )
        seen[:, v] = ~np.isnan(array.astype(np.float64)).all(axis=1)
        require_single(array.astype(np.float64), f"{file}: view {view['name']!r}")
        views.append(array.astype(np.float32))
    if mask is not None:
        if mask.shape != seen.shape:
            raise ProblemError(
                f"{file}: mask has shape {list(mask.shape)}, expected {list(seen.shape)}"
            )
        check_mask(mask, f"{file}: mask")
        given = np.array([name in arrays for name in names])
        seen = mask.astype(np.bool_) & given
    if not seen.any(axis=1).all():
        row = int(np.flatnonzero(~seen.any(axis=1))[0])
        raise ProblemError(f"{file}: row {row} has no observed view; drop it")
    return ViewData(
        names=tuple(names), arrays=tuple(views), mask=seen, n_clusters=int(card["clusters"])
    )


def predict(directory: Path, file: Path | None) -> Iterator[dict[str, Json]]:
    """Cluster and shares of each new row.

    Raises:
        ProblemError: There is no file, or it does not fit.
    """
    from threadpoolctl import threadpool_limits

    if file is None:
        raise ProblemError("clusterings read new rows from one NPZ file, not from standard input")
    data = read_rows(directory, file)
    method, scaler = load(directory, data)
    with threadpool_limits(1):
        labels, soft = method.assign(scaler.apply(data))
    for row, (label, shares) in enumerate(zip(labels.tolist(), soft.tolist(), strict=True)):
        yield {"row": row, "cluster": label, "share": max(shares), "shares": dict(_named(shares))}


def _named(shares: list[float]) -> Iterator[tuple[str, Json]]:
    for k, share in enumerate(shares):
        yield str(k), share
