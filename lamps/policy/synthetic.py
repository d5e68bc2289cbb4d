"""Made-up landmark tables: a prior over what searches look like.

Real tables are few and look alike within a family, and a policy that saw those alone would learn
their quirks. Each made-up pool draws its own rules first (do large candidates win, how much noise,
how curves fall and cross, who fails) and its candidates after that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lamps.policy.episodes import Episodes, make_episodes


def synthetic_episodes(rng: np.random.Generator, count: int, n: int, k: int, m: int) -> Episodes:
    """``count`` pools of up to ``n`` trials, up to ``k`` landmarks and ``m`` objectives."""
    e = count

    def per_pool(low: float, high: float, *shape: int) -> NDArray[np.float64]:
        return rng.uniform(low, high, (e, *shape))

    present = np.arange(n)[None, :] < rng.integers(min(4, n), n + 1, e)[:, None]
    n_landmarks = np.where(
        rng.random(e) < 0.08, rng.integers(1, 3, e), rng.integers(min(3, k), k + 1, e)
    )
    n_landmarks = np.minimum(n_landmarks, k)
    fidelities = _grids(rng, n_landmarks, k)
    # Sizes: spread over up to four decades; sometimes a few sizes in several versions.
    decades = per_pool(0.0, 4.0, 1)
    size = rng.random((e, n))
    steps = rng.integers(2, 12, (e, 1))
    size = np.where(rng.random((e, 1)) < 0.5, np.round(size * steps) / steps, size)
    log_size = (size - 0.5) * decades  # log10
    # Cost: a power of the size, with noise of its own; sometimes nothing to do with it.
    power = rng.choice([0.0, 0.5, 1.0, 1.0, 1.0], (e, 1))
    log_cost = power * log_size + rng.normal(0, 1, (e, n)) * per_pool(0.0, 0.6, 1)
    values = np.empty((e, n, k, m))
    skill = rng.normal(size=(e, n))
    for o in range(m):
        constant = rng.random((e, 1, 1)) < (0.15 if o == 0 else 0.5)
        curve = _curves(rng, log_size, skill, fidelities)
        known = _known(rng, log_size, log_cost)[..., None] * np.ones(k)
        values[..., o] = np.where(constant, known, curve)
    # Some trade-offs: the second objective falls where the first one rises.
    seconds = 10.0**log_cost
    steps_f = np.diff(fidelities, axis=1, prepend=0.0)
    cost = seconds[..., None] * steps_f[:, None, :]
    start = 10.0 ** per_pool(-3, -0.7, 1) * np.where(
        rng.random((e, 1)) < 0.7, seconds, seconds.mean(axis=1, keepdims=True)
    )
    cost[..., 0] = np.where(n_landmarks[:, None] == 1, seconds, cost[..., 0] + start)
    cost *= np.exp(rng.normal(0, 1, cost.shape) * per_pool(0.0, 0.3, 1, 1))
    # Failures: at random, or where the skill is extreme (a step size that is too large).
    rate = np.where(rng.random((e, 1)) < 0.5, 0.0, per_pool(0.0, 0.25, 1))
    doomed = rng.random((e, n)) < rate
    when = rng.integers(0, n_landmarks[:, None] + 1, (e, n))
    dead = doomed[..., None] & (np.arange(k)[None, None, :] >= when[..., None])
    values[dead] = np.nan
    known_size = np.where(rng.random((e, 1)) < 0.75, 10.0**log_size, np.nan)
    known_size = np.where(rng.random((e, n)) < 0.05, np.nan, known_size)
    workers = rng.choice([1, 1, 1, 2, 2, 4, 8], e)
    return make_episodes(
        values,
        cost,
        fidelities,
        n_landmarks,
        present,
        known_size,
        np.broadcast_to(n_landmarks[:, None] - 1, (e, n)).copy(),
        workers,
    )


def _grids(
    rng: np.random.Generator, n_landmarks: NDArray[np.int64], k: int
) -> NDArray[np.float64]:
    """[E, k] fidelities: doubling, linear or in between; 1 beyond the pool's own number."""
    e = len(n_landmarks)
    index = np.arange(k)[None, :]
    last = np.maximum(n_landmarks - 1, 1)[:, None]
    base = rng.choice([1.0, 1.5, 2.0, 2.0, 3.0], e)[:, None]
    linear = index / last
    doubling = np.where(index == 0, 0.0, base ** np.minimum(index - last, 0.0))
    grid = np.where(base == 1.0, linear, doubling)
    nonzero = np.where(rng.random((e, 1)) < 0.4, (index + 1) / (last + 1), grid)
    grid = np.where(index >= last, 1.0, np.minimum(nonzero, 1.0))
    return np.asarray(grid, dtype=np.float64)


def _known(
    rng: np.random.Generator, log_size: NDArray[np.float64], log_cost: NDArray[np.float64]
) -> NDArray[np.float64]:
    """[E, n] an objective that training does not move: bytes, latency, parameters."""
    e, n = log_size.shape
    mix = rng.choice([0.0, 0.0, 0.5, 1.0], (e, 1))
    noise = rng.normal(0, 1, (e, n)) * rng.choice([0.0, 0.02, 0.3], (e, 1))
    log = (1 - mix) * log_size + mix * log_cost + noise
    linear = rng.random((e, 1)) < 0.6
    return np.asarray(np.where(linear, 10.0**log, log), dtype=np.float64)


def _curves(
    rng: np.random.Generator,
    log_size: NDArray[np.float64],
    skill: NDArray[np.float64],
    fidelities: NDArray[np.float64],
) -> NDArray[np.float64]:
    """[E, n, k] learning curves, minimised."""
    e, n = log_size.shape
    k = fidelities.shape[1]

    def pool(low: float, high: float) -> NDArray[np.float64]:
        return rng.uniform(low, high, (e, 1))

    trend = pool(-0.4, 1.0) * np.where(rng.random((e, 1)) < 0.25, 0.0, 1.0)
    shared = np.where(rng.random((e, 1)) < 0.6, pool(0.0, 1.0), 0.0)
    own = rng.normal(size=(e, n))
    heavy = np.abs(rng.standard_t(2.5, size=(e, n)))  # a tail of bad settings
    own = np.where(rng.random((e, 1)) < 0.4, heavy, own)
    final = -trend * log_size + pool(0.02, 1.0) * (shared * skill + (1 - shared) * own)
    spread = final.std(axis=1, keepdims=True) + 1e-9
    final = final / spread
    # Untouched models: near one level of chance, or already in the order of the final ones.
    chance = final.max(axis=1, keepdims=True) + pool(0.1, 6.0)
    hint = np.where(rng.random((e, 1)) < 0.5, 0.0, pool(0.0, 1.0))
    start = (
        chance * (1 - hint)
        + hint * (final + pool(0.0, 3.0))
        + rng.normal(size=(e, n)) * pool(0, 0.5)
    )
    start = np.where(rng.random((e, 1)) < 0.75, np.maximum(start, final), start)
    # Shapes: power laws in the fidelity, with a flat start for some; all end at `final`.
    speed = np.exp(rng.normal(0, 1, (e, n)) * pool(0.0, 0.8)) * np.exp(pool(-1.0, 2.5))
    f = fidelities[:, None, :]
    flat = np.maximum(rng.normal(0, 1, (e, n)) * pool(0.0, 0.15), 0)[..., None]
    x = np.maximum(f - flat, 0.0) / np.maximum(1.0 - flat, 1e-6)
    s = speed[..., None]
    power = ((1 + 50 * x) ** -(0.3 * s + 0.05) - 51.0 ** -(0.3 * s + 0.05)) / (
        1 - 51.0 ** -(0.3 * s + 0.05)
    )
    exponential = (np.exp(-3 * s * x) - np.exp(-3 * s)) / (1 - np.exp(-3 * s))
    shape = np.where(rng.random((e, 1, 1)) < 0.6, power, exponential)
    curve = final[..., None] + (start - final)[..., None] * shape
    # Overfitting: some rise again towards the end, then the end is what counts.
    rise = np.maximum(rng.normal(-0.5, 1, (e, n)) * pool(0.0, 0.6), 0)[..., None]
    curve = curve + rise * np.maximum(f - 0.4, 0.0)
    noise = rng.normal(size=(e, n, k)) * pool(0.0, 0.25)[..., None]
    noise *= np.where(rng.random((e, 1, 1)) < 0.3, 0.0, 1.0)
    curve = curve + noise
    # Units: shares, losses on a log scale, huge perplexities, steps of a small validation set.
    curve = np.where(rng.random((e, 1, 1)) < 0.2, np.exp(np.clip(curve, -20, 20)), curve)
    grain = pool(0.01, 0.3)[..., None]
    coarse = np.where(rng.random((e, 1, 1)) < 0.25, np.round(curve / grain) * grain, curve)
    return np.asarray(coarse, dtype=np.float64)
