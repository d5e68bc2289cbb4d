"""From data to labels by anchors: the parts that all anchor methods of the family share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lamps.errors import ProblemError
from lamps.method import State
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.linear import kmeans, unit_rows
from lamps_plugins._views.rule import softmax
from lamps_plugins._views.simplex import regress
from lamps_plugins.fair_multi_view_clustering import _anchors as anchors
from lamps_plugins.fair_multi_view_clustering._anchors import Groups, Model, Weights

__all__ = ["Reader", "fit", "groups_of", "sides"]

_LEAST_ROWS_AN_ANCHOR = 5
_ROUNDS = 5  # alternations of the two kinds of codes when a new row is read


def groups_of(data: ViewData) -> Groups:
    """The groups of the rows.

    Raises:
        ProblemError: The data has no groups.
    """
    if data.group is None:
        raise ProblemError("the data has no groups; give one id a row with --group")
    return Groups.of(data.group)


def fit(
    data: ViewData,
    weights: Weights,
    n_anchors: int,
    *,
    sweeps: int,
    tolerance: float,
    rng: Generator,
) -> tuple[Model, list[dict[str, float]]]:
    """Anchors and codes of all rows, and the objective after each sweep.

    Stops where a sweep changes the objective by less than ``tolerance`` of it, once the weight of
    fairness stands at its target.

    Raises:
        ProblemError: There are fewer than five rows an anchor, or more groups than anchors.
    """
    groups, views = groups_of(data), data.arrays
    t = groups.one_hot.shape[1]
    if n_anchors * _LEAST_ROWS_AN_ANCHOR > data.n:
        raise ProblemError(
            f"{n_anchors} anchors for {data.n} rows; expected at most "
            f"{data.n // _LEAST_ROWS_AN_ANCHOR}: lower anchors_per_cluster, or give more rows"
        )
    if weights.sensitive and t > n_anchors:
        raise ProblemError(
            f"{t} groups for {n_anchors} anchors; expected at most as many: raise "
            "anchors_per_cluster, or merge small groups"
        )
    labels, found = kmeans(np.hstack(views), n_anchors, rng, restarts=1)
    centres = np.split(found, np.cumsum(data.dims)[:-1], axis=1)
    model = anchors.start(views, groups, centres, labels, sensitive=weights.sensitive)
    trace = [anchors.objective(views, model, groups, weights)]
    for number in range(sweeps):
        model = anchors.sweep(views, model, groups, weights, number)
        trace.append(anchors.objective(views, model, groups, weights))
        before, after = trace[-2]["total"], trace[-1]["total"]
        settled = anchors.weight_at(weights, number) == weights.alpha
        if settled and abs(before - after) <= tolerance * max(abs(before), 1e-12):
            break
    return model, trace


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads labels off content codes, and codes off new rows.

    Args:
        content: Content anchors, V times [m, d_v].
        biased: Sensitive anchors, V times [m, d_v]; zeros where there is no sensitive part.
        turn: Codes to singular directions, [m, K].
        centres: Centres of the clusters in them, [K, K].
    """

    content: tuple[NDArray[np.float32], ...]
    biased: tuple[NDArray[np.float32], ...]
    turn: NDArray[np.float32]
    centres: NDArray[np.float32]

    @classmethod
    def fit(cls, model: Model, k: int, restarts: int, rng: Generator) -> Reader:
        """k-means on the normalised rows of the first K left singular vectors of the codes."""
        codes = model.fair_codes
        values, vectors = np.linalg.eigh(np.asarray(codes.T @ codes, dtype=np.float64))
        first = np.argsort(-values)[:k]
        turn = vectors[:, first] / np.sqrt(np.maximum(values[first], 1e-12))
        # The sign of a singular vector means nothing; fix it, so that numbers are the same
        # everywhere.
        turn *= np.where(turn[np.abs(turn).argmax(axis=0), np.arange(len(first))] < 0, -1, 1)
        turn = turn.astype(np.float32)
        _, centres = kmeans(_unit(codes @ turn), k, rng, restarts=restarts)
        return cls(model.content, model.biased, turn, centres.astype(np.float32))

    def embed(self, codes: NDArray[Any]) -> NDArray[np.float32]:
        """Where k-means looked. Shape: [n, m] to [n, K]."""
        return _unit(codes @ self.turn)

    def label(
        self, embedding: NDArray[np.float32]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Nearest centre [n], and ``softmax`` of minus twice the squared distances [n, K]."""
        x, c = embedding.astype(np.float64), self.centres.astype(np.float64)
        d = (x**2).sum(axis=1)[:, None] - 2.0 * x @ c.T + (c**2).sum(axis=1)
        return d.argmin(axis=1).astype(np.int64), softmax(-2.0 * d)

    def codes(self, views: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """Content codes of rows whose groups nobody knows, by alternating regressions; [n, m]."""
        n, m = len(views[0]), len(self.turn)
        fair = np.full((n, m), 1.0 / m, dtype=np.float32)
        other = fair
        q_fair = np.add.reduce([a @ a.T for a in self.content])
        q_other = np.add.reduce([b @ b.T for b in self.biased])
        cross = np.add.reduce([a @ b.T for a, b in zip(self.content, self.biased, strict=True)])
        on_fair = np.add.reduce([x @ a.T for x, a in zip(views, self.content, strict=True)])
        on_other = np.add.reduce([x @ b.T for x, b in zip(views, self.biased, strict=True)])
        if not np.any(q_other):
            return regress(q_fair, on_fair, fair, steps=100)
        for _ in range(_ROUNDS):
            other = regress(q_other, on_other - fair @ cross, other)
            fair = regress(q_fair, on_fair - other @ cross.T, fair)
        return fair

    def state(self) -> State:
        """All arrays by name."""
        found: State = {"turn": self.turn, "centres": self.centres}
        for v, (a, b) in enumerate(zip(self.content, self.biased, strict=True)):
            found |= {f"content/{v}": a, f"biased/{v}": b}
        return found

    @classmethod
    def of_state(cls, state: State) -> Reader:
        """The inverse of `state`."""

        def views(name: str) -> Iterator[NDArray[np.float32]]:
            v = 0
            while f"{name}/{v}" in state:
                yield np.asarray(state[f"{name}/{v}"])
                v += 1

        return cls(
            tuple(views("content")),
            tuple(views("biased")),
            np.asarray(state["turn"]),
            np.asarray(state["centres"]),
        )


def _unit(rows: NDArray[Any]) -> NDArray[np.float32]:
    return unit_rows(rows).astype(np.float32)


def sides(model: Model) -> float:
    """Largest cosine-like overlap of the two sets of anchors over views; 0 where orthogonal."""
    found = []
    for a, b in zip(model.content, model.biased, strict=True):
        lengths = float(np.linalg.norm(a)) * float(np.linalg.norm(b))
        found.append(float(np.linalg.norm(a @ b.T)) / max(lengths, 1e-12))
    return max(found)
