"""Any of Optuna's multi-objective samplers at full fidelity, for comparison.

The usual way to search: choose a candidate, run it to the end, choose the next one. Landmarks are
run because every search here has them, but the sampler never sees one. At each choice the study is
built anew from the trials that have ended (failed ones as failed) and from those under way, the
sampler suggests a point, and the unstarted candidate nearest to it is started.

The space is read off the pool: ``method`` and the params that differ between candidates, numbers
as numbers (on a log scale where they span two decades), anything else as categories. Columns that
say nothing are left out: those with one value, and names that no two candidates share. If none
remains, the size hint is the space, and if there is none either, the position in the pool. A param
that a candidate lacks is filled in by the usual value, and does not count in its distance.

A study that is built anew has forgotten what samplers keep between suggestions. So the sequence of
``qmc`` is put forward by the trials that were started, and all ended trials are one generation of
``nsga2``, whose population is a quarter of the pool or 50 at most.

Sources: Optuna's samplers, see their documentation. Ours: the mapping to a finite pool.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from lamps import pareto
from lamps.errors import MissingExtra
from lamps.pareto import Floats
from lamps.policy.base import Action, Observation, Policy, Pool, nothing_left
from lamps.types import Candidate, canonical_json

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial


@dataclass(frozen=True, slots=True)
class Column:
    """One dimension of the search space.

    Args:
        name: Of the param.
        values: [n] what each candidate has there, the usual value where it has none.
        has: [n] bool, whether the candidate has it.
        numeric: Whether values are numbers rather than categories.
        log: Whether they are searched on a log scale.
    """

    name: str
    values: tuple[Any, ...]
    has: NDArray[np.bool_]
    numeric: bool
    log: bool = False

    def distribution(self) -> BaseDistribution:
        """The column as Optuna knows it."""
        real, integer, choice = _distributions()
        if not self.numeric:
            return cast("BaseDistribution", choice(sorted(set(self.values))))
        low, high = min(self.values), max(self.values)
        if all(isinstance(v, int) for v in self.values):
            return cast("BaseDistribution", integer(low, high, log=self.log))
        return cast("BaseDistribution", real(float(low), float(high), log=self.log))

    def distance(self, value: Any) -> Floats:
        """[n]: 0 to 1 from a value, 0 where a candidate has none."""
        if self.numeric:
            scale = np.log if self.log else np.asarray
            at = scale(np.array(self.values, dtype=float))
            far = np.abs(at - scale(np.float64(value))) / np.ptp(at)
        else:
            far = np.array([float(v != value) for v in self.values])
        return np.where(self.has, far, 0.0)


@functools.cache
def _distributions() -> tuple[type[Any], type[Any], type[Any]]:
    """Optuna's distributions of floats, ints and categories, shared by all trials of a study.

    Optuna copies the distributions of every trial that it is told of. They never change, and
    without the copies a study of a thousand trials is built in half the time.
    """
    from optuna import distributions as theirs

    class Shared:
        def __deepcopy__(self, memo: dict[int, Any]) -> Any:
            return self

    class Real(Shared, theirs.FloatDistribution):
        pass

    class Integer(Shared, theirs.IntDistribution):
        pass

    class Choice(Shared, theirs.CategoricalDistribution):
        pass

    return Real, Integer, Choice


def columns_of(candidates: Sequence[Candidate]) -> tuple[Column, ...]:
    """The dimensions in which candidates differ and that at least two of them share.

    Example:
        >>> pool = [Candidate("f", "a", {"rate": r, "id": str(r)}) for r in (0.1, 0.2, 0.4)]
        >>> [c.name for c in columns_of(pool)]
        ['rate']
    """
    rows = [{"method": c.method, **c.params} for c in candidates]
    names = dict.fromkeys(k for row in rows for k in row)
    found = (_column(name, rows) for name in names)
    return tuple(c for c in found if c is not None)


def _column(name: str, rows: Sequence[Mapping[str, Any]]) -> Column | None:
    cells: list[Any] = [row.get(name) for row in rows]
    has = np.array([name in row and row[name] is not None for row in rows])
    present: list[Any] = [c for c, there in zip(cells, has, strict=True) if there]
    numeric = all(
        isinstance(c, (int, float)) and not isinstance(c, bool) and math.isfinite(c)
        for c in present
    )
    if not numeric:
        present = [c if isinstance(c, str) else canonical_json(c) for c in present]
    distinct = sorted(set(present))
    if len(distinct) < 2 or (not numeric and len(distinct) == len(present)):
        return None
    usual = max(distinct, key=present.count)
    if numeric:
        usual = sorted(present)[len(present) // 2]
    given = iter(present)
    values = tuple(next(given) if there else usual for there in has)
    log = numeric and distinct[0] > 0 and distinct[-1] >= 100 * distinct[0]
    return Column(name, values, has, numeric, log)


class OptunaSampler(Policy):
    """Whole candidates, one after the other, as a sampler of Optuna chooses them."""

    sampler: ClassVar[str]

    def __init__(self, *, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self._columns: tuple[Column, ...] = ()

    def prepare(self, pool: Pool) -> None:
        """Read the search space off the candidates."""
        self._columns = columns_of(pool.candidates) if pool.candidates else ()

    def propose(self, observation: Observation, mask: NDArray[np.bool_]) -> Action:
        """Go on with what was started, else start the candidate nearest to a suggestion."""
        if not mask.any():
            return nothing_left(observation)
        started = np.flatnonzero(mask & (observation.landmark >= 0))
        if len(started):
            return int(started[np.argmax(observation.landmark[started])])
        new = np.flatnonzero(mask)
        columns = self._columns or _fallback(observation)
        if len(new) == 1 or not columns:
            return int(new[0])
        begun = (observation.landmark >= 0) | observation.in_flight | observation.failed
        rng = np.random.default_rng([self.seed, int(begun.sum())])
        with _quiet():
            point = self._suggest(observation, columns, begun, int(rng.integers(2**31)))
        far = np.zeros(observation.n_trials)
        for column in columns:
            far += column.distance(point[column.name])
        shared = np.sum([c.has for c in columns], axis=0)
        far = np.where(shared > 0, far / np.maximum(shared, 1), 0.5)
        ties = rng.permutation(observation.n_trials)
        return int(new[np.lexsort((ties[new], far[new]))[0]])

    def _suggest(
        self,
        observation: Observation,
        columns: Sequence[Column],
        begun: NDArray[np.bool_],
        seed: int,
    ) -> dict[str, Any]:
        import optuna

        space = {c.name: c.distribution() for c in columns}
        sampler = _sampler(self.sampler, seed, self.seed, int(begun.sum()), observation.n_trials)
        study = optuna.create_study(
            sampler=sampler, directions=["minimize"] * observation.values.shape[2]
        )
        _fill(study, observation, columns, space, begun, sampler)
        return dict(study.ask(space).params)


def _fallback(observation: Observation) -> tuple[Column, ...]:
    """The size hint as the only dimension, else the position in the pool; none for equal sizes."""
    size = observation.size_hint
    known = np.isfinite(size)
    if known.any() and np.ptp(size[known]) > 0:
        values = np.where(known, size, np.median(size[known]))
        log = bool(values.min() > 0 and values.max() >= 100 * values.min())
        return (Column("size", tuple(values.tolist()), known, True, log),)
    n = observation.n_trials
    return (Column("position", tuple(range(n)), np.ones(n, dtype=bool), True),) if n > 1 else ()


def _fill(
    study: Study,
    observation: Observation,
    columns: Sequence[Column],
    space: Mapping[str, BaseDistribution],
    begun: NDArray[np.bool_],
    sampler: BaseSampler,
) -> None:
    """Tell a study of the trials that were begun, those that have ended first."""
    from optuna.samplers import NSGAIISampler, QMCSampler, RandomSampler
    from optuna.trial import TrialState, create_trial

    ends = observation.last_values()
    well = observation.complete & np.isfinite(ends).all(axis=1)
    if well.any():
        # Their scale means nothing to a sampler, and huge ones overflow inside.
        ends = pareto.normalized(ends, ends[well].min(axis=0), ends[well].max(axis=0))
    # One generation, from which the parents of the next child are chosen.
    attrs = {sampler._get_generation_key(): 0} if isinstance(sampler, NSGAIISampler) else {}
    trials: list[FrozenTrial] = []
    order = sorted(np.flatnonzero(begun), key=lambda i: (not well[i], i))
    if isinstance(sampler, RandomSampler):
        order = []
    elif isinstance(sampler, QMCSampler):
        order = order[:1]  # it only asks whether there is one
    for i in order:
        common: dict[str, Any] = {
            "params": {c.name: c.values[i] for c in columns},
            "distributions": dict(space),
        }
        if well[i]:
            state, common["values"] = TrialState.COMPLETE, ends[i].tolist()
            common["system_attrs"] = attrs
        elif observation.failed[i] or observation.complete[i]:
            state = TrialState.FAIL
        else:
            state = TrialState.RUNNING
        trials.append(create_trial(state=state, **common))
    study.add_trials(trials)


def _sampler(name: str, seed: int, run_seed: int, n_begun: int, n_trials: int) -> BaseSampler:
    """A sampler of Optuna in the state for the next suggestion."""
    from optuna import samplers

    if name == "tpe":
        return samplers.TPESampler(seed=seed)
    if name == "nsga2":
        return samplers.NSGAIISampler(seed=seed, population_size=min(50, max(4, n_trials // 4)))
    if name == "gp":
        try:
            import torch  # noqa: F401
        except ImportError as error:
            raise MissingExtra("policy 'optuna:gp'", "torch", "text") from error
        return samplers.GPSampler(seed=seed, warn_independent_sampling=False)
    if name == "qmc":

        class Forwarded(samplers.QMCSampler):
            """Its place in the sequence follows from the trials rather than from a counter."""

            def _find_sample_id(self, study: Any, search_space: Any) -> int:
                return n_begun

        return Forwarded(seed=run_seed, scramble=True, warn_independent_sampling=False)
    return samplers.RandomSampler(seed=seed)


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna's remarks on its own samplers concern nobody here."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


class OptunaTpe(OptunaSampler):
    """Tree-structured Parzen estimators."""

    name = "optuna:tpe"
    sampler = "tpe"
    summary = "Optuna's TPE over whole candidates at full fidelity"


class OptunaNsga2(OptunaSampler):
    """The genetic algorithm NSGA-II."""

    name = "optuna:nsga2"
    sampler = "nsga2"
    summary = "Optuna's NSGA-II over whole candidates at full fidelity"


class OptunaGp(OptunaSampler):
    """Gaussian processes with expected hypervolume improvement; needs torch."""

    name = "optuna:gp"
    sampler = "gp"
    summary = "Optuna's Gaussian process over whole candidates at full fidelity; needs torch"


class OptunaQmc(OptunaSampler):
    """A scrambled Sobol sequence."""

    name = "optuna:qmc"
    sampler = "qmc"
    summary = "Optuna's Sobol sequence over whole candidates at full fidelity"


class OptunaRandom(OptunaSampler):
    """Independent uniform points."""

    name = "optuna:random"
    sampler = "random"
    summary = "Optuna's random sampler over whole candidates at full fidelity"
