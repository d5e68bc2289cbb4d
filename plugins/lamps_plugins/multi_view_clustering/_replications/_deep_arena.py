"""One problem of a replication: methods fitted whole on the same views, mask and stream."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamps.types import Json, digest
from lamps_plugins._views.builtin import Builtin, load
from lamps_plugins._views.clusterer import Clusterer
from lamps_plugins._views.masks import missing_mask
from lamps_plugins._views.problem import ClusterProblem
from lamps_plugins.multi_view_clustering._problem import FAMILY


def opened(name: str, protocol: str, rate: float, seed: int) -> ClusterProblem:
    """A built-in problem with a mask of its own seed."""
    options = {"missing": protocol, "rate": rate, "mask_seed": seed}
    return FAMILY.open_problem(name, {k: v for k, v in options.items() if v is not None})


def some_rows(name: str, rows: int | None) -> Builtin:
    """A built-in data set, or that many of its rows, the same in every call."""
    whole = load(name)
    if rows is None:
        return whole
    kept = np.sort(np.random.default_rng(0).permutation(whole.data.n)[:rows])
    return Builtin(whole.data.take(kept), whole.truth[kept], whole.facts)


def masked(found: Builtin, name: str, protocol: str, rate: float, seed: int) -> ClusterProblem:
    """A problem of complete views with a mask of its own seed."""
    complete = found.data
    mask = missing_mask(protocol, rate, complete.n, complete.n_views, seed)
    return ClusterProblem(
        name=f"{name}-{complete.n}-{protocol}-{rate:g}-{seed}",
        raw=dataclasses.replace(complete, mask=mask),
        truth=found.truth,
        complete=complete,
    )


@dataclass(frozen=True, slots=True)
class Fitted:
    """A method at its last landmark.

    Args:
        method: The method.
        accuracy: By the best map of clusters to classes, on all rows.
        nmi: Normalised mutual information.
        internal: The label-free score, higher is better.
        seconds: CPU seconds of fitting, which other processes on the machine do not lengthen.
        signals: What the method reported.
    """

    method: Clusterer[Any]
    accuracy: float
    nmi: float
    internal: float
    seconds: float
    signals: Mapping[str, float]


def fitted(
    problem: ClusterProblem, kind: type[Clusterer[Any]], seed: int, **params: Json
) -> Fitted:
    """Fit a method at full fidelity and look at the truth afterwards, once."""
    method = kind.from_params(params)
    started = time.process_time()
    method.partial_fit(problem, 1.0, rng=np.random.default_rng(seed))
    seconds = time.process_time() - started
    found = method.evaluate(problem)
    test = method.evaluate(problem, "test").objectives
    return Fitted(
        method=method,
        accuracy=1.0 - test["test_error"],
        nmi=1.0 - test["test_nmi_loss"],
        internal=1.0 - found.objectives["val_loss"],
        seconds=seconds,
        signals=found.signals,
    )


def fingerprint_of(names: tuple[str, ...], settings: object) -> str:
    """Hash of built-in views (complete) and settings."""
    return digest([[opened(n, "none", 0.0, 0).fingerprint() for n in names], repr(settings)])
