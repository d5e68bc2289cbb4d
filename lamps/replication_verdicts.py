"""From pairs of numbers to a value, its 95 % interval, and whether a claim holds.

The value of a seed is computed over its units, the claim's value is the mean over seeds (see
`lamps.replication.Claim` for the formulas). The interval comes from what was repeated:

- several seeds with several units: hierarchical bootstrap, seeds first and units inside each
- several seeds with one unit each: Student's t over the seeds' values
- one seed with several units: bootstrap over the units; it says nothing about other seeds
- one pair: there is no interval

Bootstrap intervals are percentiles of 4,000 draws of a fixed generator. Neither the order nor the
names of pairs, units and seeds change any number. A bootstrap over two or three seeds is narrower
than it should be; `Verdict.basis` says what an interval rests on.

Infinite numbers count as they are. Where a number or the value is NaN nothing is left out: a
claim is not held, a control is undecided.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lamps.errors import ContractError
from lamps.replication import Claim, Measurement

__all__ = ["Outcome", "Verdict", "verdict"]

Outcome = Literal["held", "not held", "undecided"]
Basis = Literal["seeds and units", "seeds", "units of one seed", "pairs", "nothing"]
Floats = NDArray[np.float64]

N_RESAMPLES = 4_000
_BLOCK = 2_000_000  # numbers that one piece of the bootstrap may draw at once
_LEAST_RANKED = 3  # units that a rank correlation needs
_NO_INTERVAL: tuple[float, float, Basis] = (math.nan, math.nan, "nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the measurements say about a claim.

    Args:
        value: Ratio, difference, share or correlation; NaN where it is undefined.
        low: Lower end of the 95 % interval; NaN where there is none.
        high: Upper end.
        n_seeds: Seeds.
        n_pairs: Pairs over all seeds.
        basis: What the interval rests on.
        outcome: ``held``, ``not held`` or ``undecided``, of the claim as it is written.
        control: Whether the claim is one that must fail.
    """

    value: float
    low: float
    high: float
    n_seeds: int
    n_pairs: int
    basis: Basis
    outcome: Outcome
    control: bool

    @property
    def broken(self) -> bool:
        """Whether a control holds, so that the measurement tells nothing apart."""
        return self.control and self.outcome == "held"

    @property
    def word(self) -> str:
        """The outcome for people; controls fail as expected, or are broken."""
        if not self.control or self.outcome == "undecided":
            return self.outcome
        return "control broken" if self.broken else "fails as expected"


def verdict(claim: Claim, measurements: Iterable[Measurement]) -> Verdict:
    """Judge one claim.

    Args:
        claim: The claim.
        measurements: Its pairs, in any order; those of other claims are ignored.

    Raises:
        ContractError: Two pairs have the same seed and unit, or a ``boolean`` has another number
            than 0 and 1.

    Example:
        >>> faster = Claim(id="C1", statement="It is faster.", quantity="seconds, new / old",
        ...                compare="geometric", direction="<", threshold=1.0)
        >>> times = [(0, 1.0, 2.0), (1, 1.0, 2.0), (2, 3.0, 6.0)]
        >>> found = verdict(faster, [Measurement(claim="C1", seed=s, unit="all", newcomer=a,
        ...                                      comparison=b) for s, a, b in times])
        >>> round(found.value, 3), found.outcome, found.basis
        (0.5, 'held', 'seeds')
    """
    mine = [m for m in measurements if m.claim == claim.id]
    _check(claim, mine)
    groups = _groups(mine)
    n_seeds, n_pairs = len(groups), len(mine)
    pooled = claim.compare == "correlation" and any(len(g[0]) < _LEAST_RANKED for g in groups)
    if pooled:
        groups = [(np.concatenate([g[0] for g in groups]), np.concatenate([g[1] for g in groups]))]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        value = float(_over_seeds(claim, _per_seed(claim, groups))) if groups else math.nan
        low, high, basis = _NO_INTERVAL if math.isnan(value) else _interval(claim, groups)
    if pooled and basis != "nothing":
        basis = "pairs"
    return Verdict(
        value=value,
        low=low,
        high=high,
        n_seeds=n_seeds,
        n_pairs=n_pairs,
        basis=basis,
        outcome=_outcome(claim, value, low, high),
        control=claim.control,
    )


def _check(claim: Claim, mine: Sequence[Measurement]) -> None:
    seen: set[tuple[int, str]] = set()
    for m in mine:
        if (m.seed, m.unit) in seen:
            raise ContractError(
                f"claim {claim.id!r} has two pairs for seed {m.seed} and unit {m.unit!r}, "
                "expected one; give each its own unit"
            )
        seen.add((m.seed, m.unit))
        said = m.newcomer in (0.0, 1.0) or math.isnan(m.newcomer)
        if claim.compare == "boolean" and not said:
            raise ContractError(
                f"claim {claim.id!r} is boolean, but its newcomer is {m.newcomer} for unit "
                f"{m.unit!r}; expected 0 or 1"
            )


def _groups(mine: Sequence[Measurement]) -> list[tuple[Floats, Floats]]:
    """Newcomer and comparison per seed, in an order that depends on the numbers alone."""
    by_seed: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for m in mine:
        by_seed[m.seed].append((m.newcomer, m.comparison))
    ordered = [sorted(pairs, key=_order) for pairs in by_seed.values()]
    ordered.sort(key=lambda pairs: [_order(p) for p in pairs])
    return [
        (np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])) for pairs in ordered
    ]


def _order(pair: tuple[float, float]) -> tuple[tuple[bool, float], ...]:
    """A key that orders NaN too."""
    return tuple((math.isnan(x), 0.0 if math.isnan(x) else x) for x in pair)


# Values ------------------------------------------------------------


def _per_seed(claim: Claim, groups: Sequence[tuple[Floats, Floats]]) -> Floats:
    """The value of each seed, ``[n_seeds]``."""
    rows = _ROWS[claim.compare]
    return np.array([rows(a[None], b[None])[0] for a, b in groups])


def _over_seeds(claim: Claim, values: Floats) -> Floats:
    """Mean over the last axis, ``[..., n_seeds] -> [...]``; of logarithms for ``geometric``."""
    if claim.compare == "geometric":
        return np.asarray(np.exp(np.log(values).mean(axis=-1)))
    return np.asarray(values.mean(axis=-1))


def _ratio(a: Floats, b: Floats) -> Floats:
    return _quotient(a.sum(axis=1), b.sum(axis=1))


def _geometric(a: Floats, b: Floats) -> Floats:
    ratios = np.where((a < 0) | (b < 0), np.nan, _quotient(a, b))
    return np.asarray(np.exp(np.log(ratios).mean(axis=1)))


def _quotient(a: Floats, b: Floats) -> Floats:
    """``a / b``, 1 for equal numbers, undefined for a negative ``b``."""
    return np.where(a == b, 1.0, np.where(b < 0, np.nan, a / b))


def _difference(a: Floats, b: Floats) -> Floats:
    return np.asarray(np.where(a == b, 0.0, a - b).mean(axis=1))


def _share(a: Floats, b: Floats) -> Floats:
    return np.asarray(a.mean(axis=1))


def _spearman(a: Floats, b: Floats) -> Floats:
    """Rank correlation per row; ties share their mean rank, a constant row has none."""
    if a.shape[1] < _LEAST_RANKED or np.isnan(a).any() or np.isnan(b).any():
        return np.full(len(a), np.nan)
    from scipy import stats

    ranks = [np.asarray(stats.rankdata(x, axis=1)) for x in (a, b)]
    x, y = (r - r.mean(axis=1, keepdims=True) for r in ranks)
    return np.asarray((x * y).sum(axis=1) / np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1)))


_ROWS: dict[str, Callable[[Floats, Floats], Floats]] = {
    "ratio": _ratio,
    "geometric": _geometric,
    "difference": _difference,
    "boolean": _share,
    "correlation": _spearman,
}
"""Value of each row: newcomers and comparisons, both ``[rows, n_units]``, to ``[rows]``."""


# Intervals ------------------------------------------------------------


def _interval(claim: Claim, groups: Sequence[tuple[Floats, Floats]]) -> tuple[float, float, Basis]:
    several_units = any(len(a) > 1 for a, _ in groups)
    if not several_units and len(groups) == 1:
        return _NO_INTERVAL
    if several_units or claim.compare == "boolean":
        draws = _bootstrap(claim, groups)
        basis: Basis = "units of one seed"
        if len(groups) > 1:
            basis = "seeds and units" if several_units else "seeds"
        if claim.compare == "correlation":
            draws = draws[~np.isnan(draws)]  # the same unit again and again has no rank
        if not len(draws) or np.isnan(draws).any():
            return _NO_INTERVAL
        # Ends that were drawn, so that infinite draws need no arithmetic; the interval is never
        # narrower for it.
        low = np.percentile(draws, 2.5, method="lower")
        high = np.percentile(draws, 97.5, method="higher")
        return float(low), float(high), basis
    return *_student(claim, groups), "seeds"


def _student(claim: Claim, groups: Sequence[tuple[Floats, Floats]]) -> tuple[float, float]:
    values = _per_seed(claim, groups)
    if (values == values[0]).all():
        return float(values[0]), float(values[0])
    logarithmic = claim.compare == "geometric"
    x = np.log(values) if logarithmic else values
    if not np.isfinite(x).all():
        return float(values.min()), float(values.max())
    from scipy import special

    half = float(special.stdtrit(len(x) - 1, 0.975) * x.std(ddof=1) / math.sqrt(len(x)))
    ends = np.array([x.mean() - half, x.mean() + half])
    low, high = np.exp(ends) if logarithmic else ends
    return float(low), float(high)


def _bootstrap(claim: Claim, groups: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Values of resampled seeds and units, ``[N_RESAMPLES]``."""
    rng = np.random.default_rng(0)
    n = len(groups)
    chosen = rng.integers(0, n, (N_RESAMPLES, n)) if n > 1 else np.zeros((N_RESAMPLES, 1), int)
    values = np.empty(chosen.shape)
    for index, (a, b) in enumerate(groups):
        places = np.argwhere(chosen == index)
        step = max(1, _BLOCK // len(a))
        for start in range(0, len(places), step):
            some = places[start : start + step]
            drawn = rng.integers(0, len(a), (len(some), len(a)))
            values[some[:, 0], some[:, 1]] = _ROWS[claim.compare](a[drawn], b[drawn])
    return _over_seeds(claim, values)


def _outcome(claim: Claim, value: float, low: float, high: float) -> Outcome:
    if math.isnan(value):
        return "undecided" if claim.control else "not held"
    if not claim.certain:
        return "held" if claim.meets(value) else "not held"
    if math.isnan(low) or claim.meets(low) != claim.meets(high):
        return "undecided"
    return "held" if claim.meets(low) else "not held"
