"""Anchors of several views that split every sample into a fair and a sensitive part.

Paper: Causal Disentangled Anchor Learning for Scalable Fair Multi-view Clustering, ICML 2026.

    sum_v |X_v - Z_u A_v - Z_s B_v|^2 + alpha |Z_u' G|^2 + sum_v beta_v |A_v B_v'|^2
                                                          + gamma |Z_s - G1 W'|^2               (1)

with rows of ``Z_u`` and ``Z_s`` on the simplex and orthonormal columns of ``W``. Samples are rows
here: ``A_v`` are content anchors, ``B_v`` sensitive anchors, ``G1`` the groups one-hot and ``G``
the same with column means taken out. ``|Z_u' G|^2`` is the Hilbert-Schmidt independence criterion
with linear kernels, times ``(n - 1)^2``. The last term stands in print as ``|G1 - Z_s W|^2``, but
the updates in use are exact for the form above alone.

Every step reads each view a fixed number of times and makes nothing larger than [n, 2 m].
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamps_plugins._views.simplex import project, regress
from lamps_plugins.fair_multi_view_clustering._sylvester import solve_low_rank

__all__ = [
    "ZU_STEPS",
    "Groups",
    "Model",
    "Weights",
    "alternate_sampling",
    "anchor_step",
    "dependence",
    "fair_step",
    "objective",
    "rotation",
    "sensitive_step",
    "start",
    "sweep",
]

Floats = NDArray[Any]

ZU_STEPS = ("split", "joint", "continuation", "admm")
"""Ways to move the content codes; see `fair_step`."""

_CONTINUATION = 20  # sweeps until the weight of fairness has reached its target
_DECADES = 6.0  # how far below the target it begins
_TINY = 1e-12


@dataclasses.dataclass(frozen=True, slots=True)
class Groups:
    """A sensitive group of each sample, as matrices.

    Args:
        one_hot: [n, t].
        centred: The same with column means taken out, [n, t].
        norm2: Largest squared singular value of ``centred``.
        basis: Orthonormal basis of its columns, [n, r].
        powers: Squared singular values that belong to ``basis``, [r].
    """

    one_hot: Floats
    centred: Floats
    norm2: float
    basis: Floats
    powers: Floats

    @classmethod
    def of(cls, group: NDArray[np.int64], dtype: Any = np.float32) -> Groups:
        """From group ids 0..t-1, [n]."""
        one_hot = np.eye(int(group.max()) + 1, dtype=dtype)[group]
        centred = one_hot - one_hot.mean(axis=0, dtype=np.float64).astype(dtype)
        values, vectors = np.linalg.eigh(np.asarray(centred.T @ centred, dtype=np.float64))
        keep = values > 1e-6 * max(float(values[-1]), _TINY)
        basis = centred @ (vectors[:, keep] / np.sqrt(values[keep])).astype(dtype)
        return cls(one_hot, centred, float(values[-1]), basis, values[keep])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights of (1) as they are multiplied, and how the content codes move.

    Args:
        alpha: Of the dependence on the group.
        beta: Of the overlap of the two sets of anchors, one a view.
        gamma: Of the tie between sensitive codes and groups.
        zu_step: One of `ZU_STEPS`.
        inner_steps: Moves of the content codes in a sweep.
        fair_share: Share of the groups' mean difference that one ``split`` move takes out.
        sensitive: Whether there is a sensitive part at all.
    """

    alpha: float
    beta: tuple[float, ...]
    gamma: float
    zu_step: str = "split"
    inner_steps: int = 5
    fair_share: float = 1.0
    sensitive: bool = True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Everything that (1) is minimised over.

    Args:
        content: Content anchors, V times [m, d_v].
        biased: Sensitive anchors, V times [m, d_v].
        fair_codes: Z_u, [n, m].
        biased_codes: Z_s, [n, m].
        rotation: W, [m, t].
        dual: Scaled dual of ``admm``, [n, m]; zeros elsewhere.
    """

    content: tuple[Floats, ...]
    biased: tuple[Floats, ...]
    fair_codes: Floats
    biased_codes: Floats
    rotation: Floats
    dual: Floats | None = None


def alternate_sampling(data: Floats, n_anchors: int) -> NDArray[np.int64]:
    """Rows that are spread over the range of a score, by direct alternate sampling.

    The score is the distance of a row's sum from the smallest values; the largest one is taken,
    then every score ``s`` becomes ``s (1 - s)`` over its maximum, so that what lies far from those
    already taken comes next. Deterministic.

    Args:
        data: [n, d], views side by side.
        n_anchors: At most n.

    Shape:
        Returns [n_anchors] int64, without repeats.
    """
    score = np.asarray(np.sum(data - data.min(axis=0), axis=1, dtype=np.float64))
    score /= max(float(score.max()), _TINY)
    chosen: list[int] = []
    taken = np.zeros(len(score), dtype=bool)
    for _ in range(n_anchors):
        best = int(np.argmax(np.where(taken, -np.inf, score)))
        chosen.append(best)
        taken[best] = True
        score = score * (1.0 - score)
        score /= max(float(score.max()), _TINY)
    return np.array(chosen, dtype=np.int64)


def rotation(biased_codes: Floats, groups: Groups) -> Floats:
    """The orthonormal W nearest to the sensitive codes; [m, t], needs t <= m."""
    left, _, right = np.linalg.svd(biased_codes.T @ groups.one_hot, full_matrices=False)
    found: Floats = left @ right
    return found


def sensitive_step(
    views: Sequence[Floats], model: Model, groups: Groups, weights: Weights, *, steps: int = 50
) -> Floats:
    """The sensitive codes that minimise (1) when everything else stands; [n, m]."""
    m = model.biased_codes.shape[1]
    quadratic = weights.gamma * np.eye(m, dtype=model.biased_codes.dtype)
    linear = weights.gamma * (groups.one_hot @ model.rotation.T)
    for x, a, b in zip(views, model.content, model.biased, strict=True):
        quadratic = quadratic + b @ b.T
        linear += x @ b.T - model.fair_codes @ (a @ b.T)
    return regress(quadratic, linear, model.biased_codes, steps=steps)


def fair_step(
    views: Sequence[Floats], model: Model, groups: Groups, weights: Weights, alpha: float
) -> Model:
    """Move the content codes ``inner_steps`` times.

    - ``joint``: projected gradient with the Lipschitz constant of both terms. Never uphill, but
      for a large ``alpha`` the reconstruction hardly moves: |G|^2 grows with n.
    - ``split``: each term with its own constant; with two groups the second move takes out the
      difference of the groups' means exactly, and ``alpha`` matters only by being positive.
    - ``continuation``: ``joint`` with an ``alpha`` that rises over the first sweeps.
    - ``admm``: a copy of the codes is free of the simplex and has a closed form in the basis of
      the columns of ``G``; the two are pulled together.

    ``alpha`` is the weight in this sweep.

    Returns:
        The model with new ``fair_codes`` (and ``dual``).
    """
    codes = model.fair_codes
    quadratic = np.zeros((codes.shape[1],) * 2, dtype=codes.dtype)
    linear = np.zeros_like(codes)
    for x, a, b in zip(views, model.content, model.biased, strict=True):
        quadratic += a @ a.T
        linear += x @ a.T
        if weights.sensitive:
            linear -= model.biased_codes @ (b @ a.T)
    if weights.zu_step == "admm":
        return _admm(model, quadratic, linear, groups, alpha, weights.inner_steps)
    size = max(float(np.linalg.eigvalsh(quadratic)[-1]), _TINY)
    for _ in range(weights.inner_steps):
        pull = codes @ quadratic - linear
        if alpha == 0.0:
            codes = project(codes - pull / size)
            continue
        fair = groups.centred @ (groups.centred.T @ codes)
        if weights.zu_step == "split":
            codes = project(codes - pull / size - (weights.fair_share / groups.norm2) * fair)
        else:
            codes = project(codes - (pull + alpha * fair) / (size + alpha * groups.norm2))
    return dataclasses.replace(model, fair_codes=codes)


def _admm(
    model: Model, quadratic: Floats, linear: Floats, groups: Groups, alpha: float, steps: int
) -> Model:
    values, vectors = np.linalg.eigh(np.asarray(quadratic, dtype=np.float64))
    dtype = linear.dtype
    penalty = max(float(values.mean()), _TINY)
    turn = vectors.astype(dtype)
    outside = (2.0 * values + penalty).astype(dtype)
    inside = (2.0 * values + 2.0 * alpha * groups.powers[:, None] + penalty).astype(dtype)
    codes = model.fair_codes
    dual = np.zeros_like(codes) if model.dual is None else model.dual
    for _ in range(steps):
        target = (2.0 * linear + np.asarray(penalty, dtype) * (codes - dual)) @ turn
        along = groups.basis.T @ target
        free = target / outside + groups.basis @ (along / inside - along / outside)
        free = free @ turn.T
        codes = project(free + dual)
        dual = dual + free - codes
    return dataclasses.replace(model, fair_codes=codes, dual=dual)


def dependence(codes: Floats, groups: Groups) -> float:
    """``|Z_u' G|^2``: how far the groups' mean codes differ; 0 where they agree."""
    return float(np.sum(np.square(codes.T @ groups.centred, dtype=np.float64)))


def objective(
    views: Sequence[Floats], model: Model, groups: Groups, weights: Weights
) -> dict[str, float]:
    """The terms of (1), weights included, and their ``total``."""
    parts = {"residual": 0.0, "overlap": 0.0}
    for x, a, b, beta in zip(views, model.content, model.biased, weights.beta, strict=True):
        # In pieces of rows, so that the difference never needs a second copy of the view.
        for low in range(0, len(x), 8192):
            rows = slice(low, low + 8192)
            left = x[rows] - model.fair_codes[rows] @ a
            if weights.sensitive:
                left -= model.biased_codes[rows] @ b
            parts["residual"] += float(np.vdot(left, left))
        if weights.sensitive:
            parts["overlap"] += beta * float(np.sum(np.square(a @ b.T, dtype=np.float64)))
    parts["unfair"] = weights.alpha * dependence(model.fair_codes, groups)
    tied = 0.0
    if weights.sensitive:
        away = model.biased_codes - groups.one_hot @ model.rotation.T
        tied = weights.gamma * float(np.vdot(away, away))
    parts["tie"] = tied
    return parts | {"total": math.fsum(parts.values())}


def start(
    views: Sequence[Floats],
    groups: Groups,
    centres: Sequence[Floats],
    labels: NDArray[np.int64],
    *,
    sensitive: bool,
) -> Model:
    """Where the paper begins: k-means for the content, alternate sampling for the rest.

    Args:
        views: V times [n, d_v].
        groups: The groups.
        centres: k-means centres of the views side by side, split by view: V times [m, d_v].
        labels: The centre of each sample, [n].
        sensitive: Whether there is a sensitive part.
    """
    m, dtype = len(centres[0]), views[0].dtype
    codes = np.eye(m, dtype=dtype)[labels]
    content = tuple(np.asarray(c, dtype=dtype) for c in centres)
    t = groups.one_hot.shape[1]
    if not sensitive:
        nothing = tuple(np.zeros_like(c) for c in content)
        return Model(
            content=content, biased=nothing, fair_codes=codes,
            biased_codes=np.zeros_like(codes), rotation=np.zeros((m, t), dtype),
        )  # fmt: skip
    rows = alternate_sampling(np.hstack(views), m)
    biased = tuple(x[rows] for x in views)
    quadratic = np.add.reduce([b @ b.T for b in biased])
    linear = np.add.reduce([x @ b.T for x, b in zip(views, biased, strict=True)])
    biased_codes = regress(quadratic, linear, steps=100)
    return Model(
        content=content, biased=biased, fair_codes=codes, biased_codes=biased_codes,
        rotation=rotation(biased_codes, groups),
    )  # fmt: skip


def sweep(
    views: Sequence[Floats], model: Model, groups: Groups, weights: Weights, number: int
) -> Model:
    """One round over all blocks of (1), in the paper's order.

    The ``number`` of the round, from 0, matters to ``continuation`` alone.
    """
    if weights.sensitive:
        model = dataclasses.replace(model, rotation=rotation(model.biased_codes, groups))
        model = dataclasses.replace(
            model,
            biased=anchor_step(
                views, model.fair_codes, model.content, model.biased_codes, weights.beta
            ),
        )
        model = dataclasses.replace(
            model, biased_codes=sensitive_step(views, model, groups, weights)
        )
    model = dataclasses.replace(
        model,
        content=anchor_step(
            views, model.biased_codes, model.biased, model.fair_codes,
            weights.beta if weights.sensitive else (0.0,) * len(views),
        ),
    )  # fmt: skip
    return fair_step(views, model, groups, weights, weight_at(weights, number))


def anchor_step(
    views: Sequence[Floats],
    other_codes: Floats,
    other: Sequence[Floats],
    codes: Floats,
    beta: Sequence[float],
) -> tuple[Floats, ...]:
    """The anchors of one part that minimise (1) when the other part stands; V times [m, d_v]."""
    weight, cross = codes.T @ codes, codes.T @ other_codes
    return tuple(
        solve_low_rank(o.T, b, weight, (codes.T @ x - cross @ o).T).T
        for x, o, b in zip(views, other, beta, strict=True)
    )


def weight_at(weights: Weights, number: int) -> float:
    """The weight of fairness in a round: below the target in the first ones of a continuation."""
    if weights.zu_step != "continuation":
        return weights.alpha
    short = max(0.0, 1.0 - number / _CONTINUATION)
    return weights.alpha * float(10.0 ** (-_DECADES * short))
