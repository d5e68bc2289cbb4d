"""Expected hypervolume improvement on extrapolated curves, per second that is still to be spent.

The final objectives of a trial are taken as independent normals whose means and spreads come from
its extrapolated curves. With u running over the part of the objective space that the front does
not dominate, up to the reference point,

    EHVI = E[ vol{ u : Y <= u } ] = integral over u of prod_j P(Y_j <= u_j)                     (1)

For one and two objectives, that region is a union of strips and the integral is a sum of products
of psi(b) = E[max(b - Y, 0)]: exact. For more, points are drawn from where the trials' improvements
may lie, and weighted by the density of that; all trials share the points, so their order suffers
less from the noise, about a fifth of the value, than the values do.

Source: Emmerich et al. 2011, Hypervolume-based expected improvement (exact for m = 2). Ours: (1)
as an integral over space, division by the remaining cost, the stop rule.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from lamps import pareto
from lamps.errors import ConfigError
from lamps.pareto import Floats
from lamps.policy.base import Action, Observation, Policy, nothing_left
from lamps.policy.curves import KINDS, Kind, predict, remaining_cost_s
from lamps.policy.extrapolate import behind, first_landmarks

_POINTS, _COARSE, _FINE_TRIALS = 384, 64, 32
"""Points of the integral for three and more objectives; those that every trial is looked at with,
and how many trials are looked at with all of them."""
_DRAWS, _BLOCK = 8192, 1024
"""Points drawn at most to find free ones, and how many at once."""


def psi(bound: Floats, mean: Floats, spread: Floats) -> Floats:
    """E[max(bound - Y, 0)] for a normal Y; shapes broadcast. 0 for a bound of -inf.

    Example:
        >>> psi(np.array([1.0]), np.array([0.25]), np.array([0.0])).tolist()
        [0.75]
    """
    gap = bound - mean
    sure = spread <= 1e-100  # and below, the quotient may overflow
    width = np.where(sure, 1.0, spread)
    z = np.clip(gap / width, -40.0, 40.0)
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    known: Floats = np.maximum(gap, 0.0)
    # Far above the mean, the clipped normal would lose the gap itself.
    spread_out = np.where(z >= 40.0, known, width * np.maximum(z * ndtr(z) + density, 0.0))
    return np.where(sure, known, spread_out)


def expected_improvement(
    mean: Floats,
    spread: Floats,
    front: Floats,
    reference: Floats,
    *,
    rng: np.random.Generator | None = None,
) -> Floats:
    """Equation (1) for each trial.

    Args:
        mean: Expected objectives, minimised.
        spread: Their standard deviations; 0 for what is known.
        front: Points that are there already; dominated ones do no harm.
        reference: Bound of the volume.
        rng: Draws the points for three and more objectives.

    Shape:
        mean, spread: [n, m] finite;  front: [f, m];  reference: [m].  Returns [n].

    Example:
        >>> expected_improvement(np.array([[1.0, 1.0]]), np.zeros((1, 2)),
        ...                      np.array([[0.0, 2.0]]), np.array([3.0, 3.0])).tolist()
        [2.0]
    """
    m = len(reference)
    inside = front[(front < reference).all(axis=1)]
    inside = np.unique(inside[pareto.is_nondominated(inside)], axis=0)
    if m == 1:
        best = inside[:, 0].min() if len(inside) else reference[0]
        return psi(np.array([best]), mean[:, 0], spread[:, 0])
    if m == 2:
        # Sorted by the first objective, so the second one falls. Strip k lies left of point k and
        # below point k - 1; the last one lies right of all points.
        edges = np.append(inside[:, 0], reference[0])
        tops = np.insert(inside[:, 1], 0, reference[1])
        width = np.diff(psi(edges, mean[:, :1], spread[:, :1]), axis=1, prepend=0.0)
        height = psi(tops, mean[:, 1:], spread[:, 1:])
        return np.asarray((width * height).sum(axis=1), dtype=np.float64)
    return _integrate(mean, spread, inside, reference, rng or np.random.default_rng(0))


def _integrate(
    mean: Floats, spread: Floats, front: Floats, reference: Floats, rng: np.random.Generator
) -> Floats:
    """Equation (1) over points drawn from where the trials' improvements may lie."""
    low = mean - 2.0 * spread
    result = np.zeros(len(mean))
    able = np.flatnonzero((low < reference).all(axis=1))
    # Sorted, so that the order of the pool does not decide which points are drawn.
    able = able[np.lexsort(low[able].T)]
    if not len(able):
        return result
    points, share = _free_points(front, low[able], reference, rng)
    if not len(points):
        return result
    # Each point stands for one over the density with which it was drawn.
    weight = share / _density(points, low[able], reference)
    few = slice(_COARSE)
    part = len(points) / len(points[few])
    result[able] = part * _below(points[few], mean[able], spread[able]) @ weight[few]
    if part > 1:
        top = able[np.argsort(-result[able], kind="stable")[:_FINE_TRIALS]]
        result[top] = _below(points, mean[top], spread[top]) @ weight
    return result


def _free_points(
    front: Floats, low: Floats, high: Floats, rng: np.random.Generator
) -> tuple[Floats, float]:
    """Points that the front does not dominate, each from the box of a trial drawn at random.

    Shape:
        front: [f, m];  low: [n, m], the best corners of the boxes;  high: [m], their common worst
        corner.  Returns [q, m] with q <= `_POINTS`, and the share of the drawn points that are
        free, divided by q.
    """
    # The largest boxes first: most points are gone after a few of them.
    largest = front[np.argsort(-np.prod(np.maximum(high - front, 0.0), axis=1), kind="stable")]
    # A long front is compared with fewer points, so that a decision stays quick.
    most = min(_DRAWS, max(_BLOCK, 1_000_000 // (len(high) * max(len(front), 1))))
    found, drawn = np.empty((0, len(high))), 0
    while len(found) < _POINTS and drawn < most:
        corner = low[rng.integers(len(low), size=_BLOCK)]
        points = corner + (high - corner) * rng.uniform(size=corner.shape)
        drawn += _BLOCK
        for member in largest:
            points = points[(points < member).any(axis=1)]
        found = np.concatenate([found, points])
    kept = found[:_POINTS]
    return kept, len(found) / drawn / max(len(kept), 1)


def _density(points: Floats, low: Floats, high: Floats) -> Floats:
    """Density of points drawn as in `_free_points`. Shape: [q, m], [n, m], [m] -> [q]."""
    inside = np.ones((len(points), len(low)), dtype=bool)
    for j in range(len(high)):
        inside &= points[:, j, None] >= low[None, :, j]
    density: Floats = inside @ (1.0 / np.prod(high - low, axis=1)) / len(low)
    return density


def _below(points: Floats, mean: Floats, spread: Floats) -> Floats:
    """P(Y <= u) for each trial and point. Shape: [q, m], [n, m], [n, m] -> [n, q]."""
    chance = np.ones((len(mean), len(points)))
    width = np.maximum(spread, 1e-12)
    for j in range(points.shape[1]):
        chance *= ndtr((points[None, :, j] - mean[:, None, j]) / width[:, None, j])
    return chance


class Ehvi(Policy):
    """Advance the trial with the most expected hypervolume per remaining second.

    The front is that of the finished trials, and of what the unfinished ones are worth now while
    none is finished; trials in flight count with their predicted end, so that several workers do
    not all go for the same gap.

    Args:
        first: Landmarks that every trial gets before its curve is trusted; 0 for as many as
            `lamps.policy.extrapolate.first_landmarks` says.
        kind: ``rectified`` or ``power``, see `lamps.policy.curves`.
        gain: The search stops when no trial is expected to add this share to the hypervolume.
    """

    name = "ehvi"
    summary = "expected hypervolume improvement of extrapolated curves per remaining second"
    equivariant = True

    def __init__(
        self, *, seed: int = 0, first: int = 0, kind: Kind = "rectified", gain: float = 0.001
    ) -> None:
        super().__init__(seed=seed)
        if not first >= 0:
            raise ConfigError(
                f"first is {first}, expected 1 or more, or 0 to let the fidelities say"
            )
        if kind not in KINDS:
            raise ConfigError(f"kind is {kind!r}, expected one of {', '.join(KINDS)}")
        if not 0 <= gain < 1:
            raise ConfigError(f"gain is {gain}, expected a share in [0, 1)")
        self.first, self.kind, self.gain = first, kind, gain

    def propose(self, observation: Observation, mask: NDArray[np.bool_]) -> Action:
        """The trial whose expected improvement per remaining second is largest."""
        if not mask.any():
            return nothing_left(observation)
        late = behind(observation, mask, first_landmarks(self.first, observation))
        if late is not None:
            return late
        mean, spread = predict(observation, self.kind)
        mean[observation.failed] = np.nan
        usable = np.isfinite(mean).all(axis=1)
        ready = np.flatnonzero(mask & usable)
        if not len(ready):
            return self._blind(observation, mask)
        low = mean[usable].min(axis=0)
        high = pareto.reference_point(mean[usable])
        if not (high > low).all():  # the same number for everybody, however large
            high = np.maximum(high, np.nextafter(low, np.inf))
        mean = pareto.normalized(mean, low, high)
        half = np.where(np.isfinite(high / 2 - low / 2), high / 2 - low / 2, 1.0)
        spread = np.minimum(spread / 2 / half, 1.0)

        settled = usable & (observation.complete | observation.in_flight)
        front = mean[settled]
        if not (usable & observation.complete).any():
            now = pareto.normalized(
                observation.living_values_at(observation.n_landmarks), low, high
            )
            front = np.concatenate([front, now[np.isfinite(now).all(axis=1)]])
        reference = np.ones(mean.shape[1])
        improvement = expected_improvement(
            mean[ready], spread[ready], front, reference, rng=self.rng(observation)
        )
        done = pareto.hypervolume(mean[usable & observation.complete], reference)
        if done > 0:
            matters = improvement > self.gain * done
            if not matters.any():
                return nothing_left(observation)
            improvement = np.where(matters, improvement, 0.0)
        worth = improvement / remaining_cost_s(observation)[ready]
        return int(ready[np.lexsort((observation.size_hint[ready], -worth))[0]])

    def _blind(self, observation: Observation, mask: NDArray[np.bool_]) -> Action:
        """Nothing can be predicted, as after nothing but NaN: the cheapest trial goes on."""
        rows = np.flatnonzero(mask)
        cost = remaining_cost_s(observation)[rows]
        return int(rows[np.lexsort((observation.size_hint[rows], cost))[0]])
