"""The first schema: runs, trials, decisions, evaluations and what they point to.

Revision: 0001, after nothing.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "candidates",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("family", sa.String(length=500), nullable=False),
        sa.Column("method", sa.String(length=500), nullable=False),
        sa.Column("params", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_candidates"),
        sa.UniqueConstraint("key", name="uq_candidates_key"),
    )
    op.create_table(
        "methods",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("family", sa.String(length=500), nullable=False),
        sa.Column("name", sa.String(length=500), nullable=False),
        sa.Column("version", sa.String(length=500), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_methods"),
        sa.UniqueConstraint("family", "name", "version", name="uq_methods_family_name_version"),
    )
    op.create_table(
        "models",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=500), nullable=False),
        sa.Column("kind", sa.String(length=500), nullable=False),
        sa.Column("path", sa.Text(), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("parameters", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("licence", sa.Text(), nullable=False),
        sa.Column("n_layers", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_models"),
        sa.UniqueConstraint("key", name="uq_models_key"),
    )
    op.create_table(
        "policies",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=500), nullable=False),
        sa.Column("version", sa.String(length=500), nullable=False),
        sa.Column("weights_sha256", sa.String(length=64), nullable=False),
        sa.Column("training_tables", sa.Text(), nullable=False),
        sa.Column("score", sa.Double(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_policies"),
        sa.UniqueConstraint("name", "version", name="uq_policies_name_version"),
    )
    op.create_table(
        "problems",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("family", sa.String(length=500), nullable=False),
        sa.Column("name", sa.String(length=500), nullable=False),
        sa.Column("fingerprint", sa.String(length=500), nullable=False),
        sa.Column("reference", sa.Text(), nullable=False),
        sa.Column("card", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_problems"),
        sa.UniqueConstraint("key", name="uq_problems_key"),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=500), nullable=False),
        sa.Column("problem_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("objectives", sa.Text(), nullable=False),
        sa.Column("front_objectives", sa.Text(), nullable=False),
        sa.Column("fidelities", sa.Text(), nullable=False),
        sa.Column("unit", sa.String(length=500), nullable=False),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("seed", sa.String(length=80), nullable=False),
        sa.Column("budget", sa.Text(), nullable=False),
        sa.Column("policy", sa.String(length=500), nullable=False),
        sa.Column("policy_version", sa.String(length=500), nullable=False),
        sa.Column("policy_state", sa.Text(), nullable=True),
        sa.Column("reference_point", sa.LargeBinary(), nullable=True),
        sa.Column("workers", sa.Integer(), nullable=False),
        sa.Column("artifact_root", sa.Text(), nullable=False),
        sa.Column("spent_wall_s", sa.Double(), nullable=False),
        sa.Column("spent_device_s", sa.Double(), nullable=False),
        sa.Column("owner", sa.String(length=500), nullable=True),
        sa.Column("owner_pid", sa.Integer(), nullable=True),
        sa.Column("owner_host", sa.String(length=500), nullable=True),
        sa.Column("heartbeat_at", sa.Double(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "state IN ('created', 'running', 'interrupted', 'exhausted', 'finished', 'failed')",
            name=op.f("ck_runs_state"),
        ),
        sa.ForeignKeyConstraint(
            ["problem_id"], ["problems.id"], name="fk_runs_problem_id_problems"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        sa.UniqueConstraint("name", name="uq_runs_name"),
    )
    op.create_index("ix_runs_problem_id", "runs", ["problem_id"], unique=False)
    op.create_table(
        "run_models",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_run_models_model_id_models"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_run_models_run_id_runs"),
        sa.PrimaryKeyConstraint("id", name="pk_run_models"),
        sa.UniqueConstraint("run_id", "model_id", name="uq_run_models_run_id_model_id"),
    )
    op.create_index("ix_run_models_model_id", "run_models", ["model_id"], unique=False)
    op.create_table(
        "trials",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("trial_index", sa.Integer(), nullable=False),
        sa.Column("candidate_id", sa.Integer(), nullable=False),
        sa.Column("method_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("landmark", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("label", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("size_hint", sa.Double(), nullable=True),
        sa.Column("test_values", sa.Text(), nullable=True),
        sa.Column("test_signals", sa.Text(), nullable=True),
        sa.Column("tested_at", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "state IN ('waiting', 'running', 'paused', 'complete', 'stopped', 'failed', "
            "'crashed', 'cancelled')",
            name=op.f("ck_trials_state"),
        ),
        sa.CheckConstraint("landmark >= -1", name=op.f("ck_trials_landmark")),
        sa.ForeignKeyConstraint(
            ["candidate_id"], ["candidates.id"], name="fk_trials_candidate_id_candidates"
        ),
        sa.ForeignKeyConstraint(["method_id"], ["methods.id"], name="fk_trials_method_id_methods"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_trials_run_id_runs"),
        sa.PrimaryKeyConstraint("id", name="pk_trials"),
        sa.UniqueConstraint("run_id", "trial_index", name="uq_trials_run_id_trial_index"),
    )
    op.create_index("ix_trials_candidate_id", "trials", ["candidate_id"], unique=False)
    op.create_index("ix_trials_method_id", "trials", ["method_id"], unique=False)
    op.create_table(
        "decisions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("landmark", sa.Integer(), nullable=False),
        sa.Column("policy", sa.String(length=500), nullable=False),
        sa.Column("features_hash", sa.String(length=500), nullable=False),
        sa.Column("seed", sa.String(length=80), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "state IN ('pending', 'done', 'failed', 'crashed', 'cancelled', 'abandoned')",
            name=op.f("ck_decisions_state"),
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_decisions_run_id_runs"),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name="fk_decisions_trial_id_trials"),
        sa.PrimaryKeyConstraint("id", name="pk_decisions"),
        sa.UniqueConstraint("run_id", "seq", name="uq_decisions_run_id_seq"),
    )
    op.create_index("ix_decisions_trial_id", "decisions", ["trial_id"], unique=False)
    op.create_index(
        "uq_decisions_pending_trial",
        "decisions",
        ["trial_id"],
        unique=True,
        sqlite_where=sa.text("state = 'pending'"),
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_table(
        "checkpoints",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("decision_id", sa.Integer(), nullable=False),
        sa.Column("landmark", sa.Integer(), nullable=False),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["decision_id"], ["decisions.id"], name="fk_checkpoints_decision_id_decisions"
        ),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["trials.id"], name="fk_checkpoints_trial_id_trials"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_checkpoints"),
        sa.UniqueConstraint("trial_id", name="uq_checkpoints_trial_id"),
    )
    op.create_index("ix_checkpoints_decision_id", "checkpoints", ["decision_id"], unique=False)
    op.create_table(
        "costs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("decision_id", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("wall_s", sa.Double(), nullable=True),
        sa.Column("device_s", sa.Double(), nullable=True),
        sa.Column("peak_bytes", sa.BigInteger(), nullable=False),
        sa.Column("checkpoint_bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["decision_id"], ["decisions.id"], name="fk_costs_decision_id_decisions"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_costs"),
        sa.UniqueConstraint("decision_id", "attempt", name="uq_costs_decision_id_attempt"),
    )
    op.create_table(
        "evaluations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("decision_id", sa.Integer(), nullable=False),
        sa.Column("landmark", sa.Integer(), nullable=False),
        sa.Column("fidelity", sa.Double(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("packed", sa.LargeBinary(), nullable=False),
        sa.Column("signals", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint("state IN ('ok', 'failed')", name=op.f("ck_evaluations_state")),
        sa.ForeignKeyConstraint(
            ["decision_id"], ["decisions.id"], name="fk_evaluations_decision_id_decisions"
        ),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["trials.id"], name="fk_evaluations_trial_id_trials"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_evaluations"),
        sa.UniqueConstraint("decision_id", name="uq_evaluations_decision_id"),
        sa.UniqueConstraint("trial_id", "landmark", name="uq_evaluations_trial_id_landmark"),
    )


def downgrade() -> None:

    for table in (
        "evaluations",
        "costs",
        "checkpoints",
        "decisions",
        "trials",
        "run_models",
        "runs",
        "problems",
        "policies",
        "models",
        "methods",
        "candidates",
    ):
        op.drop_table(table)
