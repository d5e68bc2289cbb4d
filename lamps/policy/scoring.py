"""How good a search was: the hypervolume it had at every moment, against what there was to find.

The reference point is the worst final value plus 10 % of the range of final values, per
objective; with it, the hypervolume of the finished trials and, apart, that of all trials where an
unfinished one counts as it stood at landmark 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lamps import pareto
from lamps.pareto import Floats
from lamps.policy.recorded import Recorded
from lamps.policy.simulate import Trace

LEVELS = (0.99, 0.999, 1.0)
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Target:
    """What there is to find in a pool.

    Args:
        final: [n, m] values of trials that can be finished, in units of their range above the
            best; NaN for the others.
        untouched: [n, m] values at landmark 0 on the same scale.
        reference: [m].
        optimum: Hypervolume of all of them.
        exhaustive_s: Seconds of everything, one landmark after another.
        n_front: Trials on the final front.
    """

    final: Floats
    untouched: Floats
    reference: Floats
    optimum: float
    exhaustive_s: float
    n_front: int


def target_of(pool: Recorded) -> Target:
    """See `Target`."""
    whole = pool.whole
    final = np.where(whole[:, None], pool.values[:, -1], np.nan)
    known = final[whole]
    if not len(known):
        m = pool.values.shape[2]
        return Target(final, pool.values[:, 0], np.zeros(m), 0.0, _total(pool), 0)
    low, high = known.min(axis=0), known.max(axis=0)
    span = np.where(high > low, high - low, np.maximum(np.abs(high), 1.0))
    # In units of the range, so that a box of bytes times seconds does not overflow.
    final = (final - low) / span
    reference = np.full(final.shape[1], 1.1)
    optimum = pareto.hypervolume(final[whole], reference)
    n_front = int(pareto.is_nondominated(final[whole]).sum())
    untouched = (pool.values[:, 0] - low) / span
    return Target(final, untouched, reference, optimum, _total(pool), n_front)


def _total(pool: Recorded) -> float:
    """Seconds until every trial is finished or has failed."""
    bad = ~(np.isfinite(pool.values).all(axis=2) & pool.measured)
    before: NDArray[np.bool_] = np.asarray(np.cumsum(bad, axis=1) - bad == 0)
    return float(np.nansum(np.where(before, pool.cost_s, 0.0)))


@dataclass(frozen=True, slots=True)
class Curve:
    """Share of the optimal hypervolume over time.

    Args:
        at_s: [T] when it changed.
        share: [T] in [0, 1].
        end_s: When the search ended.
    """

    at_s: Floats
    share: Floats
    end_s: float

    def time_to(self, level: float) -> float:
        """Seconds until ``level`` of the optimum; inf if never."""
        there = np.flatnonzero(self.share >= level - _TINY)
        return float(self.at_s[there[0]]) if len(there) else float("inf")

    def area(self, horizon_s: float) -> float:
        """Mean share over ``[0, horizon_s]``."""
        if horizon_s <= 0:
            return float(self.share[-1]) if len(self.share) else 0.0
        times = np.minimum(np.append(self.at_s, horizon_s), horizon_s)
        return float((np.diff(times) * self.share).sum() / horizon_s)

    @property
    def final(self) -> float:
        """Share at the end."""
        return float(self.share[-1]) if len(self.share) else 0.0


def curve(trace: Trace, pool: Recorded, target: Target, *, zero_shot: bool = False) -> Curve:
    """Hypervolume over time of a trace.

    Args:
        trace: What happened.
        pool: The curves.
        target: Of the pool.
        zero_shot: Count unfinished trials as they stood at landmark 0.
    """
    last = pool.values.shape[1] - 1
    counts = trace.ok & (trace.level == last)
    if zero_shot:
        counts = counts | (trace.ok & (trace.level == 0))
    at, share, have = [], [], 0.0
    points = np.full(target.final.shape, np.nan)
    for event in np.flatnonzero(counts):
        trial = trace.trial[event]
        new = (target.final if trace.level[event] == last else target.untouched)[trial]
        old = points[trial].copy()
        points[trial] = new
        living = points[~np.isnan(points[:, 0])]
        if target.optimum > 0 and not (
            np.isnan(old).all() and ((living <= new).all(axis=1).sum() > 1)
        ):
            have = pareto.hypervolume(living, target.reference) / target.optimum
        at.append(trace.at_s[event])
        share.append(have)
    end = float(trace.at_s[-1]) if len(trace.at_s) else 0.0
    return Curve(np.array(at), np.array(share), end)
