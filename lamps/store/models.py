"""The tables, as typed SQLAlchemy models; one schema for SQLite and PostgreSQL.

Everything a front, a report or a training table needs is here; files under the artifact root are
only weights. Times are seconds since 1970, sizes bytes. Constraints are named by convention, so
that a migration can address them.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from lamps.store import states
from lamps.store.columns import JsonText, Real, Seed

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
"""How constraints are named; migrations rely on it."""

NAME = String(500)


def _one_of(column: str, values: tuple[str, ...]) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=column)


class Base(DeclarativeBase):
    """Root of all tables; holds the naming convention."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: Text(),
        float: Double(),
        bytes: LargeBinary(),
    }

    id: Mapped[int] = mapped_column(Integer, primary_key=True)


def core(model: type[Base]) -> Table:
    """The table of a model: statements on it are built without the ORM's bookkeeping."""
    return cast(Table, model.__table__)


class ProblemRow(Base):
    """One concrete instance of a family, with meta-features and data hash."""

    __tablename__ = "problems"

    key: Mapped[str] = mapped_column(String(64), unique=True)  # digest of all that follows
    family: Mapped[str] = mapped_column(NAME)
    name: Mapped[str] = mapped_column(NAME)
    fingerprint: Mapped[str] = mapped_column(NAME)
    reference: Mapped[Any] = mapped_column(JsonText)
    card: Mapped[Any] = mapped_column(JsonText)


class MethodRow(Base):
    """A method at one version."""

    __tablename__ = "methods"
    __table_args__ = (UniqueConstraint("family", "name", "version"),)

    family: Mapped[str] = mapped_column(NAME)
    name: Mapped[str] = mapped_column(NAME)
    version: Mapped[str] = mapped_column(NAME)


class ModelRow(Base):
    """A pretrained model as it lay on disk when a run used it."""

    __tablename__ = "models"

    key: Mapped[str] = mapped_column(String(64), unique=True)  # digest of all that follows
    name: Mapped[str] = mapped_column(NAME)
    kind: Mapped[str] = mapped_column(NAME)
    path: Mapped[str | None]
    source: Mapped[str]
    sha256: Mapped[str] = mapped_column(String(64))
    parameters: Mapped[int] = mapped_column(BigInteger)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    licence: Mapped[str]
    n_layers: Mapped[int]
    state: Mapped[str] = mapped_column(String(20))


class CandidateRow(Base):
    """A method with its params; shared by all runs that consider it."""

    __tablename__ = "candidates"

    key: Mapped[str] = mapped_column(String(64), unique=True)
    family: Mapped[str] = mapped_column(NAME)
    method: Mapped[str] = mapped_column(NAME)
    params: Mapped[Any] = mapped_column(JsonText)
    label: Mapped[str]


class RunRow(Base):
    """One search over a pool under a budget, and the controller that holds it."""

    __tablename__ = "runs"
    __table_args__ = (_one_of("state", states.RUN_STATES),)

    name: Mapped[str] = mapped_column(NAME, unique=True)
    problem_id: Mapped[int] = mapped_column(ForeignKey("problems.id"), index=True)
    state: Mapped[str] = mapped_column(String(20))
    note: Mapped[str] = mapped_column(default="")
    objectives: Mapped[Any] = mapped_column(JsonText)
    front_objectives: Mapped[Any] = mapped_column(JsonText)
    fidelities: Mapped[Any] = mapped_column(JsonText)
    unit: Mapped[str] = mapped_column(NAME)
    settings: Mapped[Any] = mapped_column(JsonText)
    seed: Mapped[int] = mapped_column(Seed)
    budget: Mapped[Any] = mapped_column(JsonText)
    policy: Mapped[str] = mapped_column(NAME)
    policy_version: Mapped[str] = mapped_column(NAME)
    policy_state: Mapped[Any | None] = mapped_column(JsonText)
    reference_point: Mapped[bytes | None]
    workers: Mapped[int]
    artifact_root: Mapped[str]
    spent_wall_s: Mapped[float] = mapped_column(default=0.0)
    spent_device_s: Mapped[float] = mapped_column(default=0.0)
    owner: Mapped[str | None] = mapped_column(NAME)
    owner_pid: Mapped[int | None]
    owner_host: Mapped[str | None] = mapped_column(NAME)
    heartbeat_at: Mapped[float | None]
    created_at: Mapped[float]
    started_at: Mapped[float | None]
    finished_at: Mapped[float | None]


class RunModelRow(Base):
    """Which models a run could use."""

    __tablename__ = "run_models"
    __table_args__ = (UniqueConstraint("run_id", "model_id"),)

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"))
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"), index=True)


class TrialRow(Base):
    """One candidate worked on in one run.

    ``landmark`` is its last ok evaluation, -1 before the first.
    """

    __tablename__ = "trials"
    __table_args__ = (
        UniqueConstraint("run_id", "trial_index"),
        _one_of("state", states.TRIAL_STATES),
        CheckConstraint("landmark >= -1", name="landmark"),
    )

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"))
    trial_index: Mapped[int]
    candidate_id: Mapped[int] = mapped_column(ForeignKey("candidates.id"), index=True)
    method_id: Mapped[int] = mapped_column(ForeignKey("methods.id"), index=True)
    state: Mapped[str] = mapped_column(String(20))
    landmark: Mapped[int]
    attempts: Mapped[int] = mapped_column(default=0)
    label: Mapped[str | None]
    error: Mapped[str | None]
    size_hint: Mapped[float | None] = mapped_column(Real)
    test_values: Mapped[Any | None] = mapped_column(JsonText)
    test_signals: Mapped[Any | None] = mapped_column(JsonText)
    tested_at: Mapped[float | None]


class DecisionRow(Base):
    """What a policy chose; written before it is acted on."""

    __tablename__ = "decisions"
    __table_args__ = (
        UniqueConstraint("run_id", "seq"),
        _one_of("state", states.DECISION_STATES),
        # The database itself refuses a second landmark in flight for one trial.
        Index(
            "uq_decisions_pending_trial",
            "trial_id",
            unique=True,
            sqlite_where=text("state = 'pending'"),
            postgresql_where=text("state = 'pending'"),
        ),
    )

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"))
    trial_id: Mapped[int] = mapped_column(ForeignKey("trials.id"), index=True)
    seq: Mapped[int]
    landmark: Mapped[int]
    policy: Mapped[str] = mapped_column(NAME)
    features_hash: Mapped[str] = mapped_column(NAME)
    seed: Mapped[int] = mapped_column(Seed)
    note: Mapped[str] = mapped_column(default="")
    state: Mapped[str] = mapped_column(String(20))
    attempt: Mapped[int]
    error: Mapped[str | None]
    created_at: Mapped[float]
    finished_at: Mapped[float | None]


class EvaluationRow(Base):
    """One row per trial and landmark.

    ``packed`` holds the run's objectives, see `lamps.store.columns`.
    """

    __tablename__ = "evaluations"
    __table_args__ = (
        UniqueConstraint("trial_id", "landmark"),
        _one_of("state", states.EVALUATION_STATES),
    )

    trial_id: Mapped[int] = mapped_column(ForeignKey("trials.id"))
    decision_id: Mapped[int] = mapped_column(ForeignKey("decisions.id"), unique=True)
    landmark: Mapped[int]
    fidelity: Mapped[float]
    state: Mapped[str] = mapped_column(String(20))
    packed: Mapped[bytes]
    signals: Mapped[Any] = mapped_column(JsonText)
    created_at: Mapped[float]


class CostRow(Base):
    """What one attempt at a decision spent."""

    __tablename__ = "costs"
    __table_args__ = (UniqueConstraint("decision_id", "attempt"),)

    decision_id: Mapped[int] = mapped_column(ForeignKey("decisions.id"))
    attempt: Mapped[int]
    wall_s: Mapped[float | None] = mapped_column(Real)
    device_s: Mapped[float | None] = mapped_column(Real)
    peak_bytes: Mapped[int] = mapped_column(BigInteger)
    checkpoint_bytes: Mapped[int] = mapped_column(BigInteger)


class CheckpointRow(Base):
    """The newest checkpoint of a trial."""

    __tablename__ = "checkpoints"

    trial_id: Mapped[int] = mapped_column(ForeignKey("trials.id"), unique=True)
    decision_id: Mapped[int] = mapped_column(ForeignKey("decisions.id"), index=True)
    landmark: Mapped[int]
    uri: Mapped[str]
    sha256: Mapped[str] = mapped_column(String(64))
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[float]


class PolicyRow(Base):
    """A trained policy: which weights, learned from which tables, how good."""

    __tablename__ = "policies"
    __table_args__ = (UniqueConstraint("name", "version"),)

    name: Mapped[str] = mapped_column(NAME)
    version: Mapped[str] = mapped_column(NAME)
    weights_sha256: Mapped[str] = mapped_column(String(64))
    training_tables: Mapped[Any] = mapped_column(JsonText)
    score: Mapped[float | None] = mapped_column(Real)
    created_at: Mapped[float]


class PolicyScoreRow(Base):
    """How one policy did in one replay of a landmark table; see `lamps.policy.evaluate.Score`."""

    __tablename__ = "policy_scores"

    key: Mapped[str] = mapped_column(String(64), unique=True)  # digest of all but the measures
    policy: Mapped[str] = mapped_column(NAME)
    version: Mapped[str] = mapped_column(NAME)
    weights_sha256: Mapped[str] = mapped_column(String(64))
    code: Mapped[str] = mapped_column(NAME)
    table_name: Mapped[str] = mapped_column(NAME, index=True)
    family: Mapped[str] = mapped_column(NAME)
    fingerprint: Mapped[str] = mapped_column(String(64))
    pool: Mapped[str] = mapped_column(String(64))
    objectives: Mapped[Any] = mapped_column(JsonText)
    candidates: Mapped[int]
    landmarks: Mapped[int]
    front: Mapped[int]
    workers: Mapped[int]
    seed: Mapped[int] = mapped_column(Seed)
    time_99: Mapped[float | None] = mapped_column(Real)
    time_999: Mapped[float | None] = mapped_column(Real)
    time_100: Mapped[float | None] = mapped_column(Real)
    zero_99: Mapped[float | None] = mapped_column(Real)
    zero_999: Mapped[float | None] = mapped_column(Real)
    zero_100: Mapped[float | None] = mapped_column(Real)
    area: Mapped[float | None] = mapped_column(Real)
    stop_value: Mapped[float | None] = mapped_column(Real)
    stop_time: Mapped[float | None] = mapped_column(Real)
    decision_ms: Mapped[float | None] = mapped_column(Real)
    created_at: Mapped[float]


class ReplicationRow(Base):
    """The claims about one method at one version, measured on one set of data.

    See `lamps.replication`.
    """

    __tablename__ = "replications"

    key: Mapped[str] = mapped_column(String(64), unique=True)  # digest of all up to the next line
    family: Mapped[str] = mapped_column(NAME)
    method: Mapped[str] = mapped_column(NAME, index=True)
    method_version: Mapped[str] = mapped_column(NAME)
    version: Mapped[str] = mapped_column(NAME)
    profile: Mapped[str] = mapped_column(NAME)
    fingerprint: Mapped[str] = mapped_column(NAME)
    # What is said about the method; replaced each time the replication is run.
    summary: Mapped[str]
    paper: Mapped[Any | None] = mapped_column(JsonText)
    created_at: Mapped[float]


class ReplicationClaimRow(Base):
    """One claim of a replication; see `lamps.replication.Claim`."""

    __tablename__ = "replication_claims"
    __table_args__ = (UniqueConstraint("replication_id", "name", "version"),)

    replication_id: Mapped[int] = mapped_column(ForeignKey("replications.id"))
    name: Mapped[str] = mapped_column(NAME)
    version: Mapped[str] = mapped_column(NAME)
    position: Mapped[int]  # among the claims of today; -1 where it is none of them any more
    definition: Mapped[Any] = mapped_column(JsonText)


class ReplicationSeedRow(Base):
    """How far one claim was measured with one seed."""

    __tablename__ = "replication_seeds"
    __table_args__ = (UniqueConstraint("claim_id", "seed"),)

    claim_id: Mapped[int] = mapped_column(ForeignKey("replication_claims.id"))
    seed: Mapped[int] = mapped_column(Seed)
    facts: Mapped[Any | None] = mapped_column(JsonText)  # machine and versions
    wall_s: Mapped[float | None] = mapped_column(Real)
    begun_at: Mapped[float]
    finished_at: Mapped[float | None]


class ReplicationMeasurementRow(Base):
    """One pair of numbers; see `lamps.replication.Measurement`."""

    __tablename__ = "replication_measurements"
    __table_args__ = (UniqueConstraint("seed_id", "unit"),)

    seed_id: Mapped[int] = mapped_column(ForeignKey("replication_seeds.id"))
    unit: Mapped[str] = mapped_column(NAME)
    newcomer: Mapped[float | None] = mapped_column(Real)
    comparison: Mapped[float | None] = mapped_column(Real)
    details: Mapped[Any] = mapped_column(JsonText)
    created_at: Mapped[float]
