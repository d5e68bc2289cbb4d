"""How policies did in replays of landmark tables.

Revision: 0002, after 0001.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

MEASURES = (
    "time_99",
    "time_999",
    "time_100",
    "zero_99",
    "zero_999",
    "zero_100",
    "area",
    "stop_value",
    "stop_time",
    "decision_ms",
)


def upgrade() -> None:
    op.create_table(
        "policy_scores",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("policy", sa.String(length=500), nullable=False),
        sa.Column("version", sa.String(length=500), nullable=False),
        sa.Column("weights_sha256", sa.String(length=64), nullable=False),
        sa.Column("code", sa.String(length=500), nullable=False),
        sa.Column("table_name", sa.String(length=500), nullable=False),
        sa.Column("family", sa.String(length=500), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("pool", sa.String(length=64), nullable=False),
        sa.Column("objectives", sa.Text(), nullable=False),
        sa.Column("candidates", sa.Integer(), nullable=False),
        sa.Column("landmarks", sa.Integer(), nullable=False),
        sa.Column("front", sa.Integer(), nullable=False),
        sa.Column("workers", sa.Integer(), nullable=False),
        sa.Column("seed", sa.String(length=80), nullable=False),
        *(sa.Column(name, sa.Double(), nullable=True) for name in MEASURES),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_policy_scores"),
        sa.UniqueConstraint("key", name="uq_policy_scores_key"),
    )
    op.create_index("ix_policy_scores_table_name", "policy_scores", ["table_name"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_policy_scores_table_name", table_name="policy_scores")
    op.drop_table("policy_scores")
