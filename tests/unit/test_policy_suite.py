"""The conformance suite of policies catches those that break their promises."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
from numpy.typing import NDArray

from lamps.errors import UnknownMethod
from lamps.policy import STOP, WAIT, Observation, Policy, Pool
from lamps.testing.policies import CHECKS, PolicySuite, check_policy
from lamps.testing.pools import Curves, play

Mask = NDArray[np.bool_]


class Honest(Policy):
    """The first that may advance; the mutants below differ in one thing each."""

    name = "honest"
    summary = "the first trial that may advance"

    def propose(self, observation: Observation, mask: Mask) -> int:
        if mask.any():
            return int(np.argmax(mask))
        return WAIT if observation.in_flight.any() else STOP


class IgnoresMask(Honest):
    def propose(self, observation: Observation, mask: Mask) -> int:
        return 0


class WaitsForNothing(Honest):
    def propose(self, observation: Observation, mask: Mask) -> int:
        return WAIT


class StopsAtOnce(Honest):
    def propose(self, observation: Observation, mask: Mask) -> int:
        return STOP


class Writes(Honest):
    def propose(self, observation: Observation, mask: Mask) -> int:
        answer = super().propose(observation, mask)
        observation.values[0] = 0.0
        return answer


class WritesToMask(Honest):
    def propose(self, observation: Observation, mask: Mask) -> int:
        answer = super().propose(observation, mask)
        mask[:] = False
        return answer


class Counts(Honest):
    """Remembers how often it was asked."""

    asked = 0

    def propose(self, observation: Observation, mask: Mask) -> int:
        self.asked += 1
        free = np.flatnonzero(mask)
        return (
            int(free[self.asked % len(free)]) if len(free) else super().propose(observation, mask)
        )


class GlobalDice(Honest):
    def propose(self, observation: Observation, mask: Mask) -> int:
        free = np.flatnonzero(mask)
        return random.choice(free.tolist()) if len(free) else super().propose(observation, mask)


class NumpyAnswers(Honest):
    def propose(self, observation: Observation, mask: Mask) -> int:
        return np.argmax(mask) if mask.any() else super().propose(observation, mask)  # type: ignore[return-value]


class ClaimsSymmetry(Honest):
    equivariant = True


class Nameless(Honest):
    summary = " "


class Afraid(Honest):
    """Cannot bear a NaN."""

    def propose(self, observation: Observation, mask: Mask) -> int:
        if not np.isfinite(observation.last_values()[observation.landmark >= 0]).all():
            raise ValueError("not finite")
        return super().propose(observation, mask)


class Slow(Honest):
    def propose(self, observation: Observation, mask: Mask) -> int:
        began = time.process_time()
        while time.process_time() - began < 0.008:
            pass
        return super().propose(observation, mask)


class Unpicklable(Honest):
    def __init__(self, *, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.rule = lambda mask: int(np.argmax(mask))


class HashOrder(Honest):
    """Decides by the order of a set of texts, which differs between processes."""

    def prepare(self, pool: Pool) -> None:
        self.order = [pool.labels.index(label) for label in set(pool.labels)]

    def propose(self, observation: Observation, mask: Mask) -> int:
        free = [i for i in self.order if mask[i]]
        return free[0] if free else super().propose(observation, mask)


def failures(cls: type[Policy], pattern: str = "") -> set[str]:
    results = check_policy(lambda seed: cls(seed=seed), on_failure="collect", pattern=pattern)
    return {r.name for r in results if r.outcome == "failed"}


def test_an_honest_policy_passes() -> None:
    assert failures(Honest) == set()


@pytest.mark.parametrize(
    ("cls", "check"),
    [
        (IgnoresMask, "check_any_observation_gets_a_legal_answer"),
        (WaitsForNothing, "check_searches_end"),
        (StopsAtOnce, "check_searches_end"),
        (Writes, "check_any_observation_gets_a_legal_answer"),
        (WritesToMask, "check_any_pool_size"),
        (Counts, "check_it_is_a_function_of_what_it_sees"),
        (Counts, "check_resume_decides_alike"),
        (GlobalDice, "check_global_seeds_are_untouched"),
        (NumpyAnswers, "check_any_pool_size"),
        (ClaimsSymmetry, "check_another_order_of_the_pool"),
        (Nameless, "check_says_what_it_is"),
        (Afraid, "check_any_observation_gets_a_legal_answer"),
        (Slow, "check_decisions_are_quick"),
        (Unpicklable, "check_it_is_a_function_of_what_it_sees"),
        (HashOrder, "check_another_process_gives_the_same_answers"),
    ],
)
def test_a_broken_promise_is_noticed(cls: type[Policy], check: str) -> None:
    assert failures(cls, check) == {check}


def test_the_first_failure_is_raised_with_its_name() -> None:
    with pytest.raises(AssertionError, match="honest: check_searches_end failed: AssertionError"):
        check_policy(lambda seed: StopsAtOnce(seed=seed), pattern="searches_end")


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownMethod, match="no policy 'nobody'"):
        check_policy("nobody")


def test_the_suite_has_a_test_for_every_check() -> None:
    tests = {name.removeprefix("test_") for name in dir(PolicySuite) if name.startswith("test_")}
    assert tests == {check.__name__.removeprefix("check_") for check in CHECKS}
    with pytest.raises(NotImplementedError, match="PolicySuite does not say"):
        PolicySuite().make_policy(0)


# --- made-up pools -------------------------------------------------------------------------------


def test_all_front_pools_are_all_front() -> None:
    from lamps import pareto

    for m in (1, 2, 5):
        curves = Curves.falling(9, 4, m, front=True)
        for level in range(4):
            assert pareto.is_nondominated(curves.values[:, level]).all()


def test_played_searches_record_what_happened() -> None:
    curves = Curves.falling(6, 3, 2, seed=0, failing=0.5)
    played = play(lambda seed: Honest(seed=seed), curves, workers=2)
    sound = curves.fails_at == 3
    assert np.array_equal(played.seen.complete, sound)
    assert np.array_equal(played.seen.failed, ~sound)
    assert len(played.started) == np.minimum(curves.fails_at + 1, 3).sum()
    np.testing.assert_array_equal(played.seen.values[sound], curves.values[sound])
