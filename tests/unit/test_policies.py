"""What holds for every allocation policy, and what only some of them promise."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamps import pareto
from lamps import policy as policies
from lamps.errors import ConfigError, UnknownMethod
from lamps.pareto import Floats
from lamps.policy import STOP, WAIT, Hindsight, Observation, Policy, Pool
from lamps.testing.policies import PolicySuite
from lamps.types import Candidate

NAMES = policies.names()
ENDLESS = ["exhaustive", "random", "smallest-first", "round-robin"]
ENDLESS += [name for name in NAMES if name.startswith("optuna:")]
HASTY = ["mo-asha", "hyperband"]  # throw losers away for good, as their papers do
every_policy = pytest.mark.parametrize("name", NAMES)


class TestEveryPolicy(PolicySuite):
    """The conformance suite for all that is shipped; the oracle gets its hindsight from there."""

    @pytest.fixture(autouse=True, params=NAMES)
    def _named(self, request: pytest.FixtureRequest) -> None:
        self.name = request.param

    def make_policy(self, seed: int) -> Policy:
        return policies.make(self.name, seed=seed)


def table(n: int, k: int, m: int, seed: int = 0) -> Floats:
    """Falling curves that mostly keep their order. Shape: [n, k, m]."""
    rng = np.random.default_rng(seed)
    end = rng.uniform(0, 1, (n, 1, m))
    start = 1 + end + 0.2 * rng.uniform(size=(n, 1, m))
    share = np.linspace(0, 1, k)[None, :, None]
    return end + (start - end) * (1 - share) ** 2


def pool_of(values: Floats, failing: frozenset[int] = frozenset()) -> Pool:
    """What a policy is shown of recorded curves; those of ``failing`` end with landmark 0."""
    n, k, _ = values.shape
    known = values.astype(float)
    known[list(failing), 1:] = np.nan
    candidates = tuple(Candidate("replay", "curve-replay", {"curve": str(i)}) for i in range(n))
    return Pool(tuple(c.label for c in candidates), candidates, Hindsight(known, np.ones((n, k))))


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
    policy.prepare(pool_of(values, failing))
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
    elif len(failing) < n or k == 1:
        assert seen.complete.any(), "nothing was finished"


@pytest.mark.parametrize("name", [name for name in NAMES if name not in HASTY])
@pytest.mark.parametrize("m", [1, 2, 6])
def test_a_pool_that_is_all_front_is_finished(name: str, m: int) -> None:
    """No candidate can be spared where each is best at something."""
    if name in ("ehvi", "lamps") and m == 1:
        pytest.skip("copies of a finished trial add no volume")
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
def test_failed_trials_stand_in_nobodys_way(name: str) -> None:
    """The best at the first landmark fails; what it dominated there must get its chance."""
    values = np.repeat(np.arange(6.0)[:, None, None], 4, axis=1)
    seen = play(policies.make(name), values, failing=frozenset(range(4)))
    assert seen.complete[4]


@every_policy
def test_other_seeds_do_not_change_a_policy_without_chance(name: str) -> None:
    values = table(12, 4, 2)
    runs = [play(policies.make(name, seed=s), values).landmark.tolist() for s in (1, 1, 2)]
    assert runs[0] == runs[1]
    if name not in [*ENDLESS, *HASTY]:
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
        ("front-racing(depth=two)", "'depth=two' is not of the form depth=number"),
        ("front-racing(dept=2)", "no option 'dept'. Known: depth, first. Did you mean 'depth'"),
        ("front-racing(seed=2)", "no option 'seed'"),
        ("front-racing(", "lacks its closing bracket"),
        ("extrapolate(kind=2)", "'kind=2' is not of the form kind=word"),
        ("extrapolate(kind=cubic)", "kind is 'cubic', expected one of power, rectified"),
        ("extrapolate(first=-1)", "first is -1, expected 1 or more"),
        ("extrapolate(doubt=nan)", "doubt is nan, expected a number of spreads"),
        ("ehvi(kind=cubic)", "kind is 'cubic'"),
        ("ehvi(first=-1)", "first is -1"),
        ("ehvi(gain=1)", "gain is 1, expected a share in"),
        ("mo-asha(eta=1)", "eta is 1, expected more than 1"),
        ("mo-asha(eta=inf)", "eta is inf, expected more than 1"),
        ("mo-asha(readmit=2)", "readmit is 2, expected 0 or 1"),
        ("hyperband(eta=0.5)", "eta is 0.5"),
        ("oracle(zero_shot=3)", "zero_shot is 3, expected 0 or 1"),
        ("optuna:tpe(eta=3)", "no option 'eta'"),
        ("front-racing(depth=1", "lacks its closing bracket"),
        ("exhaustive(depth=1)", "depth"),
    ],
)
def test_bad_options_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        policies.make(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("front-racin", "front-racing"),
        ("optuna:tp", "optuna:tpe"),
        ("optuna:nsga", "optuna:nsga2"),
    ],
)
def test_unknown_policies_are_refused_with_a_hint(text: str, meant: str) -> None:
    with pytest.raises(UnknownMethod, match=f"Did you mean '{meant}'"):
        policies.make(text)


def test_options_are_numbers_or_words() -> None:
    rule = policies.make("extrapolate(first=3, kind=power, doubt=0.25)", seed=7)
    assert (rule.first, rule.kind, rule.doubt, rule.seed) == (3, "power", 0.25, 7)  # type: ignore[attr-defined]


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
