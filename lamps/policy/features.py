"""What the learned policy sees: a pool as numbers that mean the same everywhere.

Everything is relative to the pool (ranks, shares, min-max, ratios to the pool's mean), so tables
of other sizes, units and costs look alike. The same function serves the live search (one pool)
and training (hundreds of pools at once), which is what keeps the two from drifting apart.

Shapes: ``B`` pools, ``n`` trials, ``m`` objectives (minimised), ``K`` landmarks.
Source: DESIGN of the LAMPS state (ICML 2026), made pool-relative; see `FEATURES`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamps.policy.base import Observation

FEATURE_VERSION = "2"
"""Raised whenever a column changes its meaning; weights of another version are refused."""

Array = NDArray[np.float32]
Bits = NDArray[np.uint8]
_LARGEST = 1e30
_CACHED = 1 << 15
_CURVE_EXPONENT, _CURVE_OFFSET = 0.5, 1e-3

OBJECTIVE_FEATURES = (
    "value",  # last value, min-max over the pool
    "gain_last",  # improvement of the last landmark
    "gain_all",  # improvement since the first landmark
    "predicted",  # extrapolated final value, same scale
    "spread",  # uncertainty of that
    "better_at_level",  # share of trials that were better after as many landmarks
    "better_predicted",  # share of trials with a better predicted final value
    "finished_better",  # share of the finished front better than the prediction
    "gap_to_best",  # prediction minus the best finished value
    "constant",  # has not moved since the first landmark: a size, say
)
TRIAL_FEATURES = (
    "started",
    "finished",
    "in_flight",
    "progress",  # landmarks behind it, as a share
    "fidelity",
    "landmarks_left",  # 1 / (1 + landmarks left)
    "next_cost",  # log ratio to the pool's mean
    "cost_to_end",  # log ratio to the pool's mean
    "cheaper",  # share of open trials with less to pay until the end
    "cost_share",  # cost to the end over that of the whole pool
    "size",  # log ratio to the pool's mean
    "dominated",  # share of trials that dominated it at its own landmark
    "on_front",
    "dominates",
    "predicted_dominated",  # share of trials whose predictions dominate its prediction
    "novelty",  # additive epsilon by which its prediction escapes the finished front
    "novelty_hope",  # the same if it turns out one spread better
    "volume",  # bound of the hypervolume that its prediction would add
    "volume_hope",
    "volume_per_cost",  # log of hoped volume per share of cost
)
POOL_FEATURES = (
    "n_trials",
    "n_landmarks",
    "n_objectives",
    "workers",
    "started",
    "finished",
    "in_flight",
    "failed",
    "spent",
    "budget_used",
    "front",
    "finished_front",
)


@dataclass(slots=True)
class PoolState:
    """``B`` pools between two landmarks; `features` reads it, the environment moves it.

    Args:
        present: [B, n] bool; False pads pools that are smaller.
        landmark: [B, n] int64, last landmark that ended well, -1 before the first.
        in_flight: [B, n] bool.
        failed: [B, n] bool.
        first: [B, m, n] value at landmark 0.
        previous: [B, m, n] value at the landmark before the last.
        last: [B, m, n] value at the last landmark; 0 before the first.
        predicted: [B, m, n] extrapolated final value.
        spread: [B, m, n] its uncertainty.
        better: [B, m, n, ceil(n / 8)] uint8, bits as `numpy.packbits` sets them: bit ``j`` of row
            ``i`` says that trial ``j`` was better at the last landmark of ``i`` or, if ``j`` is
            not as far, at its own.
        no_worse: The same for better or equal.
        better_predicted: The same for extrapolated final values.
        no_worse_predicted: The same for better or equal.
        fidelity: [B, n] of the last landmark.
        next_fidelity: [B, n] of the next one.
        first_cost: [B, n] seconds of landmark 0.
        run_cost: [B, n] seconds of all later ones so far.
        first_fidelity: [B].
        n_landmarks: [B] int64.
        size: [B, n] what is known of sizes before a run; NaN where nothing is.
        n_workers: [B] int64.
        budget_used: [B].
    """

    present: NDArray[np.bool_]
    landmark: NDArray[np.int64]
    in_flight: NDArray[np.bool_]
    failed: NDArray[np.bool_]
    first: Array
    previous: Array
    last: Array
    predicted: Array
    spread: Array
    better: Bits
    no_worse: Bits
    better_predicted: Bits
    no_worse_predicted: Bits
    fidelity: Array
    next_fidelity: Array
    first_cost: Array
    run_cost: Array
    first_fidelity: Array
    n_landmarks: NDArray[np.int64]
    size: Array
    n_workers: NDArray[np.int64]
    budget_used: Array

    @property
    def complete(self) -> NDArray[np.bool_]:
        """[B, n] bool."""
        done: NDArray[np.bool_] = (self.landmark == self.n_landmarks[:, None] - 1) & self.present
        return done

    @property
    def mask(self) -> NDArray[np.bool_]:
        """[B, n] bool: what may advance."""
        free: NDArray[np.bool_] = self.present & ~(self.in_flight | self.failed | self.complete)
        return free


@dataclass(frozen=True, slots=True)
class Features:
    """Inputs of the network.

    Args:
        objectives: [len(OBJECTIVE_FEATURES), m, B, n] float32.
        trials: [len(TRIAL_FEATURES), B, n] float32.
        pool: [len(POOL_FEATURES), B] float32.
    """

    objectives: Array
    trials: Array
    pool: Array


def bounded(values: NDArray[np.float64]) -> Array:
    """As float32, with what would overflow cut off; NaN becomes 0."""
    return np.nan_to_num(np.clip(values, -_LARGEST, _LARGEST), nan=0.0).astype(np.float32)


def extrapolations(
    values: NDArray[np.float64], fidelities: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Final value and its uncertainty, as known at every landmark.

    Fits ``v(f) = c + a (f + 0.001)^-1/2``, ``a >= 0``, by least squares that forget older
    landmarks (weights halve per landmark): closed form, so that whole tables take milliseconds. On
    the public tables its median error equals that of a likelihood-weighted grid of exponents
    (`lamps.policy.curves`), at a hundredth of the time. What was measured untouched (fidelity 0)
    is no part of the fit, and no more is expected to come than has come so far. One landmark says
    nothing of the slope: the value stays, with no spread, which the feature ``progress`` puts
    right.

    Args:
        values: [..., k] float64, the first ``k`` landmarks, NaN where unknown; a NaN landmark
            repeats the one before.
        fidelities: [K] or [..., K] increasing, of all landmarks.

    Returns:
        Two arrays [..., k]: each entry uses landmarks up to its own alone.
    """
    f = np.broadcast_to(fidelities, (*values.shape[:-1], np.shape(fidelities)[-1]))
    z = (f + _CURVE_OFFSET) ** -_CURVE_EXPONENT
    end = z[..., -1]
    weight = sum_z = sum_v = sum_zz = sum_zv = sum_vv = np.zeros(values.shape[:-1])
    mean, spread = np.empty(values.shape), np.empty(values.shape)
    last, worst = values[..., 0], np.full(values.shape[:-1], -np.inf)
    for k in range(values.shape[-1]):
        v, zk = np.where(np.isfinite(values[..., k]), values[..., k], last), z[..., k]
        use = np.where(f[..., k] <= 0, 1e-9, 1.0)
        last, worst = v, np.maximum(worst, v)
        weight, sum_z, sum_v = (
            0.5 * old + use * new for old, new in ((weight, 1.0), (sum_z, zk), (sum_v, v))
        )
        sum_zz, sum_zv, sum_vv = (
            0.5 * old + use * new
            for old, new in ((sum_zz, zk * zk), (sum_zv, zk * v), (sum_vv, v * v))
        )
        var_z = np.maximum(sum_zz - sum_z * sum_z / weight, 0.0)
        cov = sum_zv - sum_z * sum_v / weight
        # The ridge damps slopes that hang on two close landmarks.
        slope = np.maximum(cov / (var_z + 0.02 * zk * zk + 1e-12), 0.0)
        step = np.maximum(slope * (end - zk), v - worst)
        residual = np.maximum(sum_vv - sum_v * sum_v / weight - slope * cov, 0.0) / weight
        mean[..., k] = v + step
        spread[..., k] = np.sqrt(residual) + 0.5 * np.abs(step)
    return mean, spread


def state_of(observation: Observation) -> PoolState:
    """One observation as a batch of one.

    Curves of trials keep their order of magnitude: numbers beyond +-1e30 are cut off.
    """
    n, k = observation.n_trials, observation.n_landmarks
    landmark = observation.landmark
    at = np.maximum(landmark, 0)
    rows = np.arange(n)
    known = np.arange(k)[None, :] <= landmark[:, None]
    values = np.where(known[:, :, None], observation.values, np.nan)
    values = np.clip(values, -_LARGEST, _LARGEST)
    curves = np.ascontiguousarray(values.transpose(2, 0, 1))  # [m, n, K]
    reached = int(at.max(initial=0)) + 1
    with np.errstate(invalid="ignore"):
        mean, spread = extrapolations(curves[..., :reached], observation.fidelities)
    started = landmark >= 0

    def pick(table: NDArray[np.float64], level: NDArray[np.int64]) -> Array:
        return bounded(np.ascontiguousarray(np.where(started, table[:, rows, level], 0.0)))[None]

    cost = np.nan_to_num(np.where(known, observation.cost_s, 0.0))
    f = observation.fidelities
    last, predicted = pick(curves, at), pick(mean, at)
    m = len(curves)
    better = np.zeros((1, m, n, -(-n // 8)), dtype=np.uint8)
    no_worse = better.copy()
    shown = bounded(curves)
    for level in np.unique(landmark[started]):
        here = np.flatnonzero(landmark == level)
        # Fancy indexing leaves the objectives innermost; comparisons want the trials there.
        others = np.ascontiguousarray(shown[:, rows, np.minimum(at, level)])[:, None, :]
        mine = last[0][:, here, None]
        better[0][:, here] = np.packbits(others < mine, axis=2)
        no_worse[0][:, here] = np.packbits(others <= mine, axis=2)
    return PoolState(
        present=np.ones((1, n), dtype=bool),
        landmark=landmark[None],
        in_flight=observation.in_flight[None],
        failed=observation.failed[None],
        first=pick(curves, np.zeros_like(at)),
        previous=pick(curves, np.maximum(at - 1, 0)),
        last=last,
        predicted=predicted,
        spread=pick(spread, at),
        better=better,
        no_worse=no_worse,
        better_predicted=np.packbits(predicted[:, :, None] < predicted[..., None], axis=3),
        no_worse_predicted=np.packbits(predicted[:, :, None] <= predicted[..., None], axis=3),
        fidelity=np.where(started, f[at], 0.0).astype(np.float32)[None],
        next_fidelity=f[np.minimum(landmark + 1, k - 1)].astype(np.float32)[None],
        first_cost=cost[:, 0].astype(np.float32)[None],
        run_cost=cost[:, 1:].sum(axis=1).astype(np.float32)[None],
        first_fidelity=f[:1].astype(np.float32),
        n_landmarks=np.array([k]),
        size=np.where(np.isfinite(observation.size_hint), observation.size_hint, np.nan).astype(
            np.float32
        )[None],
        n_workers=np.array([observation.n_workers]),
        budget_used=np.array([observation.budget_used], dtype=np.float32),
    )


def _log_mean(values: Array, where: NDArray[np.bool_]) -> Array:
    """Mean of ``values`` over trials, [B, 1]; 0 where there is none."""
    count = number(where)[:, None]
    total = np.where(where, values, 0.0).sum(axis=1, keepdims=True)
    return np.asarray(total / np.maximum(count, 1), dtype=np.float32)


def costs_to_come(state: PoolState) -> tuple[Array, Array]:
    """Log seconds of the next landmark and of all that are left, [B, n] each.

    Seconds per fidelity come from the trial's own landmarks; before there are any, from its
    landmark 0 times the pool's usual ratio; before that, from its size, or the pool's mean.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        span = state.fidelity - state.first_fidelity[:, None]
        rate = np.log(state.run_cost / span)
        zero = np.log(state.first_cost)
        size = np.log(state.size)
    has_rate = (state.landmark >= 1) & np.isfinite(rate)
    has_zero = (state.landmark >= 0) & np.isfinite(zero)
    has_size = np.isfinite(size) & state.present
    rate, zero, size = (
        np.where(h, x, 0.0) for h, x in ((has_rate, rate), (has_zero, zero), (has_size, size))
    )
    both = has_rate & has_zero
    rate = np.where(has_rate, rate, zero + _log_mean(rate - zero, both))
    guessed = has_rate | has_zero
    sized = guessed & has_size
    by_size = size + _log_mean(rate - size, sized)
    rate = np.where(guessed, rate, np.where(has_size, by_size, _log_mean(rate, guessed)))
    zero_by_size = size + _log_mean(zero - size, has_zero & has_size)
    zero = np.where(has_zero, zero, np.where(has_size, zero_by_size, _log_mean(zero, has_zero)))
    rate, zero = np.clip(rate, -50, 50), np.clip(zero, -50, 50)
    fresh = state.landmark < 0
    here = np.where(fresh, state.first_fidelity[:, None], state.fidelity)
    seconds = np.exp(rate)
    start = np.where(fresh, np.exp(zero), 0.0)
    step = np.where(fresh, start, seconds * (state.next_fidelity - here))
    rest = start + seconds * (1.0 - here)
    return (
        np.log(np.maximum(step, 1e-30)).astype(np.float32),
        np.log(np.maximum(rest, 1e-30)).astype(np.float32),
    )


def _words(bits: Bits) -> NDArray[Any]:
    """The same bits as the widest words that fit, without the last axis where one word holds all.

    NumPy's loops over the last axis cost more than what they do where it holds a few bytes only.
    """
    width = bits.shape[-1]
    for size, kind in ((8, np.uint64), (4, np.uint32), (2, np.uint16)):
        if width % size == 0:
            bits = np.ascontiguousarray(bits).view(kind)
            break
    return bits[..., 0] if bits.shape[-1] == 1 else bits


def _count(words: NDArray[Any], axes: int) -> NDArray[Any]:
    """Set bits of words along what is beyond the first ``axes`` axes."""
    counts: NDArray[Any] = np.bitwise_count(words)
    return counts if counts.ndim == axes else counts.sum(axis=-1, dtype=np.uint16)


def number(mask: NDArray[np.bool_]) -> Array:
    """[B] how many are True in each row; a product is far quicker than a sum of booleans."""
    return mask.astype(np.float32) @ np.ones(mask.shape[1], dtype=np.float32)


def _dominance(le: NDArray[Any], lt: NDArray[Any], worse: NDArray[Any]) -> NDArray[Any]:
    """Words [B, n, ...]: no worse anywhere, better somewhere; of ``worse`` [B, ...] alone."""
    everywhere, somewhere = le[:, 0].copy(), lt[:, 0].copy()
    for o in range(1, le.shape[1]):
        everywhere &= le[:, o]
        somewhere |= lt[:, o]
    everywhere &= somewhere
    everywhere &= worse[:, None]
    return everywhere


def _column_sums(words: NDArray[Any], n: int) -> NDArray[Any]:
    """[B, n]: in how many of the rows [B, n, ...] each bit is set."""
    bits = words.view(np.uint8).reshape(*words.shape[:2], -1)
    each = np.unpackbits(bits, axis=2)
    if n >= 256:
        wide: NDArray[Any] = each[:, :, :n].sum(axis=1, dtype=np.uint16)
        return wide
    # Eight counters of eight bits in one word; none can overflow into its neighbour. Halves are
    # added to each other, since sums over a middle axis do a few words at a time.
    lanes = each.view(np.uint64)
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        odd = lanes[:, 2 * half :]
        lanes = lanes[:, :half] + lanes[:, half : 2 * half]
        if odd.shape[1]:
            lanes[:, :1] += odd
    return lanes[:, 0].copy().view(np.uint8)[:, :n]


def _packed(u: Array, chosen: NDArray[np.bool_]) -> Array:
    """[F, B, m] values of the chosen trials, packed to the front, 9 beyond their number."""
    width = max(int(chosen.sum(axis=1).max(initial=0)), 1)
    place = chosen.cumsum(axis=1) - 1
    packed = np.full((width, *u.shape[:2]), 9, dtype=np.float32)
    pool, trial = np.nonzero(chosen)
    packed[place[pool, trial], pool] = u[pool, :, trial]
    return packed


def features(state: PoolState) -> Features:
    """The network's inputs; see the module's constants for the columns."""
    b, m, n = state.last.shape
    present = state.present
    started = (state.landmark >= 0) & present
    complete = state.complete
    living = started & ~state.failed
    running = state.in_flight & present
    open_ = present & ~state.failed & ~complete
    n_living = np.maximum(number(living), 1)[:, None]  # [B, 1]
    n_done = number(complete)[:, None]
    others = np.maximum(n_living - 1, 1)

    objectives = np.zeros((len(OBJECTIVE_FEATURES), m, b, n), dtype=np.float32)
    t = np.zeros((len(TRIAL_FEATURES), b, n), dtype=np.float32)
    low, span = _scale(state.last, state.predicted, living)
    # A range at the level of rounding is none.
    apart = span > 1e-5 * np.maximum(np.abs(low), np.abs(low + span))
    unit = np.where(apart, 1.0 / np.where(apart, span, 1.0), 0.0).astype(np.float32)
    u = np.clip((state.last - low) * unit, -0.5, 1.5)  # [B, m, n]
    p = np.clip((state.predicted - low) * unit, -0.5, 1.5)
    s = np.clip(state.spread * unit, 0.0, 1.0)
    q = p - s
    # What is dominated among the finished neither adds volume nor takes any away.
    better, no_worse = _words(state.better), _words(state.no_worse)
    better_predicted = _words(state.better_predicted)
    beaten = _dominance(no_worse, better, _words(np.packbits(complete, axis=1)))
    front = complete & (_count(beaten, 2) == 0)
    n_front = np.maximum(number(front), 1)[:, None, None]
    done = _packed(u, front)
    best = done.min(axis=0)[:, :, None]
    by_objective = objectives.transpose(0, 2, 1, 3)  # [feature, B, m, n]
    by_objective[0], by_objective[3], by_objective[4] = u, p, s
    by_objective[1] = np.clip((state.previous - state.last) * unit, -1, 1)
    by_objective[2] = np.clip((state.first - state.last) * unit, -1, 1)
    by_objective[8] = np.where(n_done[:, :, None] > 0, np.clip(p - best, -1, 1), -1.0)
    by_objective[9] = (state.first == state.last) & (state.landmark > 0)[:, None]

    # Comparisons of all pairs: row i, column j, as bits along j.
    worse = _words(np.packbits(living, axis=1))
    by_objective[5] = _count(better & worse[:, None, None], 3) / others[:, None]
    by_objective[6] = _count(better_predicted & worse[:, None, None], 3) / others[:, None]
    dominated = _dominance(no_worse, better, worse)
    shown = living.reshape(*living.shape, *[1] * (dominated.ndim - 2))
    dominated *= shown.astype(dominated.dtype)
    p_dominated = _dominance(_words(state.no_worse_predicted), better_predicted, worse)
    by_objective[7] = _finished_better(p, done) / n_front

    novelty, volume = _escape(p, done)
    hope, volume_hope = _escape(q, done)
    step, rest = costs_to_come(state)
    mean_rest = _log_mean(rest, open_)
    cost_of = np.where(open_, np.exp(np.clip(rest - mean_rest, -20, 20)), 0.0)
    left = cost_of.sum(axis=1, keepdims=True)
    t[0], t[1], t[2] = started, complete, running
    levels = state.n_landmarks[:, None]
    t[3] = (state.landmark + 1) / levels
    t[4] = state.fidelity
    t[5] = 1.0 / (levels - state.landmark)
    t[6] = np.clip(step - mean_rest, -8, 8) * 0.25
    t[7] = np.clip(rest - mean_rest, -8, 8) * 0.25
    asked = np.where(open_, cost_of, np.inf)
    cheaper = np.packbits(asked[:, None, :] < cost_of[:, :, None], axis=2)
    t[8] = _count(_words(cheaper), 2) / np.maximum(number(open_)[:, None] - 1, 1)
    t[9] = cost_of / np.maximum(left, 1e-20)
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.log(state.size)
    sized = np.isfinite(size) & present
    size = np.where(sized, size, 0)
    t[10] = np.where(sized, np.clip(size - _log_mean(size, sized), -8, 8) * 0.25, 0)
    n_dominators = _count(dominated, 2)
    t[11] = n_dominators / others
    t[12] = living & (n_dominators == 0)
    t[13] = _column_sums(dominated, n) / others
    t[14] = _count(p_dominated, 2) / others
    t[15], t[16], t[17], t[18] = novelty, hope, volume, volume_hope
    t[19] = np.clip(np.log(t[18] + 1e-4) - np.log(t[9] + 1e-4), -10, 10) * 0.1
    objectives *= started
    t[11:] *= started
    t *= present
    return Features(
        objectives=objectives,
        trials=t,
        pool=_pool(state, started, complete, running, t, left * np.exp(mean_rest), m),
    )


def _finished_better(points: Array, done: Array) -> Array:
    """[B, m, n]: how many of the finished front [F, B, m] are better in an objective."""
    count = np.zeros(points.shape, dtype=np.float32)
    width = max(_CACHED // max(points.size, 1), 1)
    for start in range(0, len(done), width):
        less = done[start : start + width, ..., None] < points
        count += less.sum(axis=0, dtype=np.float32) if width > 1 else less[0]
    return count


def _escape(points: Array, done: Array) -> tuple[Array, Array]:
    """How far points lie outside of what finished trials dominate.

    Args:
        points: [B, m, n] in units of the pool's range.
        done: [F, B, m] finished ones.

    Returns:
        [B, n] additive epsilon, clipped to [-1, 1]: the least shift by which some finished trial
        would dominate the point. [B, n] a bound of the hypervolume that the point adds, towards
        the reference 1.1: what the finished trial with the largest overlap leaves.
    """
    b, m, n = points.shape
    room = np.float32(1.1) - np.minimum(points, np.float32(1.1))  # [B, m, n]
    own = room[:, 0].copy()
    for o in range(1, m):
        own *= room[:, o]
    # 1.1 - max(d, p) is the smaller of both rooms, to the last bit.
    done_room = np.float32(1.1) - np.minimum(done, np.float32(1.1))
    escape = np.full((b, n), np.inf, dtype=np.float32)
    overlap = np.zeros((b, n), dtype=np.float32)
    # A few finished trials at a time, so that the intermediate arrays stay in the cache.
    width = max(_CACHED // max(b * n, 1), 1)
    for start in range(0, len(done), width):
        d = done[start : start + width, :, :, None]
        r = done_room[start : start + width, :, :, None]
        gap = d[:, :, 0] - points[:, 0]
        shared = np.minimum(r[:, :, 0], room[:, 0])
        for o in range(1, m):
            np.maximum(gap, d[:, :, o] - points[:, o], out=gap)
            shared *= np.minimum(r[:, :, o], room[:, o])
        np.minimum(escape, gap.min(axis=0), out=escape)
        np.maximum(overlap, shared.max(axis=0), out=overlap)
    return np.clip(escape, -1, 1), np.clip(own - overlap, 0, 1.5)


def _scale(last: Array, predicted: Array, living: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Lower end and width of each objective over the pool, [B, m, 1] each.

    The upper end is where the bulk ends: one untrained network with a loss of 1e8 must not press
    all others into one point.
    """
    here = living[:, None]
    low = np.where(here, np.minimum(last, predicted), np.inf).min(axis=2, keepdims=True)
    low = np.where(np.isfinite(low), low, 0.0)
    ordered = np.sort(np.where(here, last, np.inf), axis=2)
    count = number(living).astype(np.int64)[:, None, None]
    ends = np.broadcast_to(np.maximum(count - 1, 0), low.shape)
    top = np.take_along_axis(ordered, ends, axis=2)
    middle = np.take_along_axis(ordered, np.minimum((ends + 1) // 2, ends), axis=2)
    top, middle = (np.where(count > 0, x, low) for x in (top, middle))
    top = np.maximum(np.minimum(top, low + 20 * (middle - low)), low)
    return low.astype(np.float32), (top - low).astype(np.float32)


def _pool(
    state: PoolState,
    started: NDArray[np.bool_],
    complete: NDArray[np.bool_],
    running: NDArray[np.bool_],
    trials: Array,
    left: Array,
    m: int,
) -> Array:
    size = number(state.present)
    spent = (np.where(state.present, state.first_cost + state.run_cost, 0)).sum(axis=1)
    done = np.maximum(number(complete), 1)
    return np.stack(
        [
            np.log(size) / 4,
            np.log(state.n_landmarks) / 3,
            np.full(len(size), m / 4),
            np.minimum(state.n_workers / size, 2),
            number(started) / size,
            number(complete) / size,
            number(running) / size,
            number(state.failed & state.present) / size,
            spent / np.maximum(spent + left[:, 0], 1e-20),
            state.budget_used,
            trials[12].sum(axis=1) / size,
            (trials[12] * complete).sum(axis=1) / done,
        ],
    ).astype(np.float32)


def blinded(inputs: Features, names: tuple[str, ...]) -> Features:
    """The same with some features set to 0, wherever they stand: for ablations."""
    if not names:
        return inputs
    parts = {
        "objectives": (inputs.objectives, OBJECTIVE_FEATURES),
        "trials": (inputs.trials, TRIAL_FEATURES),
        "pool": (inputs.pool, POOL_FEATURES),
    }
    result = {}
    for part, (array, columns) in parts.items():
        hidden = [i for i, c in enumerate(columns) if c in names]
        result[part] = array.copy() if hidden else array
        result[part][hidden] = 0
    return Features(**result)


EXTRAPOLATION = (
    "predicted",
    "spread",
    "better_predicted",
    "finished_better",
    "gap_to_best",
    "predicted_dominated",
    "novelty",
    "novelty_hope",
    "volume",
    "volume_hope",
    "volume_per_cost",
)
"""Features that hang on extrapolated curves."""
