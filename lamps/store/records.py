"""What the store gives and takes.

Frozen records without behaviour; times are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamps.method import ModelInfo
from lamps.store.states import DecisionState, EvaluationState, RunState, TrialState
from lamps.types import Budget, Candidate, Cost, Json, Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """Everything that fixes a run before it starts.

    Args:
        name: Unique in the store; any text of up to 500 characters.
        family: Name of the problem family.
        problem_name: Name of the problem.
        problem_reference: JSON from which the family reopens the problem.
        problem_fingerprint: Hash of data and splits.
        problem_card: Meta-features and provenance.
        objectives: Everything a landmark measures; their order is that of every stored value.
        front_objectives: Names of those the front is drawn over.
        fidelities: Increasing; landmark ``k`` is ``fidelities[k]``.
        unit: What a fidelity counts.
        settings: The effective settings.
        seed: Root of all randomness of the run.
        budget: What the run may spend.
        policy: Name of the allocation policy.
        policy_version: Its version.
        workers: Landmarks that run at once.
        artifact_root: fsspec URL of the folder for checkpoints.
        method_versions: Version of every method among the candidates.
        models: Pretrained models the candidates may use.
        size_hints: Expected size per candidate, any unit; empty or one each, NaN if unknown.
    """

    name: str
    family: str
    problem_name: str
    problem_reference: Mapping[str, Json]
    problem_fingerprint: str
    problem_card: Mapping[str, Json]
    objectives: tuple[Objective, ...]
    front_objectives: tuple[str, ...]
    fidelities: tuple[float, ...]
    unit: str
    settings: Mapping[str, Json] = field(default_factory=dict)
    seed: int = 0
    budget: Budget = field(default_factory=Budget)
    policy: str = ""
    policy_version: str = "1"
    workers: int = 1
    artifact_root: str = ""
    method_versions: Mapping[str, str] = field(default_factory=dict)
    models: Sequence[ModelInfo] = ()
    size_hints: Sequence[float] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TestScore:
    """Objectives of one trial on the test split, measured once."""

    __test__ = False  # not a test class, whatever pytest thinks of the name

    trial_index: int
    values: Mapping[str, float]
    signals: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(RunSpec):
    """A run as stored: its spec and how far it came.

    Args:
        id: Key for all further calls.
        state: See `lamps.store.states`.
        note: Why it is in that state, for people.
        spent_wall_s: Seconds added by `Store.add_spent`, over all resumes.
        spent_device_s: Device seconds added by `Store.add_spent`.
        cost_wall_s: Sum of the wall seconds of all landmarks, crashed attempts included.
        cost_device_s: Sum of the device seconds of all landmarks, crashed attempts included.
        counts: Number of trials by state; states without a trial are absent.
        n_trials: Number of trials.
        n_decisions: Number of decisions, whatever became of them.
        n_evaluations: Number of ok evaluations.
        tests: Test scores by trial index.
        reference_point: Bounds of the hypervolume in the order of ``front_objectives``; None
            before it is set.
        policy_state: What the policy wrote with its last decision.
        owner: Controller that holds the run; None if none does.
        heartbeat_at: When it last said so.
    """

    id: int
    state: RunState
    note: str
    spent_wall_s: float
    spent_device_s: float
    cost_wall_s: float
    cost_device_s: float
    counts: Mapping[str, int]
    n_trials: int
    n_decisions: int
    n_evaluations: int
    tests: Mapping[int, TestScore]
    reference_point: tuple[float, ...] | None
    policy_state: Any
    owner: str | None
    heartbeat_at: float | None
    created_at: float
    started_at: float | None
    finished_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHead:
    """What a front query needs to know of a run."""

    id: int
    name: str
    objectives: tuple[Objective, ...]
    front_objectives: tuple[str, ...]
    fidelities: tuple[float, ...]
    n_trials: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMember:
    """One candidate of a run without its history."""

    candidate: Candidate
    label: str
    test: TestScore | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One line of a list of runs."""

    id: int
    name: str
    family: str
    problem_name: str
    state: RunState
    note: str
    policy: str
    front_objectives: tuple[str, ...]
    n_trials: int
    n_complete: int
    n_evaluations: int
    spent_wall_s: float
    created_at: float
    finished_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvaluation:
    """One landmark of one trial; values that were not reported are NaN.

    Args:
        landmark: Index into the run's fidelities.
        fidelity: Share of the full effort.
        state: ``ok`` or ``failed``.
        values: Value per objective of the run.
        signals: Diagnostics; ``reported`` holds values of a failed landmark that were no numbers.
        cost: What it spent; None where a failed landmark reported nothing.
    """

    landmark: int
    fidelity: float
    state: EvaluationState
    values: Mapping[str, float]
    signals: Mapping[str, Any]
    cost: Cost | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoint:
    """Where the newest state of a trial lies."""

    uri: str
    landmark: int
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One candidate in one run.

    Args:
        index: Position in the pool, from 0.
        candidate: Method and params.
        label: For people.
        state: See `lamps.store.states`.
        landmark: Index of its last ok landmark, -1 before the first.
        error: Of the last failure or crash; None if there was none.
        attempts: Times its latest landmark was tried; 0 before the first decision.
        size_hint: Expected size; NaN if unknown.
        checkpoint: Newest one, if any.
        evaluations: By landmark.
        test: Its test score, if it was measured.
    """

    index: int
    candidate: Candidate
    label: str
    state: TrialState
    landmark: int
    error: str | None
    attempts: int
    size_hint: float
    checkpoint: StoredCheckpoint | None
    evaluations: list[StoredEvaluation]
    test: TestScore | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A landmark to be executed."""

    id: int
    seq: int
    trial_index: int
    landmark: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord(Decision):
    """A decision with all that is known about it."""

    policy: str
    features_hash: str
    seed: int
    note: str
    state: DecisionState
    error: str | None
    created_at: float
    finished_at: float | None

    @property
    def choice(self) -> tuple[int, int, int, str, str, int]:
        """What was decided, without times and outcome: equal for a run and its replay."""
        return (
            self.seq,
            self.trial_index,
            self.landmark,
            self.policy,
            self.features_hash,
            self.seed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalValues:
    """The last ok evaluation of every trial that has one, by trial index.

    Shape:
        trial_index: [n] int64;  landmark: [n] int64;  values: [n, m] float64 in the order of
            ``names``.
    """

    names: tuple[str, ...]
    trial_index: NDArray[np.int64]
    landmark: NDArray[np.int64]
    values: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRecord:
    """A trained policy."""

    name: str
    version: str
    weights_sha256: str
    training_tables: Sequence[Json]
    score: float
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyScore:
    """One replay of a landmark table with a policy; times are shares of the exhaustive time.

    Args:
        policy: Its label.
        version: Of the policy.
        weights_sha256: Hash of its weights; empty if it has none.
        code: Version of the code that replayed it.
        table_name: The landmark table.
        family: Of the table.
        fingerprint: Hash of the table.
        pool: Hash of the replayed part of it.
        objectives: Names.
        candidates: Size of the pool.
        landmarks: Of a full curve.
        front: Candidates on the final front.
        workers: Landmarks at once.
        seed: Of the policy; -1 for a mean over several.
        measures: By name; NaN where unknown.
        created_at: When it was stored first.
    """

    policy: str
    version: str
    weights_sha256: str
    code: str
    table_name: str
    family: str
    fingerprint: str
    pool: str
    objectives: tuple[str, ...]
    candidates: int
    landmarks: int
    front: int
    workers: int
    seed: int
    measures: Mapping[str, float]
    created_at: float = 0.0
