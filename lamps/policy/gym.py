"""The replay environment with the Gymnasium API, single and vectorised, for anybody's agent.

An observation is a dictionary of arrays for one pool: ``objectives`` [F, m, n], ``trials`` [F, n],
``pool`` [F] (see `lamps.policy.features`) and ``mask`` [n + 1] of legal actions; the last action
is *stop*. An illegal action ends the episode with the reward of a stop, so that random agents and
`check_env` work; ``info["illegal"]`` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from lamps.policy.env import ReplayEnv
from lamps.policy.episodes import Episodes
from lamps.policy.features import OBJECTIVE_FEATURES, POOL_FEATURES, TRIAL_FEATURES

Generate = Callable[[np.random.Generator, int], Episodes]
"""Draws a number of episodes of one shape."""
Observed = dict[str, Any]


def _space(n: int, m: int) -> spaces.Dict:
    def box(*shape: int) -> spaces.Box:
        return spaces.Box(-10.0, 10.0, shape, np.float32)

    return spaces.Dict(
        {
            "objectives": box(len(OBJECTIVE_FEATURES), m, n),
            "trials": box(len(TRIAL_FEATURES), n),
            "pool": box(len(POOL_FEATURES)),
            "mask": spaces.MultiBinary(n + 1),
        }
    )


def _observed(env: ReplayEnv) -> Observed:
    """All pools, the axis of pools first."""
    seen = env.observe()
    return {
        "objectives": np.moveaxis(seen.objectives, 2, 0),
        "trials": np.moveaxis(seen.trials, 1, 0),
        "pool": seen.pool.T,
        "mask": env.mask().astype(np.int8),
    }


def _legal(env: ReplayEnv, actions: NDArray[np.int64]) -> NDArray[np.bool_]:
    legal: NDArray[np.bool_] = env.mask()[np.arange(env.n_envs), actions]
    return legal


class LandmarkEnv(gymnasium.Env[dict[str, Any], np.int64]):
    """One search at a time.

    Args:
        generate: Draws episodes, such as `lamps.policy.synthetic.synthetic_episodes` with its
            shape filled in.
        stop_cost: See `lamps.policy.env.ReplayEnv`.
    """

    def __init__(self, generate: Generate, *, stop_cost: float = 5.0) -> None:
        self.metadata = {"render_modes": []}
        self._generate, self._stop_cost = generate, stop_cost
        shape = generate(np.random.default_rng(0), 1).values.shape
        self.observation_space = _space(shape[1], shape[3])
        self.action_space = spaces.Discrete(shape[1] + 1)
        self._env: ReplayEnv | None = None
        self._seen: Observed | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observed, dict[str, Any]]:
        """Begin a new search."""
        super().reset(seed=seed)
        self._env = ReplayEnv(
            lambda count: self._generate(self.np_random, count),
            1,
            stop_cost=self._stop_cost,
            linger=0.0,
            block=1,
        )
        self._seen = {k: v[0] for k, v in _observed(self._env).items()}
        return {k: v.copy() for k, v in self._seen.items()}, {}

    def step(self, action: np.int64) -> tuple[Observed, float, bool, bool, dict[str, Any]]:
        """Advance a trial, or stop."""
        if self._env is None:
            raise RuntimeError("step() before reset()")
        wanted = np.array([int(action)])
        legal = _legal(self._env, wanted)
        taken = np.where(legal, wanted, self._env.n)
        reward, ended, info = self._env.step(taken)
        told = {"regret": float(info["regret"][0]), "illegal": not bool(legal[0])}
        # The core has begun the next search already; this one's last observation stays.
        if not ended[0]:
            self._seen = {k: v[0] for k, v in _observed(self._env).items()}
        assert self._seen is not None
        seen = {k: v.copy() for k, v in self._seen.items()}
        return seen, float(reward[0]), bool(ended[0]), False, told


class LandmarkVectorEnv(VectorEnv[dict[str, Any], NDArray[np.int64], NDArray[Any]]):
    """Hundreds of searches at once; a slot whose search ended holds the next one in the same step.

    Args:
        generate: As for `LandmarkEnv`.
        num_envs: Slots.
        seed: Of the episodes.
        stop_cost: As for `LandmarkEnv`.
    """

    def __init__(
        self, generate: Generate, num_envs: int, *, seed: int = 0, stop_cost: float = 5.0
    ) -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self._generate, self._stop_cost, self._first_seed = generate, stop_cost, seed
        self.num_envs = num_envs
        shape = generate(np.random.default_rng(0), 1).values.shape
        self.single_observation_space = _space(shape[1], shape[3])
        self.single_action_space = spaces.Discrete(shape[1] + 1)
        self.observation_space = gymnasium.vector.utils.batch_space(
            self.single_observation_space, num_envs
        )
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self._env: ReplayEnv | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observed, dict[str, Any]]:
        """Begin new searches in all slots."""
        rng = np.random.default_rng(self._first_seed if seed is None else seed)
        self._env = ReplayEnv(
            lambda count: self._generate(rng, count),
            self.num_envs,
            stop_cost=self._stop_cost,
            seed=int(rng.integers(2**31)),
        )
        return _observed(self._env), {}

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[Observed, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Act in every slot."""
        if self._env is None:
            raise RuntimeError("step() before reset()")
        actions = np.asarray(actions)
        legal = _legal(self._env, actions)
        reward, ended, info = self._env.step(np.where(legal, actions, self._env.n))
        info["illegal"] = ~legal
        return _observed(self._env), reward, ended, np.zeros_like(ended), info
