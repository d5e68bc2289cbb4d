"""Episodes cut out of landmark tables, disturbed so that nothing but the principle repeats.

Half of the episodes are pools as a search meets them: whole tables, or as many of their
candidates and evenly spaced landmarks as fit. The others take any candidates and landmarks; costs
are rescaled per candidate, landmarks are blurred (final values are not). Objectives are drawn in
both, and sizes are often withheld: many tables from elsewhere have none. Families weigh the same,
however many tables they have; those of the same first name are one family, and so are all tables
with a single landmark.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lamps.pareto import Floats
from lamps.policy.episodes import Episodes, make_episodes
from lamps.policy.recorded import Recorded

PLAIN = 0.5
"""Share of episodes that are cut from a table without any disturbance."""
SIZED = 0.6
"""Share of episodes in which the sizes of candidates are known."""


class Corpus:
    """Gives episodes of tables.

    Args:
        tables: What to cut from.
        blur: Largest noise on landmarks, in ranges of the final values.
    """

    def __init__(self, tables: Sequence[Recorded], *, blur: float = 0.1) -> None:
        self.families: dict[str, list[Recorded]] = {}
        for table in tables:
            if len(table.values) >= 2:
                self.families.setdefault(_kin(table), []).append(table)
        self.blur = blur

    def episodes(self, rng: np.random.Generator, count: int, n: int, k: int, m: int) -> Episodes:
        """``count`` episodes of up to ``n`` trials, up to ``k`` landmarks, ``m`` objectives."""
        names = sorted(self.families)
        values = np.zeros((count, n, k, m))
        cost = np.zeros((count, n, k))
        fidelities = np.ones((count, k))
        levels = np.ones(count, dtype=np.int64)
        present = np.zeros((count, n), dtype=bool)
        size = np.full((count, n), np.nan)
        limit = np.zeros((count, n), dtype=np.int64)
        truth = np.full((count, n, m), np.nan)
        for e in range(count):
            family = self.families[names[rng.integers(len(names))]]
            table = family[rng.integers(len(family))]
            plain = rng.random() < PLAIN
            rows = _rows(rng, len(table.values), n, plain=plain)
            kept = _levels(rng, len(table.fidelities), k, plain=plain)
            v, c, ok = _thinned(table, rows, kept)
            v, exact = self._objectives(rng, v, c, m, plain=plain)
            x, y = len(rows), len(kept)
            values[e, :x, :y], cost[e, :x, :y] = v, _rescaled(rng, c, plain=plain)
            fidelities[e, :y], levels[e], present[e, :x] = table.fidelities[kept], y, True
            if rng.random() < SIZED:
                size[e, :x] = table.size[rows]
            limit[e, :x] = ok.cumprod(axis=1).sum(axis=1) - 1
            truth[e, :x] = exact
        workers = rng.choice([1, 1, 1, 2, 2, 4, 8], count)
        limit = np.maximum(limit, 0)
        return make_episodes(
            values, cost, fidelities, levels, present, size, limit, workers, truth
        )

    def _objectives(
        self, rng: np.random.Generator, v: Floats, c: Floats, m: int, *, plain: bool
    ) -> tuple[Floats, Floats]:
        """``m`` objectives, with noise on landmarks, and the final values without."""
        have = v.shape[2]
        chosen = rng.permutation(have)[:m]
        parts = [v[:, :, o] for o in chosen]
        while len(parts) < m:
            # A size that costs hint at, as every search has one.
            log = np.log(np.maximum(np.nansum(c, axis=1), 1e-12))
            log = rng.choice([0.0, 0.5, 1.0]) * log + rng.normal(size=len(log)) * rng.uniform(0, 1)
            parts.append(np.repeat(np.exp(log - log.max())[:, None], v.shape[1], axis=1))
        out = np.stack(parts, axis=2)
        exact = out[:, -1].copy()
        with np.errstate(invalid="ignore"):
            spread = np.nanmax(np.where(np.isfinite(exact), exact, -np.inf), axis=0) - np.nanmin(
                np.where(np.isfinite(exact), exact, np.inf), axis=0
            )
        spread = np.where(np.isfinite(spread), spread, 0.0)
        moving = (np.nanmax(out, axis=1) != np.nanmin(out, axis=1)).any(axis=0)
        sd = rng.uniform(0, self.blur) * (rng.random() < 0.5) * (not plain) * spread * moving
        out[:, :-1] += rng.normal(size=out[:, :-1].shape) * sd
        return out, exact


def _kin(table: Recorded) -> str:
    """What shares a weight: families of the same first name, and all tables of one landmark.

    In the latter there is nothing to wait for, so there is little to learn.
    """
    return table.family.split("-")[0] if table.values.shape[1] > 1 else "one landmark"


def _rows(rng: np.random.Generator, have: int, n: int, *, plain: bool) -> NDArray[np.int64]:
    most = min(have, n)
    count = most if plain else int(rng.integers(min(6, most), most + 1))
    return rng.permutation(have)[:count]


def _levels(rng: np.random.Generator, have: int, k: int, *, plain: bool) -> NDArray[np.int64]:
    """First, last, and some between: evenly spaced ones if ``plain``."""
    if have <= 2:
        return np.arange(have)
    most = min(have, k)
    if plain:
        return np.unique(np.linspace(0, have - 1, most).round().astype(np.int64))
    count = most if rng.random() < 0.5 else int(rng.integers(min(3, most), most + 1))
    between = rng.permutation(np.arange(1, have - 1))[: max(count - 2, 0)]
    return np.sort(np.concatenate([[0, have - 1], between]).astype(np.int64))


def _thinned(
    table: Recorded, rows: NDArray[np.int64], kept: NDArray[np.int64]
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Values, cost and measured of some candidates and landmarks.

    What a dropped landmark cost is paid with the next kept one.
    """
    total = np.nancumsum(table.cost_s[rows], axis=1)[:, kept]
    cost = np.diff(total, axis=1, prepend=0.0)
    return table.values[rows][:, kept], cost, table.measured[rows][:, kept]


def _rescaled(rng: np.random.Generator, cost: Floats, *, plain: bool) -> Floats:
    noise = rng.normal(size=(len(cost), 1)) * rng.choice([0.0, 0.1, 0.5])
    scaled: Floats = cost * np.exp(noise * (not plain)) * np.exp(rng.normal() * 2)
    return scaled
