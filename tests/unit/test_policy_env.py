"""The replay environment against the live features, the simulator and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from numpy.typing import NDArray

from lamps import pareto
from lamps.policy import Observation
from lamps.policy.env import ReplayEnv
from lamps.policy.episodes import N_SAMPLES, Episodes, make_episodes, regret_weight
from lamps.policy.features import (
    OBJECTIVE_FEATURES,
    POOL_FEATURES,
    TRIAL_FEATURES,
    extrapolations,
    features,
    state_of,
)
from lamps.policy.gym import LandmarkEnv, LandmarkVectorEnv
from lamps.policy.synthetic import synthetic_episodes


def made_up(seed: int, count: int, n: int = 9, k: int = 6, m: int = 2) -> Episodes:
    return synthetic_episodes(np.random.default_rng(seed), count, n, k, m)


def environment(seed: int, n: int, m: int, slots: int = 6) -> ReplayEnv:
    rng = np.random.default_rng(seed)
    return ReplayEnv(lambda c: synthetic_episodes(rng, c, n, 7, m), slots, seed=seed)


def any_action(env: ReplayEnv, rng: np.random.Generator) -> NDArray[np.int64]:
    """A random legal action; stop only where nothing else is legal."""
    mask = env.mask()
    mask[:, -1] &= ~mask[:, :-1].any(axis=1)
    return (rng.random(mask.shape) * mask).argmax(axis=1)


def observation(env: ReplayEnv, slot: int) -> Observation:
    """What a live search would see of a slot."""
    s, e = env.state, env.episodes
    there = s.present[slot]
    levels = int(s.n_landmarks[slot])
    seen = Observation.empty(
        int(there.sum()),
        e.fidelities[slot, :levels].astype(float),
        env.m,
        e.size[slot, there].astype(float),
    )
    seen.landmark[:] = s.landmark[slot, there]
    seen.in_flight[:] = s.in_flight[slot, there]
    seen.failed[:] = s.failed[slot, there]
    seen.n_workers = int(s.n_workers[slot])
    known = np.arange(levels) <= seen.landmark[:, None]
    seen.values[:] = np.where(known[..., None], e.values[slot, there, :levels], np.nan)
    seen.cost_s[:] = np.where(known, e.cost_s[slot, there, :levels], np.nan)
    return seen


@pytest.mark.parametrize(("n", "m"), [(12, 2), (9, 3), (16, 1)])
def test_training_sees_what_a_live_search_sees(n: int, m: int) -> None:
    env, rng = environment(n, n, m), np.random.default_rng(0)
    # Ratios of costs that tie up to rounding, and residuals of a fit to float32 values.
    loose = {"cheaper": 0.2, "spread": 0.05} | dict.fromkeys(
        ("volume", "volume_hope", "volume_per_cost", "novelty", "novelty_hope"), 0.05
    )
    for _ in range(120):
        env.step(any_action(env, rng))
        together = env.observe()
        for slot in range(env.n_envs):
            alone = features(state_of(observation(env, slot)))
            there = env.state.present[slot]
            for i, name in enumerate(TRIAL_FEATURES):
                a, b = alone.trials[i, 0], together.trials[i, slot, there]
                assert np.abs(a - b).max() <= loose.get(name, 2e-3), name
            for i, name in enumerate(OBJECTIVE_FEATURES):
                a, b = alone.objectives[i, :, 0], together.objectives[i, :, slot][:, there]
                assert np.abs(a - b).max() <= loose.get(name, 2e-3), name
            for i, name in enumerate(POOL_FEATURES):
                assert abs(alone.pool[i, 0] - together.pool[i, slot]) < 2e-3, name


def test_features_are_finite_and_small() -> None:
    env, rng = environment(3, 24, 3, slots=32), np.random.default_rng(1)
    for _ in range(200):
        env.step(any_action(env, rng))
        seen = env.observe()
        for part in (seen.objectives, seen.trials, seen.pool):
            assert np.isfinite(part).all()
            assert np.abs(part).max() <= 10


def test_permuting_trials_permutes_features() -> None:
    env, rng = environment(5, 10, 2), np.random.default_rng(2)
    for _ in range(40):
        env.step(any_action(env, rng))
    seen = observation(env, 0)
    order = rng.permutation(seen.n_trials)
    other = Observation(
        seen.values[order],
        seen.cost_s[order],
        seen.landmark[order],
        seen.in_flight[order],
        seen.failed[order],
        seen.size_hint[order],
        seen.fidelities,
        seen.n_workers,
    )
    a, b = features(state_of(seen)), features(state_of(other))
    np.testing.assert_allclose(a.trials[:, :, order], b.trials, atol=1e-6)
    np.testing.assert_allclose(a.objectives[..., order], b.objectives, atol=1e-6)
    np.testing.assert_allclose(a.pool, b.pool, atol=1e-6)


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e6])
def test_units_of_values_and_costs_do_not_matter(factor: float) -> None:
    env, rng = environment(6, 10, 2), np.random.default_rng(3)
    for _ in range(40):
        env.step(any_action(env, rng))
    seen = observation(env, 1)
    other = observation(env, 1)
    other.values *= factor
    other.cost_s *= 7 * factor
    a, b = features(state_of(seen)), features(state_of(other))
    np.testing.assert_allclose(a.objectives, b.objectives, atol=2e-3)
    np.testing.assert_allclose(a.trials, b.trials, atol=2e-2)


def test_a_power_law_is_extrapolated_to_its_end() -> None:
    x = np.array([0.0, 0.0625, 0.125, 0.25, 0.5, 1.0])
    y = 0.2 + 0.1 * (x + 1e-3) ** -0.5
    mean, spread = extrapolations(y[None], x)
    assert abs(mean[0, 4] - y[-1]) < 0.01
    assert mean[0, 0] == y[0]
    assert mean[0, 5] == pytest.approx(y[-1])
    assert (spread >= 0).all()


def test_a_curve_that_rises_is_expected_to_stay() -> None:
    mean, _ = extrapolations(np.array([[1.0, 1.1, 1.3, 1.2]]), np.array([0.1, 0.3, 0.6, 1.0]))
    assert (mean[0] >= np.array([1.0, 1.1, 1.3, 1.0])).all()


def test_covered_points_measure_the_hypervolume() -> None:
    block = made_up(4, 32, n=12)
    for e in range(len(block)):
        last = int(block.n_landmarks[e]) - 1
        final = block.values[e, block.present[e], last].astype(float)
        whole = np.isfinite(block.values[e, block.present[e], : last + 1]).all(axis=(1, 2))
        final = final[whole]
        if not len(final):
            continue
        span = np.ptp(final, axis=0)
        unit = (final - final.min(axis=0)) / (1.1 * np.where(span > 0, span, 1.0))
        exact = pareto.hypervolume(unit, np.ones(unit.shape[1]))
        assert block.optimum[e] / N_SAMPLES == pytest.approx(exact, abs=0.02)


def test_the_reward_adds_up_to_the_area_under_the_regret() -> None:
    """Two trials, one worker: the arithmetic can be done by hand."""
    values = np.array([[[[3.0, 1.0], [1.0, 1.0]], [[3.0, 2.0], [2.0, 2.0]]]])
    cost = np.array([[[1.0, 2.0], [1.0, 4.0]]])
    block = make_episodes(
        values,
        cost,
        np.array([[0.0, 1.0]]),
        np.array([2]),
        np.ones((1, 2), dtype=bool),
        np.full((1, 2), np.nan),
        np.ones((1, 2), dtype=np.int64),
        np.ones(1, dtype=np.int64),
    )
    env = ReplayEnv(lambda _: block, 1, linger=0.0, in_order=True, block=1)
    rewards = []
    for action in (0, 0):
        reward, ended, info = env.step(np.array([action]))
        rewards.append(float(reward[0]))
        assert not ended[0]
    # The first trial dominates the second, so it is all there is to find, after 3 s of full
    # regret. Without sizes the unit is a mean over orders: 3 s, or 3 + 5 s at a lower weight.
    assert 3.0 < block.scale[0] < 8.0
    assert sum(rewards) == pytest.approx(-3.0 / block.scale[0])
    assert info["regret"][0] == 0.0
    assert float(env.step(np.array([2]))[0][0]) == 0.0  # stopping with nothing missing is free


def complete_curves(seed: int, e: int = 8, n: int = 7, k: int = 5) -> Episodes:
    """Episodes of one worker in which nothing fails and costs grow with sizes."""
    rng = np.random.default_rng(seed)
    size = np.exp(rng.normal(size=(e, n)) * 2)
    return make_episodes(
        rng.random((e, n, k, 2)),
        size[..., None] * rng.uniform(0.9, 1.1, (1, 1, k)),
        np.tile(np.linspace(0, 1, k), (e, 1)),
        np.full(e, k),
        np.ones((e, n), dtype=bool),
        size,
        np.full((e, n), k - 1),
        np.ones(e, dtype=np.int64),
    )


def test_the_critics_rule_returns_what_following_it_returns() -> None:
    block = complete_curves(3)
    env = ReplayEnv(lambda _: block, 8, linger=0.0, in_order=True, block=8)
    rng = np.random.default_rng(0)
    for _ in range(9):  # from the middle of searches, not only from their start
        env.step(any_action(env, rng))
    promised, got = env.rule_to_go(), np.zeros(8)
    alive = np.ones(8, dtype=bool)
    while alive.any():
        s, e = env.state, env.episodes
        levels = np.arange(5)
        rest = np.where(levels > s.landmark[..., None], e.cost_s, 0).sum(axis=2)
        action = np.where(s.mask, rest, np.inf).argmin(axis=1)
        reward, ended, _ = env.step(action)
        got += np.where(alive, reward, 0)
        alive &= ~ended
    np.testing.assert_allclose(promised, got, rtol=1e-4, atol=1e-5)


def test_smallest_first_returns_minus_one() -> None:
    block = complete_curves(4)
    env = ReplayEnv(lambda _: block, 8, linger=0.0, in_order=True, block=8)
    np.testing.assert_allclose(env.rule_to_go(), -1.0, rtol=1e-5)


def test_stopping_early_costs_what_is_missing() -> None:
    block = made_up(8, 4)
    env = ReplayEnv(lambda _: block, 4, stop_cost=5.0, in_order=True, block=4)
    reward, ended, info = env.step(np.full(4, env.n))
    assert ended.all()
    np.testing.assert_allclose(reward, -5.0 * regret_weight(info["regret"]))


def test_a_failed_trial_costs_its_landmark_and_never_advances_again() -> None:
    values = np.array([[[[1.0, 1.0], [np.nan, 1.0]], [[2.0, 0.5], [2.0, 0.5]]]])
    block = make_episodes(
        values,
        np.ones((1, 2, 2)),
        np.array([[0.0, 1.0]]),
        np.array([2]),
        np.ones((1, 2), dtype=bool),
        np.full((1, 2), np.nan),
        np.ones((1, 2), dtype=np.int64),
        np.ones(1, dtype=np.int64),
    )
    env = ReplayEnv(lambda _: block, 1, linger=0.0, in_order=True, block=1)
    env.step(np.array([0]))
    _, _, info = env.step(np.array([0]))
    assert env.now[0] == 2.0
    assert env.state.failed[0, 0]
    assert not env.mask()[0, 0]
    assert info["regret"][0] == 1.0


def test_two_workers_decide_while_work_is_in_flight() -> None:
    block = made_up(9, 1, n=6)
    block.n_workers[:] = 2
    env = ReplayEnv(lambda _: block, 1, linger=0.0, in_order=True, block=1)
    env.step(np.array([0]))
    assert env.state.in_flight[0].sum() == 1
    assert env.now[0] == 0.0
    env.step(np.array([1]))
    assert env.state.in_flight[0].sum() == 1
    costs = block.cost_s[0, :2, 0]
    assert env.now[0] == pytest.approx(costs.min())


def test_gymnasium_accepts_the_environment() -> None:
    check_env(
        LandmarkEnv(lambda rng, c: synthetic_episodes(rng, c, 12, 6, 2)), skip_render_check=True
    )


def test_the_vectorised_environment_repeats_itself() -> None:
    def play() -> list[NDArray[np.float32]]:
        env = LandmarkVectorEnv(lambda rng, c: synthetic_episodes(rng, c, 8, 5, 2), 16)
        seen, _ = env.reset(seed=4)
        rng, rewards = np.random.default_rng(0), []
        for _ in range(30):
            mask = seen["mask"].astype(float)
            mask[:, -1] *= 0.01
            seen, reward, _, _, info = env.step((rng.random(mask.shape) * mask).argmax(axis=1))
            assert not info["illegal"].any()
            rewards.append(reward)
        assert env.observation_space.contains(
            {k: v.astype(env.observation_space[k].dtype) for k, v in seen.items()}
        )
        return rewards

    for a, b in zip(play(), play(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_illegal_action_ends_the_search_and_says_so() -> None:
    env = LandmarkEnv(lambda rng, c: synthetic_episodes(rng, c, 4, 3, 2))
    with pytest.raises(RuntimeError, match="before reset"):
        env.step(np.int64(0))
    env.reset(seed=0)
    ended = False
    for _ in range(20):
        if ended:
            break
        _, reward, ended, _, info = env.step(np.int64(0))
    assert ended
    assert info["illegal"]
    assert reward <= 0
