"""A scheduler for Ray Tune that hands the choice of trials to an allocation policy of lamps.

Ray Tune's own schedulers look at one metric and stop what lags behind. This one takes several
metrics, pauses every trial at its landmarks, and resumes those that the policy wants to advance,
so a trial that was overlooked can still be promoted. Trials need checkpoints, because a paused one
gives up its place.

Who decides what:

- Ray Tune adds trials and starts new ones whenever there is room; so every trial gets its first
  landmark. From then on the policy decides about each place that becomes free.
- A trial is finished when it reaches ``max_t`` or ends by itself. One that reports a metric that
  is not finite is stopped.
- When the policy says that nothing more is worth its cost, and nothing runs or waits to start,
  paused trials are stopped. Trials that the searcher adds later get their turn.
- Workers are bounded by resources, such as ``tune.with_resources(train, {"cpu": 1})``.
  ``TuneConfig.max_concurrent_trials`` counts paused trials as well and would keep the pool as
  small as itself.
- An experiment that is restored goes on with the last result of each trial; trials that were
  paused stay paused.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

from lamps.errors import ConfigError, MissingExtra
from lamps.integrations._pool import GrowingPool, doubling
from lamps.policy import STOP

try:
    from ray.tune.experiment import Trial
    from ray.tune.schedulers import TrialScheduler
    from ray.tune.utils.util import flatten_dict
except ImportError as error:
    raise MissingExtra("LampsScheduler", "ray[tune]", "ray") from error


class LampsScheduler(TrialScheduler):  # type: ignore[misc]
    """Pauses trials at landmarks and resumes the ones that a policy picks.

    Leave ``metric`` and ``mode`` of ``TuneConfig`` unset: the metrics are given here.

    Args:
        metrics: Reported metric to ``"min"`` or ``"max"``; what the front is drawn over.
        time_attr: Reported number that grows with the effort.
        max_t: The full effort, in units of ``time_attr``.
        landmarks: Efforts at which trials are compared, increasing, ``max_t`` last; 1, 2, 4, ...
            if None. Landmarks that a trial jumps over get the values of the next report.
        policy: Name of an allocation policy, with options in brackets.
        seed: Seed of its decisions.
        cost_attr: Reported cumulative cost, in seconds.
        size_attr: Key of the trial's config that says how large its model is; none if None.

    Raises:
        ConfigError: Metrics or landmarks that cannot be used.
        UnknownMethod: There is no such policy.

    Example:
        >>> scheduler = LampsScheduler({"error": "min", "latency_ms": "min"}, max_t=8)
        >>> scheduler.landmarks
        (1, 2, 4, 8)
    """

    # One result at a time: buffered ones would run past the landmark.
    _supports_buffered_results = False

    def __init__(
        self,
        metrics: Mapping[str, str],
        *,
        time_attr: str = "training_iteration",
        max_t: float = 16,
        landmarks: Sequence[float] | None = None,
        policy: str = "lamps",
        seed: int = 0,
        cost_attr: str = "time_total_s",
        size_attr: str | None = None,
    ) -> None:
        super().__init__()
        chosen = doubling(max_t) if landmarks is None else tuple(landmarks)
        self.pool = GrowingPool(metrics, chosen, policy, seed, family="ray-tune")
        if chosen[-1] != max_t:
            raise ConfigError(f"the last landmark is {chosen[-1]}, expected max_t, {max_t}")
        self.time_attr, self.cost_attr, self.size_attr = time_attr, cost_attr, size_attr
        # Costs since the last landmark, and the counter as it was last reported, by trial.
        self._spent: dict[str, float] = {}
        self._counter: dict[str, float] = {}
        self._promised: set[str] = set()  # chosen by the policy, not yet running again
        self._pausing: set[str] = set()  # told to pause, still saving
        self._workers = 1
        self._news = True

    @property
    def landmarks(self) -> tuple[float, ...]:
        """Efforts at which trials are compared."""
        return tuple(self.pool.landmarks)

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Refuse a metric of Ray Tune; Tune then says that the scheduler has its own."""
        return metric is None and mode is None

    # -- what Tune tells ------------------------------------------------------------------------

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """A new trial, one that is tried again after an error, or one of a restored experiment."""
        key = trial.trial_id
        self._news = True
        if key in self.pool.rows:
            row = self.pool.rows[key]
            if row.failed:  # Tune starts it once more, from its last checkpoint
                row.failed, row.in_flight = False, True
                return
        else:
            params = flatten_dict(dict(trial.config or {}))
            size = params.get(self.size_attr) if self.size_attr else None
            row = self.pool.add(key, trial.trainable_name, params, size)
            result = flatten_dict(dict(trial.last_result or {}))
            if self.time_attr in result:
                self._take(key, result)
        if trial.status in (Trial.TERMINATED, Trial.ERROR):
            row.failed = not self.pool.complete(key)
        elif trial.status == Trial.PENDING and row.landmark >= 0 and trial.checkpoint:
            # A restored experiment would start everything that had been paused.
            trial.set_status(Trial.PAUSED)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """At a landmark: go on if the policy picks this very trial, else pause."""
        key = trial.trial_id
        self._promised.discard(key)
        self._pausing.discard(key)
        if not self._take(key, result):
            return str(TrialScheduler.CONTINUE)
        if self.pool.rows[key].failed or self.pool.complete(key):
            return str(TrialScheduler.STOP)
        self._pausing.add(key)
        choice = self._decide(tune_controller)
        if choice == key:
            self._promised.discard(key)
            self._pausing.discard(key)
            return str(TrialScheduler.CONTINUE)
        return str(TrialScheduler.PAUSE)

    def on_trial_complete(
        self, tune_controller: Any, trial: Trial, result: dict[str, Any]
    ) -> None:
        """A running trial has ended, by itself or because it was told to stop."""
        row = self._settle(trial)
        if row.failed or self.pool.complete(trial.trial_id):
            return
        # It ended before max_t because there was nothing more to do: its last word counts. One
        # that was paused at its very end returns without another.
        if self._missing(result) is None:
            self._take(trial.trial_id, {**result, self.time_attr: self.landmarks[-1]})
        elif row.landmark >= 0:
            self.pool.finish(trial.trial_id)
        else:
            row.failed = True

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """A trial has raised; if Tune tries it again, it will be added again."""
        row = self._settle(trial)
        row.failed = not self.pool.complete(trial.trial_id)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """A trial that did not run has been stopped."""
        self.on_trial_error(tune_controller, trial)

    # -- what Tune asks -------------------------------------------------------------------------

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """The trial that the policy has picked, else a new one, else whom the policy picks now."""
        trials = tune_controller.get_trials()
        self._see(trials)
        for status in (Trial.PAUSED, Trial.PENDING):
            for trial in trials:
                if trial.status == status and trial.trial_id in self._promised:
                    return trial
        if pending := next((t for t in trials if t.status == Trial.PENDING), None):
            return pending
        busy = sum(row.in_flight for row in self.pool.rows.values())
        if busy >= self._workers or not self._news:
            return None
        choice = self._decide(tune_controller)
        if choice == STOP and not busy:
            self._stop_paused(tune_controller, trials)
        return next((t for t in trials if t.trial_id == choice and t.status == Trial.PAUSED), None)

    def debug_string(self) -> str:
        """One line for Tune's progress report."""
        rows = self.pool.rows
        done = sum(map(self.pool.complete, rows))
        landmarks = sum(row.landmark + 1 for row in rows.values())
        return (
            f"Using lamps ({self.pool.policy}): {done} of {len(rows)} trials finished, "
            f"{len(self.pool.front())} on the front, {landmarks} landmarks"
        )

    def save(self, checkpoint_path: str) -> None:
        """Write the state of the scheduler to a file."""
        with open(checkpoint_path, "wb") as file:
            pickle.dump(self.__dict__, file)

    def restore(self, checkpoint_path: str) -> None:
        """Read the state of the scheduler from a file that `save` wrote."""
        with open(checkpoint_path, "rb") as file:
            self.__dict__.update(pickle.load(file))

    # -- inside ---------------------------------------------------------------------------------

    @property
    def _wanted(self) -> tuple[str, ...]:
        return (self.time_attr, self.cost_attr, *self.pool.directions)

    def _missing(self, result: Mapping[str, Any]) -> str | None:
        return next((name for name in self._wanted if name not in result), None)

    def _take(self, key: str, result: Mapping[str, Any]) -> bool:
        """Count the cost of a result; whether it reached a landmark, which is then recorded."""
        if missing := self._missing(result):
            raise ConfigError(
                f"trial {key} reported no {missing!r}; LampsScheduler needs "
                f"{', '.join(self._wanted)} in every tune.report"
            )
        counter, before = float(result[self.cost_attr]), self._counter.get(key, 0.0)
        # Without a checkpoint a resumed trial starts over, and so does its counter.
        delta = counter - before if counter >= before else counter
        self._counter[key] = counter
        self._spent[key] = self._spent.get(key, 0.0) + delta
        level = self.pool.level_of(float(result[self.time_attr]))
        if level <= self.pool.rows[key].landmark:
            return False
        values = [_metric(result[name]) for name in self.pool.directions]
        self.pool.record(key, level, values, self._spent.pop(key))
        self._news = True
        return True

    def _decide(self, tune_controller: Any) -> str | int:
        """Ask the policy; its choice is kept as a promise until that trial reports."""
        self._see(tune_controller.get_trials())
        choice = self.pool.choose(self._workers)
        self._news = False
        if isinstance(choice, str):
            self._promised.add(choice)
            self._news = True
        return choice

    def _see(self, trials: Sequence[Trial]) -> None:
        """Bring the pool up to what Tune has started, paused or ended."""
        running = sum(t.status == Trial.RUNNING for t in trials)
        self._workers = max(self._workers, running)
        for trial in trials:
            key, row = trial.trial_id, self.pool.rows[trial.trial_id]
            if trial.status == Trial.PAUSED:
                self._pausing.discard(key)
            begun = trial.status == Trial.RUNNING or (
                trial.status == Trial.PENDING and row.landmark >= 0
            )
            row.in_flight = key in self._promised or (begun and key not in self._pausing)

    def _stop_paused(self, tune_controller: Any, trials: Sequence[Trial]) -> None:
        """End the search: nobody who is paused will be resumed."""
        for trial in [t for t in trials if t.status == Trial.PAUSED]:
            tune_controller.stop_trial(trial)
        self._news = bool(self._pausing)  # those still saving are stopped in a moment

    def _settle(self, trial: Trial) -> Any:
        key = trial.trial_id
        self._promised.discard(key)
        self._pausing.discard(key)
        self._news = True
        row = self.pool.rows[key]
        row.in_flight = False
        return row


def _metric(value: Any) -> float:
    """A reported metric as a float; NaN where it is not a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
