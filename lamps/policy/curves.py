"""Extrapolation of landmark curves to the full effort, for a whole pool at once.

Two laws are fitted to what a trial has shown, x being the fidelity:

    power       y(x) = c + a x^-b                                                               (1)
    rectified   y(x) = c + a (x + x0)^-b       flat while x << x0, then the power law           (2)

with a >= 0: values are minimised, and more effort is assumed to do no harm. A curve that rises
all the same is taken to stay where it is. The exponent b, and the offset x0, run over a small
fixed grid; at each point of the grid, (a, y(1)) are the closed-form weighted least squares. The
answer is the mean over the grid, weighted by the likelihood of each point with its noise
integrated out, so a curve too short to tell the exponents apart gets an average over all of them
and a spread that says so.

Sources: Domhan et al. 2015 (extrapolation with an ensemble), Rosenfeld et al. 2020 (power laws in
the data), Lin et al. 2024, Selecting large language model to fine-tune via rectified scaling law,
arXiv 2402.02314 (why the start is flat). Ours: grid, weights and bounds.

Shapes: ``n`` trials, ``K`` landmarks, ``G`` points of the grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lamps.errors import ConfigError
from lamps.pareto import Floats
from lamps.policy.base import Observation

Kind = Literal["power", "rectified"]
KINDS: tuple[Kind, ...] = ("power", "rectified")

_EXPONENTS = np.geomspace(0.1, 2.0, 24)
_OFFSETS = np.geomspace(0.003, 0.3, 5)
_FARTHEST = 2.0
"""Most that is still to come, in units of what the curve has gained so far."""
_RECENT = 0.7
"""Weight of a landmark relative to the one after it: the law holds best near where it is used."""
_NOISE = 1e-5
"""Least noise that is believed in, as a share of the curve's range."""
_AT_ONCE = 512
_LARGEST = np.finfo(np.float64).max


def extrapolate(
    values: Floats,
    fidelities: Floats,
    landmark: NDArray[np.int64],
    kind: Kind = "power",
) -> tuple[Floats, Floats]:
    """What each trial will be worth at fidelity 1, and how sure that is.

    A value of which nothing but one landmark is known is expected to stay, with the spread of the
    whole pool. Scaling and shifting all values scales and shifts the answer.

    Args:
        values: One objective at all landmarks, minimised; what is not finite is left out.
        fidelities: Increasing shares; the last is 1.
        landmark: Last landmark of each trial, -1 before the first; later columns are not read.
        kind: Which law.

    Shape:
        values: [n, K] float64;  fidelities: [K];  landmark: [n].  Returns mean [n], spread [n].

    Returns:
        Mean, NaN where nothing is known, and standard deviation: 0 for what has reached the last
        landmark and for curves that never moved; NaN where the mean is.

    Raises:
        ConfigError: There is no such kind.

    Example:
        >>> x = np.array([0.0, 0.0625, 0.125, 0.25, 0.5, 1.0])
        >>> y = 0.2 + 0.1 * np.maximum(x, 0.01)[None, :] ** -0.4
        >>> mean, spread = extrapolate(y, x, np.array([4]))
        >>> [round(float(v), 2) for v in (y[0, 4], mean[0], y[0, 5])]
        [0.33, 0.3, 0.3]
    """
    if kind not in KINDS:
        raise ConfigError(f"curves of kind {kind!r} are unknown, expected one of {list(KINDS)}")
    (answer,) = _extrapolate_all([_start(values, landmark)], fidelities, kind)
    return answer


@dataclass(slots=True)
class _Start:
    """The curves of one objective as far as they are known, in units that keep squares finite.

    Shape:
        scaled, known: [n, K];  fitted: [f], rows that move and have an end to be predicted; all
        others: [n].
    """

    scaled: Floats
    known: NDArray[np.bool_]
    unit: float
    count: NDArray[np.int64]
    last: Floats
    step: Floats
    gained: Floats
    done: NDArray[np.bool_]
    fitted: NDArray[np.int64]


def _start(values: Floats, landmark: NDArray[np.int64]) -> _Start:
    n, n_landmarks = values.shape
    levels, rows = np.arange(n_landmarks), np.arange(n)
    known = np.isfinite(values) & (levels <= landmark[:, None])
    unit = _unit(values, known)
    scaled = np.where(known, values, 0.0) / unit
    count = known.sum(axis=1)
    at = n_landmarks - 1 - np.argmax(known[:, ::-1], axis=1)
    last = scaled[rows, at]
    before = known & (levels < at[:, None])
    previous = scaled[rows, n_landmarks - 1 - np.argmax(before[:, ::-1], axis=1)]
    low = np.where(known, scaled, np.inf).min(axis=1)
    high = np.where(known, scaled, -np.inf).max(axis=1)
    gained = np.where(count > 0, high - low, 0.0)
    done = known[:, -1]
    fitted = np.flatnonzero((count > 1) & (gained > 0) & ~done)
    return _Start(scaled, known, unit, count, last, np.abs(last - previous), gained, done, fitted)


def _extrapolate_all(
    starts: Sequence[_Start], fidelities: Floats, kind: Kind
) -> list[tuple[Floats, Floats]]:
    """Mean and spread for several objectives, whose curves are fitted together."""
    curves, known = [], []
    for s in starts:
        with np.errstate(under="ignore"):
            y = (s.scaled[s.fitted] - s.last[s.fitted, None]) / s.gained[s.fitted, None]
        known.append(s.known[s.fitted])
        curves.append(np.where(known[-1], y, 0.0))
    rest, deviation = _fit_in_parts(
        np.concatenate(curves), np.concatenate(known), fidelities, kind
    )
    ends = np.cumsum([len(s.fitted) for s in starts])[:-1]
    parts = zip(starts, np.split(rest, ends), np.split(deviation, ends), strict=True)
    return [_finish(start, mean, spread) for start, mean, spread in parts]


def _finish(start: _Start, rest: Floats, deviation: Floats) -> tuple[Floats, Floats]:
    """From fitted curves back to the units of the objective. Shape: [f], [f] -> [n], [n]."""
    count, fitted = start.count, start.fitted
    mean, spread = start.last.copy(), np.zeros(len(count))
    single = (count == 1) & ~start.done
    if single.any():
        everything = start.scaled[start.known]
        spread[single] = everything.max() - everything.min()
    mean[fitted] += start.gained[fitted] * rest
    spread[fitted] = start.gained[fitted] * deviation
    # Where others of the pool still move, a curve that has hardly moved may do so too.
    several = (count > 1) & ~start.done
    if several.any():
        usual = np.quantile(start.step[count > 1], 0.75)
        spread[several] = np.hypot(spread[several], 0.5 * usual)
    mean[count == 0] = spread[count == 0] = np.nan
    with np.errstate(over="ignore"):
        return (
            np.clip(mean * start.unit, -_LARGEST, _LARGEST),
            np.minimum(spread * start.unit, _LARGEST),
        )


def _unit(values: Floats, known: NDArray[np.bool_]) -> float:
    """A power of two that keeps sums of squares of the values inside the floats."""
    largest = float(np.abs(values[known]).max(initial=0.0))
    if 1e-100 < largest < 1e100 or largest == 0.0:
        return 1.0
    return float(2.0 ** np.clip(np.floor(np.log2(largest)), -1000, 1000))


def _grid(kind: Kind) -> tuple[Floats, Floats]:
    """Exponents and offsets of the grid. Shape: two of [G]."""
    if kind == "power":
        return _EXPONENTS, np.zeros(len(_EXPONENTS))
    b, offset = np.meshgrid(_EXPONENTS[1::3], _OFFSETS)
    return b.ravel(), offset.ravel()


def _basis(fidelities: Floats, kind: Kind) -> tuple[Floats, NDArray[np.bool_]]:
    """The falling part of each law, 0 at fidelity 1 and 1 at the least fidelity that it covers.

    Shape:
        fidelities: [K].  Returns [G, K], and [K] bool: where the law is defined at all.
    """
    exponents, offsets = _grid(kind)
    covered = (fidelities > 0) | (kind == "rectified")
    if not covered.any():
        return np.zeros((len(exponents), len(fidelities))), covered
    x = np.where(covered, fidelities, 1.0)[None, :] + offsets[:, None]
    # expm1 keeps what is left of small exponents near fidelity 1.
    falling = np.expm1(-exponents[:, None] * np.log(x / (1.0 + offsets[:, None])))
    return falling / np.maximum(falling.max(axis=1, keepdims=True), 1e-300), covered


def _fit_in_parts(
    y: Floats, known: NDArray[np.bool_], fidelities: Floats, kind: Kind
) -> tuple[Floats, Floats]:
    """`_fit` on as many curves at once as fit into a processor's cache."""
    parts = [
        _fit(y[i : i + _AT_ONCE], known[i : i + _AT_ONCE], fidelities, kind)
        for i in range(0, len(y), _AT_ONCE)
    ]
    if not parts:
        return np.zeros(0), np.zeros(0)
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


def _fit(
    y: Floats, known: NDArray[np.bool_], fidelities: Floats, kind: Kind
) -> tuple[Floats, Floats]:
    """Mean and spread of y(1), for curves of range 1 that end at 0 so far.

    Shape:
        y: [n, K], 0 where unknown;  known: [n, K] bool.  Returns [n], [n].
    """
    basis, covered = _basis(fidelities, kind)
    # A trial of which only the untouched landmark and one more is known has one point on the law.
    use = known & covered
    order = np.cumsum(use[:, ::-1], axis=1)[:, ::-1]
    weight = np.where(use, _RECENT ** (order - 1.0), 0.0)
    count = use.sum(axis=1).astype(float)
    total = weight.sum(axis=1)[:, None]

    # Weighted moments about the mean: [n, G] from [n, K] @ [K, G].
    y_mean = (weight * y).sum(axis=1)[:, None] / np.maximum(total, 1e-300)
    p_mean = weight @ basis.T / np.maximum(total, 1e-300)
    centred = np.where(use, y - y_mean, 0.0)
    syy = (weight * centred**2).sum(axis=1)[:, None]
    spy = (weight * centred) @ basis.T
    spp = weight @ (basis**2).T - total * p_mean**2
    flat = spp <= 1e-12 * np.maximum(total, 1e-300)
    slope = np.where(flat, 0.0, np.maximum(spy, 0.0) / np.where(flat, 1.0, spp))

    # y(1) = y_mean - slope * p_mean, since the basis is 0 there; its bound bounds the slope too.
    floor = np.where(use, y, np.inf).min(axis=1)[:, None] - _FARTHEST
    reach = np.where(p_mean > 0, (y_mean - floor) / np.maximum(p_mean, 1e-300), 0.0)
    slope = np.minimum(slope, np.maximum(reach, 0.0))
    end = y_mean - slope * p_mean
    # Half of what the law misses at the last landmark is noise, half stays. The last landmark is
    # at 0, and the end of a curve that does not fall at all.
    newest = np.where(use, np.arange(use.shape[1]), -1).max(axis=1)
    fall = slope * basis.T[newest]
    end = np.where(slope > 0, 0.5 * end - 0.5 * fall, 0.0)
    missed = np.maximum(syy - 2 * slope * spy + slope**2 * spp, 0.0)

    # Weighted squares count as if the weights summed to the number of landmarks.
    missed = missed * (count[:, None] / np.maximum(total, 1e-300))
    free = np.maximum(count - (3.0 if kind == "power" else 4.0), 0.0)[:, None]
    likelihood = -0.5 * free * np.log(missed + count[:, None] * _NOISE**2)
    share = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
    share /= share.sum(axis=1, keepdims=True)

    # Noise of the curve, and what it does to the end of the line through it.
    noise = missed / np.maximum(free, 1.0)
    leverage = 1.0 / np.maximum(total, 1e-300) + np.where(flat, 0.0, p_mean**2) / np.where(
        flat, 1.0, spp
    )
    # A slope at its bound cannot carry the noise any farther than the bound.
    carried = np.minimum(noise * leverage, 1.0)
    fit = (share * end).sum(axis=1)
    variance = (share * ((end - fit[:, None]) ** 2 + noise + carried)).sum(axis=1)
    few = count < 2
    # A curve seen only where the law is not defined, such as before any training, may do anything.
    mean = np.where(few, 0.0, np.minimum(fit, 0.0))
    # No curve follows its law all the way: part of what is still to come is always in doubt.
    doubt = mean / np.maximum(count, 1.0)
    return mean, np.where(few, 1.0, np.sqrt(variance + doubt**2))


def predict(observation: Observation, kind: Kind = "power") -> tuple[Floats, Floats]:
    """The end of every curve of a pool, corrected by what finished trials say of the law.

    No law fits every family: where most curves fall late, all predictions are too timid alike.
    Finished trials are predicted once more from where most unfinished ones stand now. Their median
    error, held back for few of them, moves the unfinished ones' means in proportion to the effort
    that these still lack, and what is left of it widens their spreads.

    Shape:
        Returns mean [n, m] and spread [n, m]; NaN before the first landmark.
    """
    values, landmark = observation.values, observation.landmark
    done = np.flatnonzero(observation.complete)
    open_ = ~observation.complete & ~observation.failed & (landmark >= 0)
    level = int(np.bincount(landmark[open_]).argmax()) if open_.any() else -1
    past = done[:0] if level < 0 else done
    # The finished ones once more, as they stood at that level.
    rows = np.concatenate([np.arange(len(landmark)), past])
    stand = np.concatenate([landmark, np.full(len(past), level)])
    starts = [_start(values[rows, :, j], stand) for j in range(values.shape[2])]
    n = len(landmark)
    means, spreads = [], []
    for j, (mean, spread) in enumerate(_extrapolate_all(starts, observation.fidelities, kind)):
        error = values[past, -1, j] - mean[n:]
        share = _lacking(observation, level) * open_ if len(past) else np.zeros(n)
        moved, wider = _corrected(mean[:n], spread[:n], error[np.isfinite(error)], share)
        means.append(moved)
        spreads.append(wider)
    return np.stack(means, axis=1), np.stack(spreads, axis=1)


def _lacking(observation: Observation, level: int) -> Floats:
    """Effort that each trial lacks, in units of what one at ``level`` lacks; at most 1."""
    reached = observation.fidelities[np.maximum(observation.landmark, 0)]
    share: Floats = np.minimum((1.0 - reached) / (1.0 - observation.fidelities[level]), 1.0)
    return share


def _corrected(
    mean: Floats, spread: Floats, error: Floats, share: Floats
) -> tuple[Floats, Floats]:
    """Predictions moved by ``share`` [n] of what past ones were wrong by, ``error`` [e]."""
    if not len(error):
        return mean, spread
    with np.errstate(over="ignore", invalid="ignore"):
        # Medians: one curve that ends in a jump must not widen all others.
        bias = np.median(np.append(error, 0.0))
        around = 1.48 * np.median(np.abs(error - bias))
        moved, wider = mean + share * bias, np.hypot(spread, share * around)
    sound = np.isfinite(moved) & np.isfinite(wider)
    return np.where(sound, moved, mean), np.where(sound, wider, spread)


def remaining_cost_s(observation: Observation) -> Floats:
    """Seconds that each trial is expected to need to its last landmark.

    A trial's own seconds per unit of fidelity where it has trained, else the pool's median, scaled
    by the size hint where there is one. 1 for everybody while no seconds are known at all.

    Shape:
        Returns [n] float64, positive.
    """
    n, n_landmarks = observation.cost_s.shape
    steps = np.diff(observation.fidelities, prepend=0.0)
    seen = np.isfinite(observation.cost_s) & (observation.cost_s >= 0) & (steps > 0)
    seen &= np.arange(n_landmarks) <= observation.landmark[:, None]
    spent = np.where(seen, observation.cost_s, 0.0).sum(axis=1)
    shares = np.where(seen, steps, 0.0).sum(axis=1)
    own = shares > 0
    rate = np.where(own, spent / np.where(own, shares, 1.0), np.nan)
    if not own.any():
        rate[:] = 1.0
    size = observation.size_hint
    sized = np.isfinite(size) & (size > 0)
    size = np.where(sized, size, 1.0)
    both = own & sized
    guess = np.full(n, np.median(rate[own]) if own.any() else 1.0)
    if both.any():
        guess = np.where(sized, size * np.median(rate[both] / size[both]), guess)
    elif not own.any() and sized.any():
        guess = np.where(sized, size / np.median(size[sized]), 1.0)
    rate = np.where(own, rate, guess)
    reached = np.where(
        observation.landmark >= 0, observation.fidelities[np.maximum(observation.landmark, 0)], 0.0
    )
    left = np.maximum(1.0 - reached, np.min(steps[steps > 0], initial=1.0))
    left_s: Floats = np.maximum(rate * left, 1e-12)
    return left_s
