"""Optuna's samplers over a finite pool: the search space, and what the samplers are told."""

from __future__ import annotations

import logging
import warnings
from itertools import pairwise

import numpy as np
import optuna
import pytest

from lamps import policy as policies
from lamps.pareto import Floats
from lamps.policy import Observation, Policy, Pool
from lamps.policy.optuna_sampler import OptunaSampler, columns_of
from lamps.testing.pools import Curves, Make, play
from lamps.types import Candidate

NAMES = ["optuna:tpe", "optuna:nsga2", "optuna:gp", "optuna:qmc", "optuna:random"]
every_sampler = pytest.mark.parametrize("name", NAMES)
quick_sampler = pytest.mark.parametrize("name", [n for n in NAMES if n != "optuna:gp"])


def named(name: str) -> Make:
    def make(seed: int) -> Policy:
        return policies.make(name, seed=seed)

    return make


def candidates(n: int, seed: int = 0) -> tuple[Candidate, ...]:
    rng = np.random.default_rng(seed)
    return tuple(
        Candidate(
            "f",
            "tune" if i % 2 else "probe",
            {"rate": float(10 ** rng.uniform(-5, -1)), "model": "ab"[i % 2]}
            | ({"depth": int(rng.integers(1, 9))} if i % 2 else {}),
        )
        for i in range(n)
    )


# --- the search space ----------------------------------------------------------------------------


def test_columns_know_their_kinds() -> None:
    columns = {c.name: c for c in columns_of(candidates(20))}
    assert set(columns) == {"method", "rate", "model", "depth"}
    assert not columns["method"].numeric
    assert columns["rate"].log
    assert columns["rate"].numeric
    assert columns["depth"].numeric
    assert not columns["depth"].log
    assert columns["depth"].has.tolist() == [False, True] * 10
    types = {name: type(c.distribution()).__mro__[2] for name, c in columns.items()}
    assert types["rate"] is optuna.distributions.FloatDistribution
    assert types["depth"] is optuna.distributions.IntDistribution
    assert types["model"] is optuna.distributions.CategoricalDistribution


def test_columns_that_say_nothing_are_left_out() -> None:
    pool = [
        Candidate("f", "m", {"curve": str(i), "fixed": 1.0, "flag": i < 2, "sizes": [i % 2]})
        for i in range(4)
    ]
    assert [c.name for c in columns_of(pool)] == ["flag", "sizes"]


def test_distances_are_relative_to_the_range() -> None:
    pool = [Candidate("f", "m", {"rate": r}) for r in (1e-4, 1e-3, 1e-2)]
    (column,) = columns_of(pool)
    assert column.log
    assert column.distance(1e-4) == pytest.approx([0.0, 0.5, 1.0])
    (names,) = columns_of([Candidate("f", "m", {"kind": k}) for k in "aab"])
    assert names.distance("a").tolist() == [0.0, 0.0, 1.0]


# --- laws ----------------------------------------------------------------------------------------


@every_sampler
def test_candidates_run_to_the_end_one_after_the_other(name: str) -> None:
    curves = Curves.falling(14, 4, 2, seed=0, failing=0.2)
    played = play(named(name), curves, seed=1)
    assert (played.seen.complete | played.seen.failed).all()
    changes = sum(a != b for a, b in pairwise(played.started))
    assert changes == 13, "a trial was left before its end"


@quick_sampler
def test_landmarks_before_the_last_are_never_seen(name: str) -> None:
    """Other values on the way to the same ends: the same order."""
    curves = Curves.falling(16, 4, 2, seed=0)
    other = curves.values.copy()
    other[:, :-1] = np.random.default_rng(1).uniform(size=other[:, :-1].shape)
    orders = []
    for values in (curves.values, other):
        pool = Curves(values, curves.cost_s, curves.size, curves.fails_at, curves.candidates)
        orders.append(play(named(name), pool, seed=3).started)
    assert orders[0] == orders[1]


@quick_sampler
def test_seeds_decide(name: str) -> None:
    curves = Curves.falling(16, 2, 2, seed=0)
    orders = [play(named(name), curves, seed=s).started for s in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]


@every_sampler
def test_nobody_hears_of_it(
    name: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    before = optuna.logging.get_verbosity()
    with warnings.catch_warnings(), caplog.at_level(logging.DEBUG):
        warnings.simplefilter("error")
        play(named(name), Curves.falling(14, 2, 3, seed=1, failing=0.3), workers=3)
    assert optuna.logging.get_verbosity() == before
    assert not capfd.readouterr().err
    assert not [r for r in caplog.records if r.name.startswith("optuna")]


def order_in(rule: Policy, ends: Floats) -> list[int]:
    """Which trials a policy starts in turn, in a pool of two landmarks. Shape: [n, m]."""
    seen = Observation.empty(len(ends), np.array([0.0, 1.0]), ends.shape[1])
    order: list[int] = []
    while (action := rule.propose(seen, seen.mask)) >= 0:
        if seen.landmark[action] < 0:
            order.append(action)
        seen.landmark[action] += 1
        seen.values[action, seen.landmark[action]] = ends[action]
        seen.seq += 1
    return order


def test_a_sampler_that_learns_finds_the_best_sooner() -> None:
    """The error is a bowl over the rate; chance needs half of the pool on average."""
    rng = np.random.default_rng(0)
    rates = 10 ** rng.uniform(-5, 0, 60)
    pool = Pool(
        tuple(map(str, range(60))),
        tuple(
            Candidate("f", "m", {"rate": float(r), "other": float(i)}) for i, r in enumerate(rates)
        ),
    )
    error = (np.log10(rates) + 3.0)[:, None] ** 2
    best = set(np.argsort(error[:, 0])[:5].tolist())

    def mean_place(policy: str) -> float:
        places = []
        for seed in range(4):
            rule = policies.make(policy, seed=seed)
            rule.prepare(pool)
            order = order_in(rule, error)
            places += [order.index(i) for i in best]
        return float(np.mean(places))

    assert mean_place("optuna:tpe") < 0.85 * mean_place("optuna:random")


# --- edges ---------------------------------------------------------------------------------------


def test_the_sequence_of_qmc_goes_on() -> None:
    """A study that is built anew must not give the first point again and again."""
    rates = np.geomspace(1e-5, 1, 64)
    pool = Pool(
        tuple(map(str, range(64))),
        tuple(
            Candidate("f", "m", {"rate": float(r), "other": float(i % 8)})
            for i, r in enumerate(rates)
        ),
    )
    rule = policies.make("optuna:qmc", seed=1)
    rule.prepare(pool)
    order = order_in(rule, np.ones((64, 1)))[1:17]
    # Sixteen points of a Sobol sequence fall into all quarters of the range alike.
    quarters = np.bincount(np.array(order) // 16, minlength=4)
    assert quarters.min() >= 2


@every_sampler
def test_pools_without_params_have_their_sizes(name: str) -> None:
    rule = policies.make(name, seed=0)
    assert isinstance(rule, OptunaSampler)
    pool = tuple(Candidate("replay", "curve-replay", {"curve": str(i)}) for i in range(12))
    rule.prepare(Pool(tuple("abcdefghijkl"), pool))
    seen = Observation.empty(12, np.array([0.0, 1.0]), 1, np.arange(12.0))
    assert rule.propose(seen, seen.mask) in range(12)
    seen.size_hint[:] = np.nan
    assert rule.propose(seen, seen.mask) in range(12)


def test_a_pool_of_one() -> None:
    rule = policies.make("optuna:tpe")
    rule.prepare(Pool(("a",), (Candidate("f", "m"),)))
    seen = Observation.empty(1, np.array([1.0]), 1)
    assert rule.propose(seen, seen.mask) == 0


def test_slow_samplers_are_known_but_not_listed() -> None:
    assert "optuna:gp" not in policies.names()
    assert policies.load("optuna:gp").name == "optuna:gp"
