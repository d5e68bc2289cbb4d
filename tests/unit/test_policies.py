"""What holds for every allocation policy, and what only some of them promise."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamps import pareto
from lamps import policy as policies
from lamps.errors import ConfigError, UnknownMethod
from lamps.pareto import Floats
from lamps.policy import STOP, WAIT, Observation, Policy

NAMES = policies.names()
ENDLESS = ["exhaustive", "random", "smallest-first", "round-robin"]
every_policy = pytest.mark.parametrize("name", NAMES)


def table(n: int, k: int, m: int, seed: int = 0) -> Floats:
    """Falling curves that mostly keep their order. Shape: [n, k, m]."""
    rng = np.random.default_rng(seed)
    end = rng.uniform(0, 1, (n, 1, m))
    start = 1 + end + 0.2 * rng.uniform(size=(n, 1, m))
    share = np.linspace(0, 1, k)[None, :, None]
    return end + (start - end) * (1 - share) ** 2


def play(
    policy: Policy,
    values: Floats,
    *,
    workers: int = 1,
    failing: frozenset[int] = frozenset(),
    seed: int = 0,
) -> Observation:
    """Run a policy on recorded curves until it stops, with every answer checked.

    Args:
        policy: Who decides.
        values: [n, k, m], the curves.
        workers: Landmarks at once; their seconds are drawn at random.
        failing: Trials whose second landmark fails.
        seed: Of the seconds.
    """
    n, k, m = values.shape
    rng = np.random.default_rng(seed)
    seen = Observation.empty(n, np.linspace(0, 1, k), m, np.arange(n, 0, -1.0))
    seen.n_workers = workers
    flight: list[tuple[float, int]] = []
    now, stopped = 0.0, False
    while True:
        waiting = stopped
        while len(flight) < workers and not waiting:
            before = seen.digest()
            mask = seen.mask
            action = policy.propose(seen, mask.copy())
            assert seen.digest() == before, "the policy wrote to the observation"
            assert isinstance(action, int)
            if action == WAIT:
                assert flight, "WAIT was answered while nothing is in flight"
                waiting = True
            elif action == STOP:
                stopped = waiting = True
            else:
                assert mask[action], "a trial was proposed that may not advance"
                seen.in_flight[action] = True
                seen.seq += 1
                heapq.heappush(flight, (now + rng.uniform(0.5, 1.5), action))
        if not flight:
            assert stopped
            return seen
        now, trial = heapq.heappop(flight)
        seen.in_flight[trial] = False
        level = seen.landmark[trial] + 1
        if trial in failing and level == 1:
            seen.failed[trial] = True
            continue
        seen.landmark[trial] = level
        seen.values[trial, level] = values[trial, level]
        seen.cost_s[trial, level] = 1.0


# --- laws ----------------------------------------------------------------------------------------


@every_policy
@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(1, 12),
    k=st.integers(1, 6),
    m=st.integers(1, 6),
    workers=st.integers(1, 4),
    seed=st.integers(0, 5),
    data=st.data(),
)
def test_a_search_ends_whatever_fails(
    name: str, n: int, k: int, m: int, workers: int, seed: int, data: st.DataObject
) -> None:
    failing = frozenset(data.draw(st.sets(st.integers(0, n - 1))))
    seen = play(
        policies.make(name, seed=seed),
        table(n, k, m, seed),
        workers=workers,
        failing=failing,
        seed=seed,
    )
    assert not seen.in_flight.any()
    if name in ENDLESS:
        assert (seen.complete | seen.failed).all()
    elif not seen.failed.all():
        assert seen.complete.any(), "nothing was finished"


@every_policy
@pytest.mark.parametrize("n", [1, 2, 3, 7, 50, 200])
def test_pools_of_any_size(name: str, n: int) -> None:
    seen = play(policies.make(name), table(n, 4, 2))
    assert seen.complete.any()


@every_policy
@pytest.mark.parametrize("m", [1, 2, 6])
def test_a_pool_that_is_all_front_is_finished(name: str, m: int) -> None:
    """No candidate can be spared where each is best at something."""
    n = 6
    values = np.repeat(np.eye(n)[:, None, :m], 4, axis=1)
    if m == 1:
        values = np.zeros((n, 4, 1))
    elif m == 2:
        values = np.repeat(np.stack([np.arange(n), -np.arange(n)], axis=1)[:, None], 4, axis=1)
    else:
        values = np.repeat((1 - np.eye(n))[:, None, :], 4, axis=1)
    assert play(policies.make(name), values.astype(float)).complete.all()


@every_policy
@pytest.mark.parametrize("workers", [1, 3])
def test_a_pool_that_fails_altogether_ends(name: str, workers: int) -> None:
    seen = play(policies.make(name), table(9, 4, 2), workers=workers, failing=frozenset(range(9)))
    assert seen.failed.all()


@every_policy
def test_failed_trials_stand_in_nobodys_way(name: str) -> None:
    """The best at the first landmark fails; what it dominated there must get its chance."""
    values = np.repeat(np.arange(6.0)[:, None, None], 4, axis=1)
    seen = play(policies.make(name), values, failing=frozenset(range(4)))
    assert seen.complete[4]


@every_policy
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_any_observation_gets_a_legal_answer(name: str, seed: int) -> None:
    """Random states, reachable or not, with NaN and inf among the values."""
    seen, mask = random_observation(seed)
    before = seen.digest()
    policy = policies.make(name, seed=seed)
    action = policy.propose(seen, mask)
    assert action == policies.make(name, seed=seed).propose(seen, mask), "it remembers something"
    assert seen.digest() == before
    if action == WAIT:
        assert seen.in_flight.any()
    elif action != STOP:
        assert mask[action]


def random_observation(
    seed: int,
) -> tuple[Observation, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    rng = np.random.default_rng(seed)
    n, k, m = (int(rng.integers(1, end)) for end in (20, 6, 7))
    seen = Observation.empty(n, np.linspace(0, 1, k), m)
    seen.values[:] = rng.integers(0, 4, seen.values.shape)
    odd = np.array([np.nan, np.inf, -np.inf, 1e308, -1e308, 0.0])
    spots = rng.uniform(size=seen.values.shape) < rng.choice([0.0, 0.1, 1.0])
    seen.values[spots] = rng.choice(odd, spots.sum())
    seen.landmark[:] = rng.integers(-1, k, n)
    seen.cost_s[:] = rng.uniform(size=(n, k))
    seen.in_flight[:] = (rng.uniform(size=n) < 0.3) & ~seen.complete
    seen.failed[:] = (rng.uniform(size=n) < 0.2) & ~seen.complete & ~seen.in_flight
    seen.size_hint[:] = rng.choice([np.nan, 1.0, 2.0, np.inf], n)
    seen.n_workers, seen.seq = int(rng.integers(1, 4)), int(rng.integers(0, 99))
    return seen, seen.mask & (rng.uniform(size=n) < rng.choice([0.5, 1.0]))


@every_policy
def test_other_seeds_do_not_change_a_policy_without_chance(name: str) -> None:
    values = table(12, 4, 2)
    runs = [play(policies.make(name, seed=s), values).landmark.tolist() for s in (1, 1, 2)]
    assert runs[0] == runs[1]
    if name != "random" and name not in ENDLESS:
        assert runs[0] == runs[2]


# --- single promises -----------------------------------------------------------------------------


def order_of(name: str, n: int = 8, seed: int = 0, sizes: Floats | None = None) -> list[int]:
    """Trials in the order of their first landmark, one worker."""
    policy = policies.make(name, seed=seed)
    seen = Observation.empty(n, np.array([0.0, 1.0]), 1, sizes)
    order: list[int] = []
    while (action := policy.propose(seen, seen.mask)) >= 0:
        if seen.landmark[action] < 0:
            order.append(action)
        seen.landmark[action] += 1
        seen.seq += 1
        seen.values[action, seen.landmark[action]] = 1.0
    return order


def test_orders() -> None:
    assert order_of("exhaustive") == list(range(8))
    assert order_of("random", seed=1) != order_of("random", seed=2)
    assert sorted(order_of("random")) == list(range(8))
    sizes = np.array([5.0, np.nan, 1.0, 3.0, 1.0, np.nan, 0.0, 9.0])
    order = order_of("smallest-first", sizes=sizes)
    assert order[0] == 6
    assert set(order[1:3]) == {2, 4}
    assert order[3:6] == [3, 0, 7]
    assert set(order[6:]) == {1, 5}
    ties = {tuple(order_of("smallest-first", sizes=np.ones(8), seed=s)) for s in range(5)}
    assert len(ties) == 5, "ties are decided by the order of the pool"


def test_round_robin_goes_breadth_first() -> None:
    policy = policies.make("round-robin")
    seen = Observation.empty(5, np.linspace(0, 1, 3), 1)
    for _ in range(15):
        action = policy.propose(seen, seen.mask)
        assert seen.landmark[action] == seen.landmark.min()
        seen.landmark[action] += 1
    assert policy.propose(seen, seen.mask) == STOP


def test_front_racing_stops_by_itself_and_saves_work() -> None:
    values = table(60, 6, 2, seed=4)
    seen = play(policies.make("front-racing"), values)
    assert (seen.landmark + 1).sum() < 0.8 * values.shape[0] * values.shape[1]
    front = np.flatnonzero(pareto.is_nondominated(values[:, -1]))
    found = seen.complete[front].mean()
    assert found > 0.5
    narrow = play(policies.make("front-racing(depth=0)"), values)
    assert narrow.landmark.sum() < seen.landmark.sum()
    everything = play(policies.make("front-racing(depth=1000)"), values)
    assert everything.complete.all()


def late_bloomer() -> Floats:
    """Twelve curves; number 11 is worst at every landmark but the last, where it is best."""
    n, k = 12, 5
    quality = np.linspace(0.1, 0.9, n)
    values = np.empty((n, k, 2))
    values[:, :, 0] = quality[:, None] + np.linspace(1, 0, k)
    values[:, :, 1] = quality[:, None]
    values[11, :-1] = 5.0
    values[11, -1] = 0.0
    return values


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_halving_admits_again_what_it_left_behind(workers: int) -> None:
    """Plain halving would never see the last landmark of the late bloomer."""
    values = late_bloomer()
    patient = play(policies.make("mo-successive-halving(patience=1000)"), values, workers=workers)
    assert patient.complete[11]
    hasty = play(policies.make("mo-successive-halving(patience=0)"), values, workers=workers)
    assert not hasty.complete[11]
    assert hasty.complete[0]
    assert hasty.landmark.sum() < 0.5 * values.shape[0] * values.shape[1]


def test_halving_promotes_a_share_of_each_rung() -> None:
    """Before anything is admitted again, rung j holds n / eta^j trials."""
    values = table(16, 5, 2)
    policy = policies.make("mo-successive-halving")
    seen = Observation.empty(16, np.linspace(0, 1, 5), 2)
    while not seen.complete.any():
        action = policy.propose(seen, seen.mask)
        seen.landmark[action] += 1
        seen.values[action, seen.landmark[action]] = values[action, seen.landmark[action]]
        seen.seq += 1
    assert [int((seen.landmark >= j).sum()) for j in range(5)] == [16, 8, 4, 2, 1]


@pytest.mark.parametrize("eta", ["1.5", "2", "3", "4.0"])
def test_halving_with_other_shares_ends(eta: str) -> None:
    assert play(policies.make(f"mo-successive-halving(eta={eta})"), table(30, 4, 2)).complete.any()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mo-successive-halving(eta=1)", "eta is 1, expected more than 1"),
        ("mo-successive-halving(eta=-2)", "eta is -2"),
        ("mo-successive-halving(patience=-1)", "patience is -1, expected 0 or more"),
        ("front-racing(depth=-1)", "depth is -1, expected 0 or more"),
        ("front-racing(width=1)", "width"),
        ("front-racing(depth)", "'depth' is not of the form name=number"),
        ("front-racing(depth=two)", "'depth=two' is not of the form name=number"),
        ("front-racing(depth=1", "lacks its closing bracket"),
        ("exhaustive(depth=1)", "depth"),
    ],
)
def test_bad_options_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        policies.make(text)
    assert "\n" not in str(caught.value)


def test_unknown_policies_are_refused_with_a_hint() -> None:
    with pytest.raises(UnknownMethod, match="Did you mean 'front-racing'"):
        policies.make("front-racin")


@every_policy
def test_every_policy_says_what_it_is(name: str) -> None:
    cls = policies.load(name)
    assert cls.name == name
    assert cls.summary
    assert cls.version
    assert policies.DEFAULT in NAMES


# --- the observation -----------------------------------------------------------------------------


def test_ranks_compare_equals_with_equals() -> None:
    seen = Observation.empty(3, np.linspace(0, 1, 3), 1)
    seen.values[0] = [[3.0], [2.0], [1.0]]
    seen.values[1, 0] = 2.0
    seen.landmark[:] = [2, 0, -1]
    # At its own landmark 0, trial 1 beats trial 0; trial 0 stands at 2, where trial 1 counts with
    # its last value.
    assert seen.ranks_at_own_level().tolist() == [0, 0, -1]
    assert seen.values_at(1)[:, 0].tolist()[:2] == [2.0, 2.0]
    assert np.isnan(seen.values_at(1)[2, 0])
    assert seen.last_values()[:2, 0].tolist() == [1.0, 2.0]


def test_digests_tell_observations_apart() -> None:
    seen = Observation.empty(3, np.linspace(0, 1, 3), 2)
    digests = {seen.digest()}
    for change in changes(seen):
        change()
        assert seen.digest() not in digests
        digests.add(seen.digest())


def changes(seen: Observation) -> Iterator[Callable[[], None]]:
    yield lambda: seen.values.__setitem__((0, 0, 0), 1.0)
    yield lambda: seen.cost_s.__setitem__((0, 0), 1.0)
    yield lambda: seen.landmark.__setitem__(0, 0)
    yield lambda: seen.in_flight.__setitem__(1, True)
    yield lambda: seen.failed.__setitem__(2, True)
    yield lambda: setattr(seen, "seq", 1)
    yield lambda: setattr(seen, "n_workers", 2)
    yield lambda: setattr(seen, "budget_used", 0.5)


# --- speed ---------------------------------------------------------------------------------------


@every_policy
@pytest.mark.parametrize(("n", "limit_ms"), [(100, 5.0), (1000, 50.0)])
def test_decisions_are_quick(name: str, n: int, limit_ms: float) -> None:
    """The promise is the limit; the test allows four times that, for busy machines."""
    values = table(n, 6, 3, seed=1)
    policy = policies.make(name)
    rng = np.random.default_rng(0)
    seen = Observation.empty(n, np.linspace(0, 1, 6), 3, rng.uniform(size=n))
    seconds = []
    for share in np.linspace(0, 1, 15):
        seen.landmark[:] = np.minimum(rng.integers(0, 6, n), 5 * share + 1)
        known = np.arange(6)[None, :] <= seen.landmark[:, None]
        seen.values[:] = np.where(known[..., None], values, np.nan)
        seen.cost_s[:] = np.where(known, 1.0, np.nan)
        started = time.perf_counter()
        policy.propose(seen, seen.mask)
        seconds.append(time.perf_counter() - started)
    median_ms = 1e3 * float(np.median(seconds))
    print(f"{name}: {median_ms:.2f} ms a decision at {n} trials (promised {limit_ms:g})")
    assert median_ms < 4 * limit_ms
