"""Searches replayed by the hundred: what the learned policy is trained in.

One step is one decision. After it, time goes on until a worker is free and something may advance:
with ``W`` workers, decisions are taken while up to ``W - 1`` landmarks are in flight. Actions are
the trials and, last, *stop*. The reward of a step is minus the area under the weighted regret
(`lamps.policy.episodes.regret_weight`) of *finished* trials since the last step, in units of the
area of smallest-first; so a return of -1 is as good as that rule, whatever the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamps.policy.episodes import Episodes, gains, regret_weight
from lamps.policy.features import Array, Bits, Features, PoolState, features, number

Source = Callable[[int], Episodes]
"""Gives a number of fresh episodes."""


class ReplayEnv:
    """``B`` searches side by side; those that end begin anew with other episodes.

    Args:
        source: Where episodes come from; all of one shape.
        n_envs: ``B``.
        stop_cost: Weight of the regret that is left at a stop, in units of the rule's area.
        linger: Chance per step that a search ends once nothing is left to gain.
        block: Episodes to ask for at a time.
        in_order: The first ``B`` episodes go to the ``B`` slots one by one.
        seed: Of ``linger``.
    """

    def __init__(
        self,
        source: Source,
        n_envs: int,
        *,
        stop_cost: float = 5.0,
        linger: float = 0.1,
        block: int = 64,
        in_order: bool = False,
        seed: int = 0,
    ) -> None:
        self.source, self.n_envs = source, n_envs
        self.stop_cost, self.linger = stop_cost, linger
        self._block, self._rng = block, np.random.default_rng(seed)
        self._queue = source(block)
        self._at = 0
        order = np.arange(n_envs) if in_order else np.zeros(n_envs, dtype=np.int64)
        first = self._queue.take(order)
        self.episodes = first
        b, n, _, m = first.values.shape
        self.n, self.m = n, m
        zero = np.zeros((b, m, n), dtype=np.float32)
        line = np.zeros((b, n), dtype=np.float32)
        bits = np.zeros((b, m, n, -(-n // 8)), dtype=np.uint8)
        self.state = PoolState(
            present=first.present.copy(),
            landmark=np.full((b, n), -1),
            in_flight=np.zeros((b, n), dtype=bool),
            failed=np.zeros((b, n), dtype=bool),
            first=zero.copy(),
            previous=zero.copy(),
            last=zero.copy(),
            predicted=zero.copy(),
            spread=zero.copy(),
            better=bits.copy(),
            no_worse=bits.copy(),
            better_predicted=bits.copy(),
            no_worse_predicted=bits.copy(),
            fidelity=line.copy(),
            next_fidelity=line.copy(),
            first_cost=line.copy(),
            run_cost=line.copy(),
            first_fidelity=np.zeros(b, dtype=np.float32),
            n_landmarks=first.n_landmarks.copy(),
            size=line.copy(),
            n_workers=first.n_workers.copy(),
            budget_used=np.zeros(b, dtype=np.float32),
        )
        self.now = np.zeros(b)
        self.end = np.full((b, n), np.inf)
        self.covered = np.zeros((b, first.covers.shape[2]), dtype=np.uint64)
        self.regret = np.ones(b, dtype=np.float32)
        self._rows = np.arange(b)
        self._begin(self._rows)

    def _begin(self, which: NDArray[np.int64]) -> None:
        """Put fresh episodes into some slots."""
        for start in range(0, len(which), self._block):
            some = which[start : start + self._block]
            if self._at + len(some) > len(self._queue):
                self._queue, self._at = self.source(self._block), 0
            fresh = self._queue.take(np.arange(self._at, self._at + len(some)))
            self._at += len(some)
            for f in fields(Episodes):
                getattr(self.episodes, f.name)[some] = getattr(fresh, f.name)
        s, e = self.state, self.episodes
        s.present[which], s.n_landmarks[which] = e.present[which], e.n_landmarks[which]
        s.n_workers[which], s.size[which] = e.n_workers[which], e.size[which]
        s.landmark[which] = -1
        for array in (
            s.in_flight,
            s.failed,
            s.first,
            s.previous,
            s.last,
            s.predicted,
            s.spread,
            s.better,
            s.no_worse,
            s.better_predicted,
            s.no_worse_predicted,
            s.fidelity,
            s.first_cost,
            s.run_cost,
            s.budget_used,
        ):
            array[which] = 0
        s.first_fidelity[which] = e.fidelities[which, 0]
        s.next_fidelity[which] = e.fidelities[which, :1]
        self.now[which], self.end[which] = 0.0, np.inf
        self.covered[which], self.regret[which] = 0, 1.0

    def observe(self) -> Features:
        """Features of all pools."""
        return features(self.state)

    def mask(self) -> NDArray[np.bool_]:
        """[B, n + 1] bool: trials that may advance, and stop, which always may."""
        return np.concatenate([self.state.mask, np.ones((self.n_envs, 1), dtype=bool)], axis=1)

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[Array, NDArray[np.bool_], dict[str, NDArray[Any]]]:
        """Act in every pool.

        Args:
            actions: [B] index of a trial, or ``n`` to stop.

        Returns:
            [B] rewards, [B] whether the search has ended (the slot holds the next one already),
            and what there is to know: ``regret`` and ``elapsed`` at the end of the step.
        """
        s, e = self.state, self.episodes
        before = self.now.copy()
        area = np.zeros(self.n_envs)
        stopped = actions == self.n
        go = np.flatnonzero(~stopped)
        trial = actions[go]
        level = s.landmark[go, trial] + 1
        s.in_flight[go, trial] = True
        self.end[go, trial] = self.now[go] + e.cost_s[go, trial, level]
        while True:
            flights = number(s.in_flight)
            blocked = (flights >= s.n_workers) | ~s.mask.any(axis=1)
            land = np.flatnonzero((flights > 0) & (blocked | stopped))
            if not len(land):
                break
            first = self.end[land].argmin(axis=1)
            then = self.end[land, first]
            area[land] += regret_weight(self.regret[land]) * (then - self.now[land])
            self.now[land] = then
            self._land(land, first)
        ended = stopped | ~s.mask.any(axis=1)
        reward = -area / e.scale
        left = regret_weight(self.regret)
        reward -= np.where(stopped, self.stop_cost * left, 0.0)
        done_well = (self.regret <= 0) & (self._rng.random(self.n_envs) < self.linger)
        ended |= done_well
        info: dict[str, NDArray[Any]] = {
            "regret": self.regret.copy(),
            "elapsed": self.now - before,
            "now": self.now.copy(),
        }
        self._begin(np.flatnonzero(ended))
        return np.asarray(reward, dtype=np.float32), np.asarray(ended), info

    def _land(self, b: NDArray[np.int64], a: NDArray[np.int64]) -> None:
        """The landmarks of trials ``a`` in pools ``b`` have ended."""
        s, e = self.state, self.episodes
        level = s.landmark[b, a] + 1
        s.in_flight[b, a] = False
        self.end[b, a] = np.inf
        value = e.values[b, a, level]  # [x, m]
        seconds = e.cost_s[b, a, level]
        good = np.isfinite(value).all(axis=1)
        s.failed[b[~good], a[~good]] = True
        b, a, level, value = b[good], a[good], level[good], value[good]
        zero = level == 0
        # As in a live search, what a failed landmark cost is not part of the trial's curve.
        s.first_cost[b, a] += np.where(zero, seconds[good], 0)
        s.run_cost[b, a] += np.where(zero, 0, seconds[good])
        s.landmark[b, a] = level
        s.previous[b, :, a] = np.where(zero[:, None], value, s.last[b, :, a])
        s.first[b, :, a] = np.where(zero[:, None], value, s.first[b, :, a])
        s.last[b, :, a] = value
        s.predicted[b, :, a] = e.predicted[b, a, level]
        s.spread[b, :, a] = e.spread[b, a, level]
        s.fidelity[b, a] = e.fidelities[b, level]
        last = s.n_landmarks[b] - 1
        s.next_fidelity[b, a] = e.fidelities[b, np.minimum(level + 1, last)]
        self._compare(b, a, level, value)
        short = (level == e.limit[b, a]) & (level < last)
        s.failed[b[short], a[short]] = True  # nobody knows how this curve goes on
        finished = level == last
        b, a = b[finished], a[finished]
        self.covered[b] |= e.covers[b, a]
        have = np.bitwise_count(self.covered[b]).sum(axis=1, dtype=np.int64)
        self.regret[b] = 1.0 - have / np.maximum(e.optimum[b], 1)

    def _compare(
        self, b: NDArray[np.int64], a: NDArray[np.int64], level: NDArray[np.int64], value: Array
    ) -> None:
        """Bring all comparisons with trials ``a``, which have just landed, up to date."""
        s, e = self.state, self.episodes
        # Row a: all others as they stood at this landmark.
        at = np.clip(s.landmark[b], 0, level[:, None])  # [x, n]
        others = e.values[b[:, None], np.arange(self.n)[None, :], at].transpose(0, 2, 1)
        mine, last = value[:, :, None], s.last[b]
        s.better[b, :, a] = np.packbits(others < mine, axis=2)
        s.no_worse[b, :, a] = np.packbits(others <= mine, axis=2)
        # Column a: this trial at the landmarks of others that are as far; earlier ones stay.
        far = (s.landmark[b] >= level[:, None])[:, None]
        _set_bit(s.better, b, a, mine < last, far)
        _set_bit(s.no_worse, b, a, mine <= last, far)
        predicted = s.predicted[b]
        mine = s.predicted[b, :, a][:, :, None]
        s.better_predicted[b, :, a] = np.packbits(predicted < mine, axis=2)
        s.no_worse_predicted[b, :, a] = np.packbits(predicted <= mine, axis=2)
        _set_bit(s.better_predicted, b, a, mine < predicted)
        _set_bit(s.no_worse_predicted, b, a, mine <= predicted)

    # --- hindsight, for training alone -----------------------------------------------------------

    def expert(self, sharpness: float = 2.0) -> tuple[Array, NDArray[np.bool_]]:
        """What one would do who knew every curve: true gain over the front per remaining cost.

        Returns:
            [B, n] shares that sum to 1, ``(gain / cost) ** sharpness``; [B] whether anything is
            left to gain. What is in flight counts as finished.
        """
        s, e = self.state, self.episodes
        flying = np.where(s.in_flight[..., None], e.covers, np.uint64(0))
        covered = self.covered | np.bitwise_or.reduce(flying, axis=1)
        gain = np.where(s.mask, gains(e.covers, covered), 0)
        k = np.arange(e.cost_s.shape[2])[None, None, :]
        rest = np.where(k > s.landmark[..., None], e.cost_s, 0).sum(axis=2)
        rate = gain / np.maximum(rest, 1e-6 * e.total[:, None] + 1e-20)
        top = rate.max(axis=1, keepdims=True)
        share = (rate / np.maximum(top, 1e-30)) ** sharpness
        total = share.sum(axis=1, keepdims=True)
        return (share / np.maximum(total, 1e-30)).astype(np.float32), top[:, 0] > 0

    def rule_to_go(self) -> Array:
        """[B] the return of finishing what is left one by one, the least remaining cost first.

        True costs and true final values: a baseline for the critic, which may know them. What
        several workers share is taken as done one after another, in a ``1 / W`` of the time.
        """
        s, e = self.state, self.episodes
        k = np.arange(e.cost_s.shape[2])
        rest = np.where(k > s.landmark[..., None], e.cost_s, 0).sum(axis=2, dtype=np.float64)
        level = np.minimum(s.landmark + 1, len(k) - 1)[..., None]
        next_cost = np.take_along_axis(e.cost_s, level, axis=2)[..., 0]
        to_come = np.where(s.in_flight, self.end, np.inf) - self.now[:, None]
        rest = np.maximum(rest - np.where(s.in_flight, next_cost - to_come, 0.0), 0.0)
        open_ = s.present & ~s.failed & ~s.complete
        most = int(open_.sum(axis=1).max(initial=1))
        order = np.argsort(np.where(open_, rest, np.inf), axis=1, kind="stable")[:, :most]
        rest = np.where(open_, rest, 0.0)
        rows = self._rows[:, None]
        covers = np.bitwise_or.accumulate(e.covers[rows, order], axis=1)
        covers |= self.covered[:, None]
        have = np.bitwise_count(covers).sum(axis=2, dtype=np.int64)
        after = (1.0 - have / np.maximum(e.optimum, 1)[:, None]).astype(np.float32)
        before = np.concatenate([self.regret[:, None], after[:, :-1]], axis=1)
        area = (regret_weight(before) * rest[rows, order]).sum(axis=1)
        return np.asarray(-area / s.n_workers / e.scale, dtype=np.float32)

    def regret_if_stopped(self) -> Array:
        """[B]: share of the optimum that is missing once what is in flight has ended."""
        e = self.episodes
        flying = self.state.in_flight[..., None]
        # Only a trial on its last landmark is finished by what is in flight.
        last = (self.state.landmark == self.state.n_landmarks[:, None] - 2)[..., None]
        more = np.bitwise_or.reduce(np.where(flying & last, e.covers, np.uint64(0)), axis=1)
        have = np.bitwise_count(self.covered | more).sum(axis=1, dtype=np.int64)
        missing: Array = (1.0 - have / np.maximum(e.optimum, 1)).astype(np.float32)
        return missing


def _set_bit(
    bits: Bits,
    b: NDArray[np.int64],
    column: NDArray[np.int64],
    values: NDArray[np.bool_],
    where: NDArray[np.bool_] | None = None,
) -> None:
    """Write one column of a bit matrix per pool.

    Args:
        bits: [B, m, n, words], changed in place.
        b: [x] pools.
        column: [x] which bit.
        values: [x, m, n] what to write.
        where: [x, 1, n] rows to write to, others stay; None writes to all.
    """
    byte, bit = column // 8, (128 >> (column % 8)).astype(np.uint8)[:, None, None]
    old = bits[b, :, :, byte]
    new = values * bit
    new |= old & ~bit
    if where is not None:
        np.copyto(new, old, where=~where)
    bits[b, :, :, byte] = new
