"""What policies are compared on: pools cut from landmark tables, and who takes part.

The two ablations that change the pool rather than the policy stand here as well.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lamps import policy as policies
from lamps.policy.base import Policy
from lamps.policy.recorded import Recorded, recorded
from lamps.tables import LandmarkTable

SIMPLE = ("random", "smallest-first", "round-robin", "front-racing", "mo-successive-halving")
"""The simple rules that a learned policy must beat."""
CHANCY = ("random", "optuna:tpe", "optuna:nsga2", "optuna:qmc", "optuna:random")
"""Policies whose decisions depend on their seed; they are averaged over seeds."""


@dataclass(frozen=True, slots=True)
class Case:
    """One search to replay.

    Args:
        pool: Curves, objectives already chosen.
        workers: Landmarks at once.
        seed: Of the policy.
        fingerprint: Hash of the table that the pool was taken from; empty if unknown.
    """

    pool: Recorded
    workers: int = 1
    seed: int = 0
    fingerprint: str = ""

    def digest(self) -> str:
        """Hash of everything that a replay depends on, besides the policy."""
        pool = self.pool
        h = hashlib.sha256(repr((pool.objectives, pool.labels, self.workers, self.seed)).encode())
        for array in (pool.values, pool.cost_s, pool.measured, pool.fidelities, pool.size):
            h.update(repr(array.shape).encode() + np.ascontiguousarray(array).tobytes())
        return h.hexdigest()


@dataclass(frozen=True, slots=True)
class Rule:
    """A policy that takes part.

    Args:
        label: What it is called in the results.
        name: As `lamps.policy.make` takes it, with options in brackets.
        weights: File of weights for ``lamps``; the shipped ones if empty.
    """

    label: str
    name: str
    weights: str = ""

    @classmethod
    def named(cls, name: str) -> Rule:
        """A policy under its own name."""
        return cls(name, name)

    @property
    def by_chance(self) -> bool:
        """Whether its decisions depend on the seed."""
        return self.name.split("(")[0].strip() in CHANCY

    def make(self, seed: int = 0) -> Policy:
        """The policy.

        Raises:
            UnknownMethod: There is none of that name.
            ConfigError: An option or the weights cannot be used.
        """
        if not self.weights:
            return policies.make(self.name, seed=seed)
        from lamps.policy.learned import Lamps

        return Lamps(seed=seed, weights=self.weights)


def objective_sets(
    table: LandmarkTable, most: int = 3, wanted: Sequence[Sequence[str]] = ()
) -> list[tuple[str, ...]]:
    """Pairs and triples of objectives worth judging a policy on.

    Args:
        table: The table.
        most: At most this many, pairs first, but the last place is kept for a triple.
        wanted: These, where the table has them; replaces the choice.

    Returns:
        Sets of names with at least one objective that training moves; the only objective of a
        table that has one.
    """
    names = [o.name for o in table.objectives]
    if wanted:
        return [tuple(w) for w in wanted if set(w) <= set(names)]
    if len(names) == 1:
        return [(names[0],)]
    values = table.values
    with np.errstate(invalid="ignore"):
        moved = np.nanmax(np.abs(values - values[:, :1]), axis=(0, 1), initial=0.0) > 0
    moves = {n for n, m in zip(names, moved, strict=True) if m} or set(names)
    pairs = [c for c in itertools.combinations(names, 2) if moves & set(c)]
    triples = [c for c in itertools.combinations(names, 3) if moves & set(c)]
    return [*pairs[: most - 1 if triples and most > 1 else most], *triples][:most]


def cases(
    tables: Sequence[LandmarkTable],
    *,
    workers: Sequence[int] = (1,),
    seeds: int = 1,
    largest_pool: int = 64,
    samples: int = 1,
    most_landmarks: int = 0,
    most_sets: int = 3,
    objectives: Sequence[Sequence[str]] = (),
) -> Iterator[Case]:
    """All searches to replay on some tables; landmarks that not everybody has are joined.

    Args:
        tables: The tables.
        workers: Each of these numbers.
        seeds: Of policies that use chance.
        largest_pool: Larger tables are sampled down to this; 0 takes them whole.
        samples: Samples of a table that is too large.
        most_landmarks: Longer curves are thinned in geometric steps; 0 keeps all.
        most_sets: Sets of objectives per table.
        objectives: Sets of objectives instead.
    """
    for table in tables:
        fingerprint = table.fingerprint()
        for chosen in objective_sets(table, most_sets, objectives):
            whole = recorded(table, chosen, most_landmarks=most_landmarks)
            known = np.flatnonzero(~table.censored)  # nobody knows how the others end
            large = 0 < largest_pool < len(known)
            for sample in range(samples if large else 1):
                rows = known
                if large:
                    rng = np.random.default_rng([sample, len(known)])
                    rows = np.sort(rng.permutation(known)[:largest_pool])
                if len(rows) < 2:
                    continue
                pool = whole.rows(rows)
                if samples > 1 and large:
                    pool = dataclasses.replace(pool, name=f"{pool.name}~{sample}")
                for w, seed in itertools.product(workers, range(seeds)):
                    yield Case(pool, w, seed, fingerprint)


def without_landmarks(case: Case) -> Case:
    """An ablation: the same pool with its first and last landmark alone."""
    pool = case.pool
    k = pool.values.shape[1]
    if k <= 2:
        return case
    cost = np.stack([pool.cost_s[:, 0], pool.cost_s[:, 1:].sum(axis=1)], axis=1)
    inner = np.isfinite(pool.values[:, 1:]).all(axis=1)  # who fails on the way fails
    values = pool.values[:, [0, -1]].copy()
    values[:, 1][~inner] = np.nan
    kept = dataclasses.replace(
        pool,
        values=values,
        cost_s=cost,
        measured=np.stack([pool.measured[:, 0], pool.measured.all(axis=1)], axis=1),
        fidelities=pool.fidelities[[0, -1]],
    )
    return dataclasses.replace(case, pool=kept)


def with_permuted_sizes(case: Case) -> Case:
    """A control: sizes, costs and constant objectives dealt anew among the learning curves.

    A policy that learned nothing but "small ones first" falls apart here.
    """
    pool = case.pool
    order = np.arange(pool.n)
    whole = np.flatnonzero(pool.whole)  # what a failed candidate cost is no price for a run
    order[whole] = np.random.default_rng(11).permutation(whole)
    with np.errstate(invalid="ignore"):
        moved = np.nanmax(np.abs(pool.values - pool.values[:, :1]), axis=(0, 1), initial=0.0) > 0
    values = pool.values.copy()
    for o in np.flatnonzero(~moved):
        dealt = pool.values[order, :1, o]
        values[:, :, o] = np.where(np.isfinite(pool.values[:, :, o]), dealt, np.nan)
    dealt_pool = dataclasses.replace(
        pool, values=values, cost_s=pool.cost_s[order], size=pool.size[order]
    )
    return dataclasses.replace(case, pool=dealt_pool)
