"""The store: the only writer of the database, and the only reader the rest of lamps needs.

Rules that hold for every call:

- One call is one transaction: it happened as a whole or not at all, also if the process is killed.
- A decision is written before it is acted on, so a killed controller finds what was in flight.
- Moves that `lamps.store.states` does not list raise `StateError` and write nothing.
- Whatever the database itself refuses is a `StoreError` of one line, without the password.
- Processes may share a database, each with its own `Store`; threads may share a `Store`.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from sqlalchemy import URL, Connection, Engine

from lamps.replication import Measurement
from lamps.store import (
    claims,
    decisions,
    engine,
    heads,
    integrity,
    policies,
    policy_scores,
    queries,
    replications,
    runs,
    schema,
    transactions,
)
from lamps.store.records import (
    Decision,
    DecisionRecord,
    FinalValues,
    PolicyRecord,
    PolicyScore,
    PoolMember,
    Run,
    RunHead,
    RunSpec,
    RunSummary,
    Trial,
)
from lamps.store.replication_records import ReplicationSpec, StoredReplication
from lamps.store.states import RunState
from lamps.types import Budget, Candidate, Cost, Json

T = TypeVar("T")


class Store:
    """An open database; make one with `Store.open`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Store.open(f"sqlite:///{folder}/lamps.db") as store:
        ...         store.runs(), store.check()
        ([], [])
    """

    def __init__(self, url: URL, opened: Engine) -> None:
        self._url, self._engine = url, opened

    @classmethod
    def open(cls, url: str) -> Self:
        """Open a database and create its schema if it is empty.

        Args:
            url: ``sqlite:///FILE`` or ``postgresql://USER:PASSWORD@HOST/DATABASE``.

        Raises:
            SchemaMismatch: The schema is older (the message says what upgrades it) or newer.
            StoreError: The database cannot be reached, or is none of ours.
        """
        parsed = engine.parse_url(url)
        return cls(parsed, schema.prepare(parsed))

    @staticmethod
    def upgrade(url: str) -> tuple[str | None, str]:
        """Bring a database to this release's schema; version before (None: empty) and after."""
        return schema.upgrade(engine.parse_url(url))

    def close(self) -> None:
        """Give all connections back."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    @property
    def url(self) -> str:
        """Where the database is, with the password hidden."""
        return engine.hidden(self._url)

    def check(self) -> list[str]:
        """Everything that is wrong with the database, one line each; empty if all is well."""
        return self._read(integrity.check)

    # Runs ------------------------------------------------------------

    def create_run(
        self,
        spec: RunSpec,
        candidates: Sequence[Candidate],
        labels: Sequence[str] | None = None,
    ) -> Run:
        """Create a run with its pool; trial ``i`` works on ``candidates[i]``.

        Args:
            spec: What fixes the run.
            candidates: The pool, at least one; all of the run's family.
            labels: What people see per candidate; `Candidate.label` if None.

        Raises:
            StoreError: The name is taken, or the spec contradicts itself.
        """
        now = time.time()

        def work(connection: Connection) -> Run:
            runs.create_run(connection, spec, candidates, labels, now)
            return queries.run(connection, spec.name)

        return self._write(work)

    def run(self, name: str) -> Run:
        """The run of that name, as it is now.

        Raises:
            StoreError: There is none; the message lists those there are.
        """
        return self._read(lambda c: queries.run(c, name))

    def head(self, name: str) -> RunHead:
        """The unchanging parts of a run: what a front query needs, quickly.

        Raises:
            StoreError: There is no run of that name.
        """
        return self._read(lambda c: heads.head(c, name))

    def members(self, run_id: int, indices: Sequence[int]) -> dict[int, PoolMember]:
        """Candidate, label and test score of some trials, without their history."""
        return self._read(lambda c: heads.members(c, run_id, indices))

    def change_run(
        self,
        run_id: int,
        *,
        budget: Budget | None = None,
        settings: Mapping[str, Json] | None = None,
        workers: int | None = None,
    ) -> None:
        """Replace what a resumed run may spend and where it runs; None keeps what was."""
        self._write(lambda c: heads.change_run(c, run_id, budget, settings, workers))

    def runs(self) -> list[RunSummary]:
        """All runs, newest first."""
        return self._read(queries.runs)

    def set_run_state(self, run_id: int, state: RunState, note: str = "") -> None:
        """Move a run; ``finished`` wants every trial at rest (see `stop_trials`).

        Raises:
            StateError: The move is not allowed.
        """
        self._write(lambda c: runs.set_state(c, run_id, state, note, time.time()))

    def add_spent(self, run_id: int, *, wall_s: float = 0.0, device_s: float = 0.0) -> None:
        """Add seconds to ``Run.spent_wall_s`` and ``Run.spent_device_s``."""
        self._write(lambda c: runs.add_spent(c, run_id, wall_s, device_s))

    def set_reference_point(self, run_id: int, values: Sequence[float]) -> None:
        """Store the bounds of the hypervolume, in the order of the run's ``front_objectives``."""
        self._write(lambda c: runs.set_reference_point(c, run_id, values))

    def claim(
        self, run_id: int, owner: str, pid: int | None = None, host: str | None = None
    ) -> None:
        """Become the one controller of a run.

        A claim may be taken over when its process is dead on this host, or silent for 60 s.

        Args:
            run_id: The run.
            owner: Name of the controller, unique among all.
            pid: Its process; this one if None.
            host: Its machine; this one if None.

        Raises:
            StateError: Another controller holds the run; the message names it.
        """
        number, machine = pid or os.getpid(), host or socket.gethostname()
        self._write(lambda c: claims.claim(c, run_id, owner, number, machine, time.time()))

    def heartbeat(self, run_id: int, owner: str) -> None:
        """Say that the controller is alive; call it every few seconds.

        Raises:
            StateError: Another controller has taken the run over; stop at once.
        """
        self._write(lambda c: claims.heartbeat(c, run_id, owner, time.time()))

    def release(self, run_id: int, owner: str) -> None:
        """Give the run back; nothing happens where ``owner`` does not hold it."""
        self._write(lambda c: claims.release(c, run_id, owner))

    # Trials ------------------------------------------------------------

    def trials(self, run_id: int) -> list[Trial]:
        """All trials of a run by index, with evaluations, newest checkpoint and test scores."""
        return self._read(lambda c: queries.trials(c, run_id))

    def stop_trials(self, run_id: int) -> int:
        """Stop all waiting and paused trials for good; how many. For the end of a run."""
        return self._write(lambda c: runs.stop_trials(c, run_id, "stopped", None))

    def cancel_trial(self, run_id: int, trial_index: int) -> bool:
        """Take a waiting or paused trial out of the run; whether it was one."""
        return bool(self._write(lambda c: runs.stop_trials(c, run_id, "cancelled", trial_index)))

    def record_test(
        self,
        run_id: int,
        trial_index: int,
        values: Mapping[str, float],
        signals: Mapping[str, Any],
    ) -> None:
        """Store the test scores of a trial.

        Raises:
            StateError: They were stored before, or the trial runs or has no evaluation.
        """
        self._write(
            lambda c: runs.record_test(c, run_id, trial_index, values, signals, time.time())
        )

    def final_values(
        self, run_id: int, names: Sequence[str] | None = None, finished_only: bool = True
    ) -> FinalValues:
        """What a front is drawn from: each trial at its last ok landmark, nothing that failed.

        Args:
            run_id: The run.
            names: Objectives in the wanted order; all if None.
            finished_only: Leave out trials that have not reached the last fidelity.
        """
        return self._read(lambda c: queries.final_values(c, run_id, names, finished_only))

    # Decisions ------------------------------------------------------------

    def decide(
        self,
        run_id: int,
        trial_index: int,
        landmark: int,
        *,
        policy: str,
        features_hash: str,
        seed: int,
        note: str = "",
        policy_state: Json = None,
    ) -> Decision:
        """Write that a trial goes to a landmark next, before anything runs.

        Args:
            run_id: A running run.
            trial_index: A waiting or paused trial.
            landmark: Where it goes, later than where it is.
            policy: Who decided.
            features_hash: Hash of what it saw.
            seed: Seed it decided with.
            note: Why, for people.
            policy_state: What the policy must remember; None keeps what it wrote last.

        Raises:
            StateError: The trial may not run, or not to that landmark.
        """
        return self._write(
            lambda c: decisions.decide(
                c,
                run_id,
                trial_index,
                landmark,
                policy=policy,
                features_hash=features_hash,
                seed=seed,
                note=note,
                policy_state=policy_state,
                now=time.time(),
            )
        )

    def complete(
        self,
        decision_id: int,
        *,
        values: Mapping[str, float],
        signals: Mapping[str, Any],
        cost: Cost,
        checkpoint: tuple[str, str, int] | None = None,
        last: bool = False,
    ) -> str | None:
        """Write the outcome of a landmark: evaluation, cost, checkpoint and the states they imply.

        Args:
            decision_id: A pending decision.
            values: Every objective of the run and nothing else; need not be finite.
            signals: Diagnostics.
            cost: What this attempt spent.
            checkpoint: uri, SHA-256 and bytes; it replaces the trial's earlier one.
            last: Whether the trial is complete; always so at the last fidelity.

        Returns:
            The uri of the checkpoint that was replaced and may now be deleted, if there was one.

        Raises:
            StateError: The decision has an outcome already; nothing was counted twice.
        """
        return self._write(
            lambda c: decisions.complete(
                c,
                decision_id,
                values=values,
                signals=signals,
                cost=cost,
                checkpoint=checkpoint,
                last=last,
                now=time.time(),
            )
        )

    def fail(
        self,
        decision_id: int,
        *,
        kind: Literal["failed", "crashed"],
        error: str,
        values: Mapping[str, Any] | None = None,
        cost: Cost | None = None,
    ) -> None:
        """Write that a landmark failed or crashed.

        Args:
            decision_id: A pending decision.
            kind: ``failed``: the method raised or returned nonsense; the trial ends and keeps its
                earlier landmarks.
                ``crashed``: the worker vanished; `retry` or `give_up` follows.
            error: One line for people.
            values: What a failed landmark reported, finite or not, numbers or not.
            cost: What the attempt spent, where it is known.
        """
        self._write(
            lambda c: decisions.fail(
                c,
                decision_id,
                kind=kind,
                error=error,
                values=values,
                cost=cost,
                now=time.time(),
            )
        )

    def retry(self, decision_id: int) -> Decision:
        """The same decision with its next attempt, after a crash."""
        return self._write(lambda c: decisions.retry(c, decision_id))

    def give_up(self, decision_id: int) -> None:
        """Leave a crashed trial crashed for good."""
        self._write(lambda c: decisions.give_up(c, decision_id))

    def cancel(self, decision_id: int) -> None:
        """Take a pending decision back; its trial waits again where it was."""
        self._write(lambda c: decisions.cancel(c, decision_id, time.time()))

    def requeue(self, run_id: int) -> list[Decision]:
        """What a dead controller left in flight, in its order, each with its next attempt.

        For the controller that has just claimed the run; each decision is to be executed once
        more. Decisions that crashed and were neither retried nor given up stand in `decisions`
        with state ``crashed``.
        """
        return self._write(lambda c: decisions.requeue(c, run_id))

    def decisions(self, run_id: int) -> list[DecisionRecord]:
        """All decisions of a run in their order."""
        return self._read(lambda c: queries.decisions(c, run_id))

    # Policies ------------------------------------------------------------

    def add_policy(
        self,
        name: str,
        version: str,
        *,
        weights_sha256: str,
        training_tables: Sequence[Json],
        score: float,
    ) -> None:
        """Register a trained policy.

        Raises:
            StoreError: That version exists already.
        """
        record = PolicyRecord(
            name=name,
            version=version,
            weights_sha256=weights_sha256,
            training_tables=training_tables,
            score=score,
            created_at=time.time(),
        )
        self._write(lambda c: policies.add(c, record))

    def policies(self) -> list[PolicyRecord]:
        """All trained policies."""
        return self._read(policies.listed)

    def add_policy_scores(self, scores: Sequence[PolicyScore]) -> int:
        """Keep scores of policies on landmark tables.

        Scores of the same policy, code, pool and seed are kept once: giving them again changes
        nothing.

        Returns:
            How many were new.

        Raises:
            StoreError: A name that cannot be stored, or a measure too many or too few.
        """
        return self._write(lambda c: policy_scores.add(c, scores, time.time()))

    def policy_scores(self) -> list[PolicyScore]:
        """All scores of policies in the order in which they came."""
        return self._read(policy_scores.listed)

    # Replications ------------------------------------------------------------

    def begin_replication(self, spec: ReplicationSpec) -> int:
        """Create a replication or go on with it; its claims and texts are those of the spec.

        Returns:
            Its id, for the calls below.

        Raises:
            StoreError: A name that cannot be stored.
        """
        return self._write(lambda c: replications.begin(c, spec, time.time()))

    def begin_seed(
        self, replication_id: int, seed: int, claims: Sequence[str], *, again: bool = False
    ) -> None:
        """Write that claims are being measured with a seed; ``again`` deletes what there was."""

        def work(connection: Connection) -> None:
            if again:
                replications.forget_seed(connection, replication_id, seed, claims)
            replications.begin_seed(connection, replication_id, seed, claims, time.time())

        self._write(work)

    def add_measurement(self, replication_id: int, measurement: Measurement) -> bool:
        """Keep one pair of numbers of a claim and seed that were begun.

        Returns:
            Whether it is new; a pair of the same claim, seed and unit is kept once, as it came
            first.

        Raises:
            StoreError: Its claim was not begun with its seed.
        """
        return self._write(lambda c: replications.add(c, replication_id, measurement, time.time()))

    def finish_seed(
        self,
        replication_id: int,
        seed: int,
        claims: Sequence[str],
        *,
        facts: Mapping[str, Json],
        wall_s: float,
    ) -> None:
        """Write that claims were measured to the end with a seed, on what machine."""
        self._write(
            lambda c: replications.finish_seed(
                c, replication_id, seed, claims, facts, wall_s, time.time()
            )
        )

    def replication(self, replication_id: int) -> StoredReplication:
        """A replication with all that was measured."""
        return self._read(lambda c: replications.one(c, replication_id))

    def replications(self) -> list[StoredReplication]:
        """All replications in the order in which they were begun."""
        return self._read(replications.listed)

    def _read(self, work: Callable[[Connection], T]) -> T:
        return transactions.read(self._engine, work)

    def _write(self, work: Callable[[Connection], T]) -> T:
        return transactions.write(self._engine, work)
