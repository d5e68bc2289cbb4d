"""The common measurement of rules: loss, time beside the library's attention, memory, density."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lamps.types import Objective
from lamps_plugins._views.epochs import one_thread
from lamps_plugins.sparse_attention._attend import attention, dense
from lamps_plugins.sparse_attention._items import Heads
from lamps_plugins.sparse_attention._memory import extra_bytes

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.sparse_attention._attend import Selector

__all__ = ["OBJECTIVES", "Timing", "clock", "of_layers", "timing"]

OBJECTIVES: tuple[Objective, ...] = (
    Objective(
        "val_error",
        doc="Loss against dense attention: of right answers, of perplexity, or relative error of "
        "the outputs where there is no model; negative where the rule does better.",
    ),
    Objective(
        "latency_ratio",
        noisy=True,
        doc="Seconds of attention, selection included, over those of the library's attention, on "
        "the longest sequence of the landmark; median of turns.",
    ),
    Objective(
        "extra_bytes",
        "bytes",
        doc="Largest tensors held beside queries, keys, values and output on that sequence.",
    ),
    Objective("density", doc="Share of the visible blocks that is kept, over all layers."),
    Objective("train_s", "s", noisy=True, doc="Seconds of validation sequences so far."),
    Objective("peak_bytes", "bytes", noisy=True, doc="Largest resident memory of the worker."),
)

SAMPLED = 256
"""Queries whose kept mass is looked at, evenly spaced."""

MOST_TURNS = 20
FEWEST_TURNS = 3
TIME_S = 1.5
"""Turns go on until this many seconds are spent, between the fewest and the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Median seconds of some layers together.

    Args:
        dense_s: The library's attention.
        sparse_s: Attention by the rule, selection included.
        select_s: Selection alone.
    """

    dense_s: float
    sparse_s: float
    select_s: float

    @property
    def ratio(self) -> float:
        """Of the rule to the library."""
        return self.sparse_s / self.dense_s


def timing(rule: Selector, layers: Sequence[Heads], *, least: int = FEWEST_TURNS) -> Timing:
    """Time a rule and the library in turns, on one thread, so that both meet the same machine.

    Args:
        rule: The rule.
        layers: Layers, each timed by itself.
        least: Turns of a layer at least; up to `MOST_TURNS` follow while `TIME_S` is not spent.

    Returns:
        The sum over layers of their medians.
    """
    dense_s, sparse_s, select_s = np.sum([_timed(rule, x, least) for x in layers], 0).tolist()
    return Timing(dense_s=dense_s, sparse_s=sparse_s, select_s=select_s)


def _timed(rule: Selector, heads: Heads, least: int) -> NDArray[np.float64]:
    """Median seconds of one layer: dense, sparse, selection. [3]."""
    import torch

    _, q, k, v = heads
    scale = q.shape[3] ** -0.5
    seconds: list[tuple[float, float, float]] = []
    with one_thread(), torch.inference_mode():
        attention(rule, q, k, v, layer=heads.layer)
        dense(q, k, v)
        begun = clock(q)
        while len(seconds) < max(least, MOST_TURNS):
            marks = [clock(q)]
            rule.select(q, k, scale=scale, layer=heads.layer)
            marks.append(clock(q))
            attention(rule, q, k, v, layer=heads.layer, checked=True)
            marks.append(clock(q))
            dense(q, k, v)
            marks.append(clock(q))
            select_s, sparse_s, dense_s = np.diff(marks).tolist()
            seconds.append((dense_s, sparse_s, select_s))
            if marks[-1] - begun > TIME_S and len(seconds) >= least:
                break
    return np.asarray(np.median(np.array(seconds), axis=0))


def clock(x: Tensor) -> float:
    """Seconds, once the device of a tensor has done what it was told."""
    import torch

    if x.is_cuda:
        torch.cuda.synchronize(x.device)
    return time.perf_counter()


def of_layers(rule: Selector, layers: Sequence[Heads]) -> dict[str, float]:
    """What a rule gives on captured layers: error of outputs, kept mass, density, memory.

    The kept mass of a query is ``exp(lse of what is kept - lse of all)``, the true share.
    """
    import torch

    wrong = total = 0.0
    masses: list[float] = []
    kept = visible = 0
    bytes_ = 0
    with one_thread(), torch.inference_mode():
        for layer in layers:
            found = attention(rule, *layer[1:], layer=layer.layer)
            wanted = dense(*layer[1:])
            wrong += float((found.out - wanted).double().square().sum())
            total += float(wanted.double().square().sum())
            masses.append(_kept_mass(found.lse, layer))
            kept, visible = kept + found.kept, visible + found.visible
            bytes_ = max(bytes_, extra_bytes(lambda layer=layer: _plain(rule, layer)))  # type: ignore[misc]
    return {
        "output_error": float(np.sqrt(wrong / total)),
        "kept_mass": float(np.mean(masses)),
        "density": kept / visible,
        "extra_bytes": float(bytes_),
    }


def _plain(rule: Selector, heads: Heads) -> tuple[Any, ...]:
    return tuple(attention(rule, *heads[1:], layer=heads.layer, checked=True)[:2])


def _kept_mass(lse: Any, heads: Heads) -> float:
    import torch

    if lse is None:
        return 1.0
    n_q, n_k = heads.q.shape[2], heads.k.shape[2]
    group = heads.q.shape[1] // heads.k.shape[1]
    rows = torch.linspace(0, n_q - 1, min(n_q, SAMPLED)).long()
    q = heads.q[0, :, rows].reshape(-1, group, len(rows), heads.q.shape[3])
    s = torch.einsum("grqd,gkd->grqk", q * heads.q.shape[3] ** -0.5, heads.k[0])
    hidden = torch.arange(n_k) > (n_k - n_q + rows)[:, None]
    everything = s.masked_fill_(hidden, -torch.inf).logsumexp(-1).flatten(0, 1)
    return float((lse[0][:, rows] - everything).exp().double().mean())
