"""What every allocation policy promises, as checks for their authors.

Two doors to the same checks: subclass `PolicySuite` in a test module and inherit its tests, or
call `check_policy`. Searches are played on made-up pools with simulated workers; each answer is
checked on the way.
"""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np

from lamps import policy as policies
from lamps.errors import ContractError, LampsWarning
from lamps.policy import Policy
from lamps.testing.pools import Curves, Make, any_observation, decide, play, prepared
from lamps.testing.runner import Result

LIMITS_MS = {100: 5.0, 1000: 50.0}
"""What a decision may take, by the size of the pool."""


# --- checks --------------------------------------------------------------------------------------


def check_says_what_it_is(make: Make) -> None:
    """Name, version and summary are there, and a seed is kept."""
    policy = make(3)
    for part in ("name", "version", "summary"):
        text = getattr(policy, part, None)
        assert isinstance(text, str), f"{part} is {text!r}, expected a text"
        assert text.strip() == text != "", f"{part} is {text!r}, expected a text without margins"
    assert policy.seed == 3


def check_any_observation_gets_a_legal_answer(make: Make) -> None:
    """Random states, reachable or not, with NaN and infinities among the values."""
    for seed in range(60):
        pool, seen, mask = any_observation(seed)
        decide(prepared(make, seed, pool), seen, mask)


def check_any_pool_size(make: Make) -> None:
    """From one trial to two thousand, untouched, half way and near the end."""
    for n in (1, 2, 3, 30, 500, 2000):
        curves = Curves.falling(n, 6, 2, seed=n, failing=0.05)
        policy = prepared(make, 0, curves.pool())
        rng = np.random.default_rng(n)
        for landmark in (
            np.full(n, -1),
            rng.integers(-1, 6, n),
            np.where(rng.random(n) < 0.9, 5, 4),
        ):
            seen = curves.at(landmark)
            decide(policy, seen, seen.mask)


def check_searches_end(make: Make) -> None:
    """One objective to six, one worker to eight, with and without failures."""
    for case, (n, k, m, workers) in enumerate(
        (
            (1, 1, 1, 1),
            (1, 5, 2, 8),
            (2, 3, 6, 2),
            (7, 4, 3, 8),
            (9, 1, 2, 2),
            (12, 2, 5, 1),
            (16, 6, 1, 1),
            (24, 5, 4, 2),
            (40, 5, 2, 8),
        )
    ):
        for failing in (0.0, 0.4):
            curves = Curves.falling(n, k, m, seed=case, failing=failing)
            seen = play(make, curves, workers=workers, seed=case).seen
            assert not seen.in_flight.any()
            if not failing:
                assert seen.complete.any(), f"nothing of {n} sound trials was finished"


def check_a_pool_that_fails_altogether_ends(make: Make) -> None:
    """Nothing is left to be done where everything has failed."""
    for workers in (1, 2, 8):
        curves = Curves.falling(9, 4, 2, seed=workers)
        curves = replace(curves, fails_at=np.arange(9) % 3)
        seen = play(make, curves, workers=workers).seen
        assert not seen.complete.any()


def check_values_that_are_never_finite(make: Make) -> None:
    """A pool in which no objective is ever a finite number comes to an end like any other."""
    for bad in (np.nan, np.inf):
        curves = Curves.falling(6, 4, 2)
        play(make, replace(curves, values=np.full_like(curves.values, bad)))


def check_a_pool_that_is_all_front_ends(make: Make) -> None:
    """Every trial is on the front at every landmark; m = 1 makes them all equal."""
    for m in (1, 2, 5):
        curves = Curves.falling(8, 4, m, seed=m, front=True)
        for workers in (1, 3):
            assert play(make, curves, workers=workers).seen.complete.any()


def check_it_is_a_function_of_what_it_sees(make: Make) -> None:
    """The same answer twice, from a new policy, and from one that was pickled."""
    for seed in range(20):
        pool, seen, mask = any_observation(1000 + seed)
        policy = prepared(make, seed, pool)
        first = policy.propose(seen, mask)
        assert policy.propose(seen, mask) == first, "it answers otherwise when asked again"
        again = prepared(make, seed, pool)
        assert again.propose(seen, mask) == first, "a new policy answers otherwise"
        copy = pickle.loads(pickle.dumps(policy))
        assert copy.propose(seen, mask) == first, "a pickled policy answers otherwise"


_CHILD = """
import pickle, sys
path, cases = pickle.load(sys.stdin.buffer)
sys.path[:] = path
def answer(policy, pool, seen, mask):
    policy.prepare(pool)
    return policy.propose(seen, mask)
print([answer(*pickle.loads(case)) for case in cases])
"""


def check_another_process_gives_the_same_answers(make: Make) -> None:
    """Nothing depends on hashes of texts, on addresses, or on what was asked before."""
    cases, expected = [], []
    for seed in range(15):
        pool, seen, mask = any_observation(2000 + seed)
        # Not yet prepared: what `prepare` makes of the pool must not depend on the process either.
        cases.append(pickle.dumps((make(seed), pool, seen, mask)))
        expected.append(prepared(make, seed, pool).propose(seen, mask))
    other_hashes = "8" if os.environ.get("PYTHONHASHSEED") == "7" else "7"
    child = subprocess.run(
        [sys.executable, "-c", _CHILD],
        input=pickle.dumps((sys.path, cases)),
        capture_output=True,
        env={**os.environ, "PYTHONHASHSEED": other_hashes},
        check=False,
    )
    if child.returncode:
        last = child.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise ContractError(
            f"another process cannot run the policy: {' '.join(last)}; "
            "its class must be importable there"
        )
    assert child.stdout.decode().strip() == str(expected), "another process answers otherwise"


def check_resume_decides_alike(make: Make) -> None:
    """A search whose every decision is taken by a new policy takes the same decisions."""
    for workers, m in ((1, 2), (3, 3)):
        curves = Curves.falling(14, 5, m, seed=m, failing=0.15)
        whole = play(make, curves, workers=workers, seed=5)
        cut = play(make, curves, workers=workers, seed=5, fresh=True)
        assert whole.actions == cut.actions, "a resumed search decides otherwise"
        assert whole.seen.digest() == cut.seen.digest()


def check_another_order_of_the_pool(make: Make) -> None:
    """Where the policy claims it: a permuted pool gets the permuted decisions."""
    if not make(0).equivariant:
        return
    for workers, m in ((1, 2), (2, 3), (1, 1)):
        curves = Curves.falling(12, 5, m, seed=20 + m, failing=0.1)
        order = np.random.default_rng(m).permutation(12)
        plain = play(make, curves, workers=workers).started
        other = play(make, curves.permuted(order), workers=workers).started
        assert plain == [int(order[i]) for i in other], "the order of the pool decides"


def check_global_seeds_are_untouched(make: Make) -> None:
    """The generators of `random` and NumPy are left alone."""
    python, numpy = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
    play(make, Curves.falling(8, 4, 2), workers=2)
    assert random.getstate() == python, "the global generator of random has moved"
    now = np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
    assert now == numpy, "the global generator of NumPy has moved"


def decision_ms(make: Make, n: int, *, rounds: int = 5, limit_ms: float = 0.0) -> float:
    """Milliseconds of processor time that a decision takes in a pool of ``n``.

    The mean over states of a search that goes breadth first, and over the landmarks of one trial
    in a search that goes depth first; the slower of the two. Each state counts with the best of
    several rounds, since what a busy machine adds is not the policy's. Ends early once that is
    below ``limit_ms``.
    """
    curves = Curves.falling(n, 8, 3, seed=1)
    policy = prepared(make, 0, curves.pool())
    rng = np.random.default_rng(0)
    broad = [curves.at(rng.integers(low, low + 4, n)) for low in (1, 2, 3, 4)]
    landmark = np.where(rng.random(n) < 0.5, 7, -1)
    deep = []
    for level in range(-1, 7):
        landmark[0] = level
        deep.append(curves.at(landmark))
    policy.propose(deep[0], deep[0].mask)  # imports are not part of a decision
    best = np.full((2, 8), np.nan)
    for _ in range(rounds):
        for row, states in enumerate((broad, deep)):
            for column, seen in enumerate(states):
                mask = seen.mask
                began = time.process_time()
                policy.propose(seen, mask)
                took = 1e3 * (time.process_time() - began)
                best[row, column] = np.fmin(best[row, column], took)
        if np.nanmean(best, axis=1).max() < limit_ms:
            break
    return float(np.nanmean(best, axis=1).max())


def check_decisions_are_quick(make: Make) -> None:
    """Less than 5 ms among 100 trials, less than 50 ms among 1,000."""
    for n, limit_ms in LIMITS_MS.items():
        took = decision_ms(make, n, limit_ms=limit_ms)
        assert took < limit_ms, f"{took:.1f} ms a decision at {n} trials, promised {limit_ms:g}"


CHECKS: tuple[Callable[[Make], None], ...] = (
    check_says_what_it_is,
    check_any_observation_gets_a_legal_answer,
    check_any_pool_size,
    check_searches_end,
    check_a_pool_that_fails_altogether_ends,
    check_values_that_are_never_finite,
    check_a_pool_that_is_all_front_ends,
    check_it_is_a_function_of_what_it_sees,
    check_another_process_gives_the_same_answers,
    check_resume_decides_alike,
    check_another_order_of_the_pool,
    check_global_seeds_are_untouched,
    check_decisions_are_quick,
)


def _run(check: Callable[[Make], None], make: Make) -> None:
    """Run a check; what a policy has to say, such as that it falls back, is no failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LampsWarning)
        check(make)


def check_policy(
    policy: str | Make,
    *,
    on_failure: Literal["raise", "collect"] = "raise",
    pattern: str = "",
) -> list[Result]:
    """Check that a policy keeps the promises of `lamps.policy`.

    Args:
        policy: Name, with options in brackets if wanted, or a function of a seed that makes one.
        on_failure: ``raise`` an AssertionError at the first failure, or ``collect`` all results.
        pattern: Only checks whose name contains this.

    Returns:
        One result per check.

    Raises:
        AssertionError: A check failed.
        UnknownMethod: There is no policy of that name.

    Example:
        >>> {r.outcome for r in check_policy("round-robin", pattern="resume")}
        {'passed'}
    """
    make: Make = _by_name(policy) if isinstance(policy, str) else policy
    results = []
    for check in CHECKS:
        if pattern not in check.__name__:
            continue
        try:
            _run(check, make)
        except Exception as error:
            # A check fails by whatever the policy raises; the point is to tell, not to stop.
            text = " ".join(f"{type(error).__name__}: {error}".split())[:500]
            if on_failure == "raise":
                raise AssertionError(f"{make(0).name}: {check.__name__} failed: {text}") from error
            results.append(Result(check.__name__, "failed", text))
        else:
            results.append(Result(check.__name__, "passed"))
    return results


def _by_name(text: str) -> Make:
    policies.make(text)  # a wrong name is the caller's error, not a failed check

    def make(seed: int) -> Policy:
        return policies.make(text, seed=seed)

    return make


class PolicySuite:
    """The checks as tests: subclass it as ``class TestMine(PolicySuite)`` and say how to make one.

    Example:
        >>> class TestRoundRobin(PolicySuite):
        ...     def make_policy(self, seed: int) -> Policy:
        ...         return policies.make("round-robin", seed=seed)
    """

    def make_policy(self, seed: int) -> Policy:
        """A new policy with that seed."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to make its policy")

    def test_says_what_it_is(self) -> None:
        """See `check_says_what_it_is`."""
        _run(check_says_what_it_is, self.make_policy)

    def test_any_observation_gets_a_legal_answer(self) -> None:
        """See `check_any_observation_gets_a_legal_answer`."""
        _run(check_any_observation_gets_a_legal_answer, self.make_policy)

    def test_any_pool_size(self) -> None:
        """See `check_any_pool_size`."""
        _run(check_any_pool_size, self.make_policy)

    def test_searches_end(self) -> None:
        """See `check_searches_end`."""
        _run(check_searches_end, self.make_policy)

    def test_a_pool_that_fails_altogether_ends(self) -> None:
        """See `check_a_pool_that_fails_altogether_ends`."""
        _run(check_a_pool_that_fails_altogether_ends, self.make_policy)

    def test_values_that_are_never_finite(self) -> None:
        """See `check_values_that_are_never_finite`."""
        _run(check_values_that_are_never_finite, self.make_policy)

    def test_a_pool_that_is_all_front_ends(self) -> None:
        """See `check_a_pool_that_is_all_front_ends`."""
        _run(check_a_pool_that_is_all_front_ends, self.make_policy)

    def test_it_is_a_function_of_what_it_sees(self) -> None:
        """See `check_it_is_a_function_of_what_it_sees`."""
        _run(check_it_is_a_function_of_what_it_sees, self.make_policy)

    def test_another_process_gives_the_same_answers(self) -> None:
        """See `check_another_process_gives_the_same_answers`."""
        _run(check_another_process_gives_the_same_answers, self.make_policy)

    def test_resume_decides_alike(self) -> None:
        """See `check_resume_decides_alike`."""
        _run(check_resume_decides_alike, self.make_policy)

    def test_another_order_of_the_pool(self) -> None:
        """See `check_another_order_of_the_pool`."""
        _run(check_another_order_of_the_pool, self.make_policy)

    def test_global_seeds_are_untouched(self) -> None:
        """See `check_global_seeds_are_untouched`."""
        _run(check_global_seeds_are_untouched, self.make_policy)

    def test_decisions_are_quick(self) -> None:
        """See `check_decisions_are_quick`."""
        _run(check_decisions_are_quick, self.make_policy)
