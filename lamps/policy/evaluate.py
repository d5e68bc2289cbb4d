"""Policies compared on landmark tables: the same pools, objectives, workers and seeds for all.

Each case is replayed twice per policy: once with a budget to spend, which gives the time to reach
99, 99.9 and 100 % of the optimal hypervolume, and once without, which gives what had been found
when the policy stopped by itself. Times are shares of what `exhaustive` takes on as many workers;
a level that is never reached counts as 1. All cost counts, that of landmark 0 included.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np

from lamps import policy as policies
from lamps.errors import LampsError, LampsWarning, WorkerLost
from lamps.policy.cases import (
    CHANCY,
    SIMPLE,
    Case,
    Rule,
    cases,
    objective_sets,
    with_permuted_sizes,
    without_landmarks,
)
from lamps.policy.scoring import LEVELS, Curve, curve, target_of
from lamps.policy.simulate import simulate
from lamps.policy.weights import Weights

__all__ = [
    "CHANCY",
    "MEASURES",
    "SIMPLE",
    "Case",
    "Rule",
    "Score",
    "averaged",
    "cases",
    "evaluate",
    "objective_sets",
    "sampled_curve",
    "score",
    "with_permuted_sizes",
    "without_landmarks",
]


@dataclass(frozen=True, slots=True)
class Score:
    """How one policy did on one case.

    Args:
        policy: Its name, with options.
        table: Name of the table.
        family: Of the table.
        objectives: Their names.
        candidates: Size of the pool.
        landmarks: Of a full curve.
        workers: Landmarks at once.
        seed: Of the policy; -1 where it is the mean over several.
        front: Candidates on the final front.
        time_99: Share of the exhaustive time until the *finished* trials have 99 % of the optimal
            hypervolume.
        time_999: Until 99.9 %.
        time_100: Until all of it.
        zero_99: As ``time_99``, where an unfinished trial counts as it stood at landmark 0.
        zero_999: As ``time_999``, likewise.
        zero_100: As ``time_100``, likewise.
        area: Mean share of the optimum over the exhaustive time.
        stop_value: Share of the optimum when the policy stopped by itself.
        stop_time: Share of the exhaustive time at which it did.
        decision_ms: Mean milliseconds of a decision, measured.
        version: Of the policy.
        weights: SHA-256 of its weights; empty if it has none.
        fingerprint: Hash of the table.
        pool: Hash of the replayed case.
    """

    policy: str
    table: str
    family: str
    objectives: tuple[str, ...]
    candidates: int
    landmarks: int
    workers: int
    seed: int
    front: int
    time_99: float
    time_999: float
    time_100: float
    zero_99: float
    zero_999: float
    zero_100: float
    area: float
    stop_value: float
    stop_time: float
    decision_ms: float
    version: str = ""
    weights: str = ""
    fingerprint: str = ""
    pool: str = ""


MEASURES = (
    "time_99", "time_999", "time_100", "zero_99", "zero_999", "zero_100", "area", "stop_value",
    "stop_time", "decision_ms",
)  # fmt: skip


def score(rule: Rule, case: Case) -> Score:
    """Replay a case with a policy.

    Args:
        rule: The policy.
        case: What to replay.
    """
    pool = case.pool
    target = target_of(pool)
    policy = rule.make(case.seed)
    spending = simulate(policy, pool, workers=case.workers, spend=True)
    everything = _exhaustive_s(case)
    finished = curve(spending, pool, target)
    zero = curve(spending, pool, target, zero_shot=True)
    stopping = simulate(policy, pool, workers=case.workers)
    at_stop = curve(stopping, pool, target)
    t99, t999, t100 = (min(finished.time_to(x) / everything, 1.0) for x in LEVELS)
    z99, z999, z100 = (min(zero.time_to(x) / everything, 1.0) for x in LEVELS)
    weights = getattr(policy, "weights", None)
    return Score(
        rule.label,
        pool.name,
        pool.family,
        pool.objectives,
        pool.n,
        pool.values.shape[1],
        case.workers,
        case.seed,
        target.n_front,
        time_99=t99,
        time_999=t999,
        time_100=t100,
        zero_99=z99,
        zero_999=z999,
        zero_100=z100,
        area=finished.area(everything),
        stop_value=at_stop.final,
        stop_time=min(at_stop.end_s / everything, 1.0),
        decision_ms=1e3 * spending.decision_s / max(spending.decisions, 1),
        version=policy.version,
        weights=weights.sha256 if isinstance(weights, Weights) else "",
        fingerprint=case.fingerprint,
        pool=case.digest(),
    )


def _exhaustive_s(case: Case) -> float:
    """Seconds that everything takes on as many workers; above 0."""
    everything = target_of(case.pool).exhaustive_s
    if case.workers > 1:
        all_of_it = simulate(policies.make("exhaustive"), case.pool, workers=case.workers)
        everything = float(all_of_it.at_s[-1]) if len(all_of_it.at_s) else 0.0
    return max(everything, 1e-300)


def sampled_curve(rule: Rule, case: Case, points: int = 101) -> list[float]:
    """Share of the optimum at ``points`` even shares of the exhaustive time, from 0 to 1."""
    pool = case.pool
    trace = simulate(rule.make(case.seed), pool, workers=case.workers, spend=True)
    found: Curve = curve(trace, pool, target_of(pool))
    at = np.searchsorted(found.at_s, np.linspace(0, 1, points) * _exhaustive_s(case), "right")
    return [float(v) for v in np.concatenate([[0.0], found.share])[at]]


Work = tuple[Rule, Case]
Scored = tuple[Score | None, list[str]]
_ATTEMPTS = 3  # times that workers may vanish before we give up


def _scored(work: Work) -> Scored:
    """A score, and what was said meanwhile; None where the policy refused the case."""
    rule, case = work
    where = f"{rule.label} on {case.pool.name} ({', '.join(case.pool.objectives)})"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", LampsWarning)
        try:
            found = score(rule, case)
        except LampsError as error:
            return None, [f"{where} is left out: {error}"]
    notes = dict.fromkeys(str(w.message) for w in said if issubclass(w.category, LampsWarning))
    return found, [f"{where}: {note}" for note in notes]


def evaluate(
    work: Sequence[Work],
    *,
    jobs: int = 1,
    keep: Callable[[Work, Score], None] = lambda work, found: None,
    say: Callable[[str], None] = lambda line: None,
) -> list[Score | None]:
    """Replay everything.

    Args:
        work: Policies, each with a case.
        jobs: Processes.
        keep: Given each score as it comes, so that nothing is lost when this is interrupted.
        say: Told what a policy said, and why one was left out; a line at a time.

    Returns:
        A score per piece of work, in its order; None where the policy refused the case.

    Raises:
        UnknownMethod: There is no policy of some name.
        ConfigError: Options or weights that cannot be used.
        WorkerLost: Processes vanished again and again; what was kept is not lost.
    """
    for rule in {rule: None for rule, _ in work}:
        rule.make()  # a typo is found before hours of work
    found: list[Score | None] = [None] * len(work)

    def take(index: int, result: Scored) -> None:
        found[index] = result[0]
        if result[0] is not None:
            keep(work[index], result[0])
        for line in result[1]:
            say(line)

    if jobs <= 1:
        for index, item in enumerate(work):
            take(index, _scored(item))
        return found
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    left = list(range(len(work)))
    for attempt in range(_ATTEMPTS):
        try:
            for index, result in _in_processes(work, left, jobs):
                take(index, result)
                left.remove(index)
            return found
        except BrokenProcessPool:
            say(f"a worker vanished with {len(left)} replays to go; attempt {attempt + 2} follows")
    raise WorkerLost(
        f"workers vanished {_ATTEMPTS} times with {len(left)} replays to go; is there memory for "
        "--jobs processes? The same command with fewer goes on"
    )


def _in_processes(
    work: Sequence[Work], indices: Sequence[int], jobs: int
) -> Iterator[tuple[int, Scored]]:
    """Results as they come."""
    executor = ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=_leave_interrupts_to_the_parent
    )
    try:
        futures: dict[Future[Scored], int] = {
            executor.submit(_scored, work[index]): index for index in indices
        }
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def averaged(found: Sequence[Score]) -> list[Score]:
    """Means over seeds, so that every policy has one score per case."""
    groups: dict[tuple[object, ...], list[Score]] = {}
    for s in found:
        groups.setdefault((s.policy, s.table, s.objectives, s.workers), []).append(s)
    result = []
    for some in groups.values():
        if len(some) == 1:
            result.append(some[0])
            continue
        means: dict[str, Any] = {
            m: float(np.mean([getattr(s, m) for s in some])) for m in MEASURES
        }
        result.append(dataclasses.replace(some[0], seed=-1, **means))
    return result
