"""An allocation policy for Optuna studies with one objective or several.

Optuna prunes with `Trial.report`, which refuses several objectives, and a pruned trial never comes
back. Here the trials of a study stay open while a policy decides which of them is trained further:

    pool = LampsAllocator(study, n_trials=20, landmarks=(1, 2, 4, 8))
    for trial, epochs in pool:
        model = train(trial.suggest_float("lr", 1e-4, 1e-1, log=True), until=epochs)
        pool.tell(trial, (model.error, model.latency_ms))

The same trial is handed out again with a larger landmark, with the same params; whoever trains
keeps checkpoints by ``trial.number``. Everything that the policy must know stands in user
attributes of the study, so a study that is loaded from its storage goes on where it was.

`StopWhenDone` is a callback for `study.optimize`: it ends a study in which nothing more is worth
its cost.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import optuna
from optuna.trial import FrozenTrial, Trial, TrialState

from lamps.errors import ConfigError, StateError
from lamps.integrations._pool import GrowingPool
from lamps.policy import STOP

_SLOT, _CURVE, _STUDY = "lamps:slot", "lamps:landmarks", "lamps:allocator"


class LampsAllocator:
    """Hands out trials of a study, one landmark at a time, as a policy decides.

    New trials come from ``study.ask()``, so the study's sampler chooses their params and learns
    from the trials that have been finished. When the policy stops, trials that are still open are
    told as pruned. One allocator at a time may work on a study, in one thread; several trials may
    be out at once by calling `ask` more than once.

    Args:
        study: With one objective or several, in memory or in a storage.
        n_trials: How many trials there may be.
        landmarks: Efforts at which trials are compared, increasing; the last is the full effort.
        policy: Name of an allocation policy, with options in brackets.
        seed: Seed of its decisions.
        size_param: Param that says how large a trial's model is; none if None.

    Raises:
        ConfigError: Landmarks or a number of trials that cannot be used, or a study that was
            allocated with other landmarks.
        UnknownMethod: There is no such policy.

    Example:
        >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
        >>> study = optuna.create_study(directions=["minimize", "minimize"])
        >>> pool = LampsAllocator(study, n_trials=3, landmarks=(1, 2, 4), policy="exhaustive")
        >>> for trial, epochs in pool:
        ...     x = trial.suggest_float("x", 0, 1)
        ...     pool.tell(trial, (x / epochs, 1 - x))
        >>> len(study.best_trials)
        3
    """

    def __init__(
        self,
        study: optuna.Study,
        *,
        n_trials: int,
        landmarks: Sequence[float],
        policy: str = "lamps",
        seed: int = 0,
        size_param: str | None = None,
    ) -> None:
        if isinstance(n_trials, bool) or not isinstance(n_trials, int) or n_trials < 1:
            raise ConfigError(f"n_trials is {n_trials!r}, expected a whole number of 1 or more")
        self.study, self.size_param = study, size_param
        self.pool = GrowingPool(_directions(study), landmarks, policy, seed, family="optuna")
        self.n_trials = n_trials
        self._trials: dict[str, Trial] = {}
        self._out: dict[int, tuple[str, float]] = {}
        self._load()

    def __iter__(self) -> Iterator[tuple[Trial, float]]:
        """Trials with the landmark to which they are to be trained, until the policy stops.

        Each must be told before the next one is taken. A loop that is left early leaves its
        trials open; another allocator on the same study goes on with them.
        """
        while (task := self.ask()) is not None:
            yield task

    def ask(self) -> tuple[Trial, float] | None:
        """The next trial and its landmark; None when the policy has stopped.

        Raises:
            StateError: The policy wants to see a trial that is out before it decides.
        """
        if self._ended:
            return None
        choice = self.pool.choose(n_workers=len(self._out) + 1)
        if isinstance(choice, int):
            if self._out:
                raise StateError(
                    f"trials {sorted(self._out)} were handed out and not told, and the policy "
                    "waits for them; call tell() first"
                )
            self._end()
            return None
        if choice not in self._trials:
            trial = self.study.ask()
            trial.set_user_attr(_SLOT, int(choice))
            self._trials[choice] = trial
        trial = self._trials[choice]
        self._out[trial.number] = (choice, time.monotonic())
        return trial, self.pool.landmarks[self.pool.rows[choice].landmark + 1]

    def tell(
        self,
        trial: Trial,
        values: float | Sequence[float] | None,
        *,
        cost_s: float | None = None,
    ) -> None:
        """Report what a trial is worth at the landmark for which it was handed out.

        Args:
            trial: As handed out.
            values: One per objective; None, or a value that is not finite, if it has failed.
            cost_s: Seconds that this landmark has cost; the time since it was handed out if None.

        Raises:
            StateError: The trial is not out.
            ConfigError: Another number of values than objectives, or a cost that is not one.
        """
        if trial.number not in self._out:
            raise StateError(f"trial {trial.number} was not handed out, or has been told already")
        key, since = self._out[trial.number]
        spent = time.monotonic() - since if cost_s is None else float(cost_s)
        if not (math.isfinite(spent) and spent >= 0):
            raise ConfigError(f"cost_s is {cost_s}, expected seconds, 0 or more")
        given = [values] if isinstance(values, (int, float)) else values
        m = len(self.pool.directions)
        if given is not None and len(given) != m:
            raise ConfigError(f"{len(given)} values were told, the study has {m} objectives")
        vector = [math.nan] * m if given is None else [float(v) for v in given]
        row = self.pool.rows[key]
        level = row.landmark + 1
        del self._out[trial.number]
        self._describe(key, trial.params)
        self.pool.record(key, level, vector, spent)
        if row.failed:
            self.study.tell(trial, state=TrialState.FAIL)
            return
        curve = [*trial.user_attrs.get(_CURVE, []), [vector, spent]]
        trial.set_user_attr(_CURVE, curve)
        if m == 1:
            trial.report(vector[0], step=level)
        if self.pool.complete(key):
            self.study.tell(trial, vector)

    def _describe(self, key: str, params: Mapping[str, Any]) -> None:
        size = params.get(self.size_param) if self.size_param else None
        self.pool.describe(key, "trial", params, size)

    def _end(self) -> None:
        """The policy has stopped: what is open is pruned, and the study remembers."""
        for key, trial in self._trials.items():
            row = self.pool.rows[key]
            if not (row.failed or self.pool.complete(key)):
                self.study.tell(trial, state=TrialState.PRUNED)
                row.failed = True
        self._remember(ended=self.n_trials)

    def _remember(self, ended: int) -> None:
        self._ended = ended >= self.n_trials
        self.study.set_user_attr(_STUDY, {"landmarks": list(self.pool.landmarks), "ended": ended})

    def _load(self) -> None:
        """Rebuild the pool from what the study remembers."""
        known = self.study.user_attrs.get(_STUDY)
        if known and known["landmarks"] != list(self.pool.landmarks):
            raise ConfigError(
                f"study {self.study.study_name!r} was allocated with landmarks "
                f"{known['landmarks']}, not {list(self.pool.landmarks)}"
            )
        for slot in range(self.n_trials):
            self.pool.add(str(slot), "trial", {})
        for frozen in self.study.get_trials(deepcopy=False):
            if _SLOT in frozen.user_attrs:
                self._load_trial(str(frozen.user_attrs[_SLOT]), frozen)
        self.pool.n_decisions = sum(r.landmark + 1 for r in self.pool.rows.values()) + sum(
            t.state == TrialState.FAIL and _SLOT in t.user_attrs
            for t in self.study.get_trials(deepcopy=False)
        )
        self._remember(ended=known["ended"] if known else 0)

    def _load_trial(self, key: str, frozen: FrozenTrial) -> None:
        if key not in self.pool.rows:
            raise ConfigError(
                f"study {self.study.study_name!r} holds trial {key}, n_trials is {self.n_trials}; "
                "give at least as many as before"
            )
        self._describe(key, frozen.params)
        for level, (values, cost_s) in enumerate(frozen.user_attrs.get(_CURVE, [])):
            self.pool.record(key, level, values, cost_s)
        if frozen.state.is_finished():
            self.pool.rows[key].failed = frozen.state != TrialState.COMPLETE
            return
        # Optuna has no public way to go on with a running trial of a loaded study; this is what
        # `study.ask` itself does with the id of a new one.
        trial = Trial(self.study, frozen._trial_id)
        self._trials[key] = trial
        if self.pool.complete(key):  # it was ended before the study was told
            self.study.tell(trial, frozen.user_attrs[_CURVE][-1][0])


class StopWhenDone:
    """A callback for ``study.optimize`` that stops when nothing more is worth its cost.

    Every trial counts with one landmark, its end. Trials that are running count as not begun: a
    study that is stopped lets them end.

    Args:
        n_trials: How many trials there would be at most, as given to ``study.optimize``.
        policy: Name of an allocation policy that stops by itself, with options in brackets.
        seed: Seed of its decisions.

    Raises:
        ConfigError: ``n_trials`` is not a whole number of 1 or more.
        UnknownMethod: There is no such policy.

    Example:
        >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
        >>> study = optuna.create_study(directions=["minimize", "maximize"])
        >>> done = StopWhenDone(50, policy="lamps(doubt=1.0)")
        >>> study.optimize(lambda t: (t.suggest_float("x", 0, 1), 0.0), 50, callbacks=[done])
        >>> len(study.trials)
        1
    """

    def __init__(self, n_trials: int, *, policy: str = "lamps", seed: int = 0) -> None:
        if isinstance(n_trials, bool) or not isinstance(n_trials, int) or n_trials < 1:
            raise ConfigError(f"n_trials is {n_trials!r}, expected a whole number of 1 or more")
        self.n_trials, self.policy, self.seed = n_trials, policy, seed
        GrowingPool({"any": "min"}, (1,), policy, seed)  # refuses what is no policy

    def __call__(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Stop the study if the policy would."""
        pool = GrowingPool(_directions(study), (1,), self.policy, self.seed, family="optuna")
        ended = [t for t in study.get_trials(deepcopy=False) if t.state.is_finished()]
        for at in ended:
            key = str(at.number)
            pool.add(key, "trial", at.params).failed = at.state != TrialState.COMPLETE
            if at.state == TrialState.COMPLETE:
                took = at.duration
                pool.record(key, 0, at.values, 0.0 if took is None else took.total_seconds())
        for k in range(self.n_trials - len(ended)):
            pool.add(f"open-{k}", "trial", {})
        pool.n_decisions = len(ended)
        if pool.choose() == STOP:
            study.stop()


def _directions(study: optuna.Study) -> dict[str, str]:
    """Names and directions of a study's objectives."""
    names = study.metric_names or []
    if len(set(names)) < len(study.directions):
        names = [f"objective_{i}" for i in range(len(study.directions))]
    return {n: d.name.lower() for n, d in zip(names, study.directions, strict=True)}
