"""The loop of a search: observe, decide, commit the decision, run it, commit what came of it.

All truth is in the store. The controller keeps arrays for the policy and what is in flight, both
rebuilt from the store when a run is resumed, so it may be killed at any line.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lamps import artifacts, pareto
from lamps.errors import ContractError, LampsError, StateError, StoreError
from lamps.method import Problem
from lamps.policy import STOP, WAIT, Hindsight, Observation, Policy, Pool
from lamps.scheduler.backend import Backend
from lamps.scheduler.budget import Spent
from lamps.scheduler.claim import Claim
from lamps.scheduler.progress import Ending, Listener, Outcome, Progress
from lamps.scheduler.worker import LandmarkResult, LandmarkTask
from lamps.store import Decision, Run, Store, Trial
from lamps.types import Budget, Resources

MAX_ATTEMPTS = 3
"""Times a landmark is tried whose worker vanishes; after that the trial stays crashed."""


class Controller:
    """Drives one run to its end, its budget, or an interruption.

    Args:
        store: The open store.
        run: The run, created or interrupted.
        problem: Its problem.
        policy: Its policy.
        backend: Where landmarks run; closed by the caller.
        resources: What each trial occupies, in pool order.
        baselines: Trials that are run to the end before the policy is asked: a front without its
            baseline is not believed.
        plugin_path: Folders with loose plugins, for workers.
        listener: Called in this thread after every change.
    """

    def __init__(
        self,
        store: Store,
        run: Run,
        problem: Problem,
        policy: Policy,
        backend: Backend,
        *,
        resources: Sequence[Resources],
        baselines: Sequence[int] = (),
        plugin_path: str = "",
        listener: Listener | None = None,
    ) -> None:
        self.store, self.run, self.problem = store, run, problem
        self.policy, self.backend = policy, backend
        self.resources, self.plugin_path = resources, plugin_path
        self.baselines = list(baselines)
        self.listener = listener
        self.budget: Budget = run.budget
        self.trials: list[Trial] = store.trials(run.id)
        self.fidelities = run.fidelities
        names = [o.name for o in run.objectives]
        self._columns = [names.index(n) for n in run.front_objectives]
        self._directions = [run.objectives[c].direction for c in self._columns]
        self._checkpoints: dict[int, tuple[str, str]] = {}
        self._flight: dict[int, Decision] = {}
        self._backlog: deque[Decision] = deque()
        self._stopping = ""
        self._decision_s = 0.0
        self._started: float | None = None
        self._accounted = 0.0
        self._spent_before = run.spent_wall_s
        # A decision that was cancelled is as good as never taken: neither the budget nor the
        # random stream of the next decision may tell that it was.
        taken = sum(d.state != "cancelled" for d in store.decisions(run.id))
        self.spent = Spent(run.spent_wall_s, run.cost_device_s, taken)
        self.observation = self._rebuild()

    # -- state ---------------------------------------------------------------------------------

    def _rebuild(self) -> Observation:
        """The observation as the store has it."""
        obs = Observation.empty(
            len(self.trials),
            np.array(self.fidelities),
            len(self._columns),
            np.array([t.size_hint for t in self.trials]),
        )
        obs.n_workers, obs.seq = self.run.workers, self.spent.landmarks
        for trial in self.trials:
            for landmark in trial.evaluations:
                if landmark.cost is not None:
                    obs.cost_s[trial.index, landmark.landmark] = landmark.cost.wall_s
                if landmark.state == "ok":
                    obs.values[trial.index, landmark.landmark] = self._vector(landmark.values)
            obs.landmark[trial.index] = trial.landmark
            obs.failed[trial.index] = trial.state in ("failed", "crashed", "stopped", "cancelled")
            if trial.checkpoint is not None:
                at = trial.checkpoint
                self._checkpoints[trial.index] = (at.uri, at.sha256)
            self.spent.trials += trial.state != "waiting"
        return obs

    def _pool(self) -> Pool:
        """What the policy is shown before its first decision."""
        candidates = tuple(t.candidate for t in self.trials)
        table = self.problem.landmark_table()
        curves = [str(c.params["curve"]) for c in candidates if "curve" in c.params]
        hindsight = None
        if table is not None and len(curves) == len(candidates):
            hindsight = Hindsight.of_table(
                table, curves, self.run.front_objectives, self.fidelities
            )
        return Pool(tuple(c.label for c in candidates), candidates, hindsight)

    def _vector(self, values: Mapping[str, float]) -> NDArray[np.float64]:
        row = np.array([[values[n] for n in self.run.front_objectives]])
        vector: NDArray[np.float64] = pareto.to_minimization(row, self._directions)[0]
        return vector

    def _mask(self) -> NDArray[np.bool_]:
        mask = self.observation.mask
        if not self.spent.may_start_trial(self.budget):
            mask &= self.observation.landmark >= 0
        return mask

    # -- the loop ------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """Ask the loop to end gently.

        No new landmark; what is in flight may finish. Safe in a signal handler.
        """
        self._stopping = self._stopping or reason

    def execute(self) -> Outcome:
        """Search until the policy stops, the budget is used up, or `stop` is called.

        Raises:
            StateError: Another controller holds the run, or it is over.
            StoreError: The database or the artifact root refused to work; the run is left
                interrupted.
        """
        with Claim(self.store, self.run.id) as claim:
            self.store.set_run_state(self.run.id, "running")
            ending: Ending = "interrupted"
            reason = "the controller was stopped"
            try:
                self._start()
                ending, reason = self._loop(claim)
                if ending != "interrupted" and not self._test_front():
                    ending, reason = "interrupted", self._stopping
            except KeyboardInterrupt:
                reason = "interrupted by the user"
            except LampsError as error:
                reason = str(error)
                raise
            finally:
                if claim.lost:
                    self.backend.cancel()  # the run is another controller's now, down to its state
                else:
                    self._abandon()
                    self._account(least_s=0.0)
                    self._store_reference_point()
                    self.store.set_run_state(self.run.id, ending, reason)
                    self._tell("end")
        return Outcome(
            ending=ending,
            reason=reason,
            n_failed=int(self.observation.failed.sum()),
            n_complete=int(self.observation.complete.sum()),
        )

    def _start(self) -> None:
        self.policy.prepare(self._pool())
        self._backlog.extend(sorted(self._left_over(), key=lambda d: d.seq))
        for decision in self._backlog:
            self.observation.in_flight[decision.trial_index] = True
            self.observation.failed[decision.trial_index] = False
        todo = [i for i, done in enumerate(self.observation.complete) if not done]
        self.backend.start(self.problem, [self.resources[i] for i in todo])
        self._started = self.backend.clock.now()
        self._sweep()
        self._tell("start")

    def _sweep(self) -> None:
        """Delete checkpoints that a controller wrote and was killed before it could store."""
        kept = {uri for uri, _ in self._checkpoints.values()}
        for uri in artifacts.files(artifacts.join(self.run.artifact_root, self.run.name)):
            if uri not in kept:
                artifacts.delete(uri)

    def _left_over(self) -> list[Decision]:
        """What the controller before this one left undone, to be run once more.

        That is what was in flight when it died, and what had crashed while it ended.
        """
        left = []
        for decision in self.store.requeue(self.run.id):
            if decision.attempt <= MAX_ATTEMPTS:
                left.append(decision)
                continue
            # In the process of the controller, a landmark that kills its process kills us with it.
            error = f"the controller died {decision.attempt - 1} times while this landmark ran"
            self.store.fail(decision.id, kind="crashed", error=error)
            self.store.give_up(decision.id)
            self.observation.failed[decision.trial_index] = True
        for decision in self.store.decisions(self.run.id):
            if decision.state == "crashed" and decision.attempt < MAX_ATTEMPTS:
                left.append(self.store.retry(decision.id))
            elif decision.state == "crashed":
                self.store.give_up(decision.id)
        return left

    def _loop(self, claim: Claim) -> tuple[Ending, str]:
        while True:
            if self._flight and self._overdue():
                self._abandon()
            ended = self._fill()
            if not self._flight:
                if self._stopping:
                    return "interrupted", self._stopping
                if ended:
                    return ended
            results = self.backend.wait(1.0)
            claim.check()
            for result in results:
                self._receive(result)
            self._account()

    def _overdue(self) -> bool:
        """Whether what is in flight has had its grace after the time was up: a tenth, and 5 s."""
        bound = self.budget.wall_s
        return bound is not None and self.spent.wall_s > 1.1 * bound + 5.0

    def _fill(self) -> tuple[Ending, str] | None:
        """Submit until workers, budget or ideas run out; how the run ends if no more will come."""
        while self.backend.free > 0:
            if self._stopping:
                return None
            if self._backlog:
                self._submit(self._backlog.popleft())
                continue
            if used_up := self.spent.exhausted(self.budget):
                return "exhausted", used_up
            choice, note = self._choose()
            if choice == WAIT:
                return None
            if choice == STOP:
                return self._stopped()
            self._decide(choice, note)
        return None

    def _stopped(self) -> tuple[Ending, str]:
        """How the run ends when the policy wants nothing more."""
        if not self.spent.may_start_trial(self.budget):
            return "exhausted", f"budget used up: {self.budget.trials} trials"
        if not self._flight:
            self.store.stop_trials(self.run.id)
        left = self.observation.mask.any()
        return "finished", "the policy stopped" if left else "every candidate has ended"

    def _choose(self) -> tuple[int, str]:
        mask = self._mask()
        obs = self.observation
        for trial in self.baselines:
            if mask[trial]:
                self._decision_s = 0.0
                return trial, "baseline"
        obs.budget_used = self.spent.used_share(self.budget)
        asked = time.perf_counter()
        choice = self.policy.propose(obs, mask)
        self._decision_s = time.perf_counter() - asked
        if choice == WAIT and not self._flight:
            raise ContractError(f"policy {self.policy.name!r} waits while nothing is in flight")
        if choice >= 0 and not (choice < len(mask) and mask[choice]):
            raise ContractError(
                f"policy {self.policy.name!r} chose trial {choice}, which may not advance"
            )
        return choice, ""

    def _decide(self, trial: int, note: str) -> None:
        obs = self.observation
        decision = self.store.decide(
            self.run.id,
            trial,
            int(obs.landmark[trial]) + 1,
            policy="baseline" if note else self.policy.name,
            features_hash=obs.digest(),
            seed=self.run.seed,
            note=note,
        )
        obs.seq += 1
        self.spent.landmarks += 1
        self.spent.trials += bool(obs.landmark[trial] < 0)
        obs.in_flight[trial] = True
        self._submit(decision)
        self._tell("decide", trial, decision.landmark)

    def _submit(self, decision: Decision) -> None:
        trial = self.trials[decision.trial_index]
        name = f"t{trial.index:05d}-l{decision.landmark}-a{decision.attempt}.safetensors"
        self._flight[decision.id] = decision
        self.backend.submit(
            LandmarkTask(
                key=decision.id,
                candidate=trial.candidate,
                fidelity=self.fidelities[decision.landmark],
                seed=self.run.seed,
                target=artifacts.join(self.run.artifact_root, self.run.name, name),
                checkpoint=self._checkpoints.get(trial.index),
                plugin_path=self.plugin_path,
                resources=self.resources[trial.index],
                label=f"{trial.candidate.family}/{trial.candidate.method}/"
                f"{trial.index}@{self.fidelities[decision.landmark]:g}",
            )
        )

    # -- results -------------------------------------------------------------------------------

    def _receive(self, result: LandmarkResult) -> None:
        # It counts as in flight until its outcome is stored: a store that refuses to must not
        # leave a decision that nobody takes back.
        decision = self._flight[result.key]
        trial = decision.trial_index
        obs = self.observation
        if result.cost is not None:
            self.spent.device_s += result.cost.device_s
        if result.kind == "crashed":
            self.store.fail(decision.id, kind="crashed", error=result.error, cost=result.cost)
            del self._flight[result.key]
            if decision.attempt < MAX_ATTEMPTS:
                if self._stopping:
                    obs.in_flight[trial] = False  # whoever resumes the run retries it
                else:
                    self._submit(self.store.retry(decision.id))
                self._tell("crashed", trial, decision.landmark, result=result)
                return
            self.store.give_up(decision.id)
        elif result.kind in ("cancelled", "storage"):
            del self._flight[result.key]
            self._take_back(decision)
            if result.kind == "storage":
                raise StoreError(result.error)
            return
        elif result.kind == "failed":
            values = result.evaluation.objectives if result.evaluation else None
            self.store.fail(
                decision.id, kind="failed", error=result.error, values=values, cost=result.cost
            )
            del self._flight[result.key]
        else:
            self._complete(decision, result)
            return
        obs.in_flight[trial], obs.failed[trial] = False, True
        if result.cost is not None:
            obs.cost_s[trial, decision.landmark] = result.cost.wall_s
        self._tell(result.kind, trial, decision.landmark, result=result)

    def _complete(self, decision: Decision, result: LandmarkResult) -> None:
        evaluation, cost, checkpoint = result.evaluation, result.cost, result.checkpoint
        assert evaluation is not None
        assert cost is not None
        obs, trial = self.observation, decision.trial_index
        replaced = self.store.complete(
            decision.id,
            values=evaluation.objectives,
            signals=evaluation.signals,
            cost=cost,
            checkpoint=(checkpoint.uri, checkpoint.sha256, checkpoint.size_bytes)
            if checkpoint
            else None,
            last=decision.landmark == len(self.fidelities) - 1,
        )
        del self._flight[result.key]
        if checkpoint is not None:
            self._checkpoints[trial] = (checkpoint.uri, checkpoint.sha256)
        if replaced:
            artifacts.delete(replaced)
        obs.values[trial, decision.landmark] = self._vector(evaluation.objectives)
        obs.cost_s[trial, decision.landmark] = cost.wall_s
        obs.landmark[trial] = decision.landmark
        obs.in_flight[trial] = False
        self._tell("ok", trial, decision.landmark, result=result)

    def _abandon(self) -> None:
        """Give back what is in flight: those decisions are cancelled and will be taken anew."""
        for result in self.backend.cancel():
            decision = self._flight.pop(result.key, None)
            if decision is not None:
                self._take_back(decision)
        for decision in [*self._flight.values(), *self._backlog]:
            # A server that was lost during a commit may have stored the outcome all the same.
            with contextlib.suppress(StateError):
                self._take_back(decision)
        self._flight.clear()
        self._backlog.clear()

    def _take_back(self, decision: Decision) -> None:
        self.store.cancel(decision.id)
        obs = self.observation
        obs.in_flight[decision.trial_index] = False
        obs.seq -= 1
        self.spent.landmarks -= 1
        self.spent.trials -= bool(obs.landmark[decision.trial_index] < 0)

    # -- the end -------------------------------------------------------------------------------

    def front(self) -> NDArray[np.int64]:
        """Indices of the finished trials on the front, in pool order."""
        done = np.flatnonzero(self.observation.complete)
        if not len(done):
            return done
        front: NDArray[np.int64] = done[
            pareto.is_nondominated(self.observation.last_values()[done])
        ]
        return front

    def _test_front(self) -> bool:
        """Open the test split, once per member of the final front; whether none is left.

        The scores of the answer that ignores the input go with those of each member.
        """
        tested = {t.index for t in self.store.trials(self.run.id) if t.test is not None}
        queue = deque(int(i) for i in self.front() if int(i) not in tested)
        floor = {f"floor_{k}": v for k, v in self.problem.floor("test").items()} if queue else {}
        tries: dict[int, int] = {}
        flight = 0
        while (queue or flight) and not self._stopping:
            while queue and self.backend.free > 0:
                trial = queue.popleft()
                self.backend.submit(
                    LandmarkTask(
                        key=-1 - trial,
                        candidate=self.trials[trial].candidate,
                        fidelity=None,
                        seed=self.run.seed,
                        target="",
                        checkpoint=self._checkpoints.get(trial),
                        split="test",
                        plugin_path=self.plugin_path,
                        resources=self.resources[trial],
                        label=f"test/{self.trials[trial].candidate.method}/{trial}",
                    )
                )
                flight += 1
            for result in self.backend.wait(1.0):
                flight -= 1
                trial = -1 - result.key
                if result.kind == "ok" and result.evaluation is not None:
                    self.store.record_test(
                        self.run.id,
                        trial,
                        dict(result.evaluation.objectives),
                        {**result.evaluation.signals, **floor},
                    )
                elif result.kind in ("crashed", "cancelled"):
                    tries[trial] = tries.get(trial, 0) + 1
                    if tries[trial] < MAX_ATTEMPTS:
                        queue.append(trial)
                self._tell("test", trial, result=result)
        return not queue and not flight

    # -- accounting ----------------------------------------------------------------------------

    def _account(self, *, least_s: float = 1.0) -> None:
        """Count the time that has passed; the store hears of it at most once in ``least_s``."""
        if self._started is None:
            return
        elapsed = self.backend.clock.now() - self._started
        self.spent.wall_s = self._spent_before + elapsed
        delta = elapsed - self._accounted
        if delta > 0 and delta >= least_s:
            self._accounted = elapsed
            self.store.add_spent(self.run.id, wall_s=delta)

    def _store_reference_point(self) -> None:
        """Keep the ruler of the run's hypervolume: over all candidates as far as they came."""
        point = pareto.reference_point(self.observation.last_values())
        sign = [-1.0 if d == "maximize" else 1.0 for d in self._directions]
        self.store.set_reference_point(self.run.id, (point * sign).tolist())

    def _tell(
        self,
        event: str,
        trial: int = -1,
        landmark: int = -1,
        *,
        result: LandmarkResult | None = None,
    ) -> None:
        if self.listener is None:
            return
        obs = self.observation
        waiting = obs.landmark < 0
        idle = ~(obs.in_flight | obs.failed | obs.complete)
        front = self.front()
        seen = obs.last_values()
        self.listener(
            Progress(
                event=event,
                trial=trial,
                landmark=landmark,
                evaluation=result.evaluation if result and result.kind == "ok" else None,
                error=result.error.split("\n")[0] if result else "",
                counts={
                    "complete": int(obs.complete.sum()),
                    "running": int(obs.in_flight.sum()),
                    "paused": int((idle & ~waiting).sum()),
                    "waiting": int((idle & waiting).sum()),
                    "failed": int(obs.failed.sum()),
                },
                front_size=len(front),
                hypervolume=pareto.hypervolume(seen[front], pareto.reference_point(seen)),
                budget_used=self.spent.used_share(self.budget),
                spent=self.spent,
                decision_s=self._decision_s,
                landmark_s=result.cost.wall_s if result and result.cost else 0.0,
            )
        )
