"""What replications of papers' claims measured, pair by pair.

Revision: 0003, after 0002.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "replications",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("family", sa.String(length=500), nullable=False),
        sa.Column("method", sa.String(length=500), nullable=False),
        sa.Column("method_version", sa.String(length=500), nullable=False),
        sa.Column("version", sa.String(length=500), nullable=False),
        sa.Column("profile", sa.String(length=500), nullable=False),
        sa.Column("fingerprint", sa.String(length=500), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("paper", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_replications"),
        sa.UniqueConstraint("key", name="uq_replications_key"),
    )
    op.create_index("ix_replications_method", "replications", ["method"], unique=False)
    op.create_table(
        "replication_claims",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("replication_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=500), nullable=False),
        sa.Column("version", sa.String(length=500), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["replication_id"],
            ["replications.id"],
            name="fk_replication_claims_replication_id_replications",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_replication_claims"),
        sa.UniqueConstraint(
            "replication_id",
            "name",
            "version",
            name="uq_replication_claims_replication_id_name_version",
        ),
    )
    op.create_table(
        "replication_seeds",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("claim_id", sa.Integer(), nullable=False),
        sa.Column("seed", sa.String(length=80), nullable=False),
        sa.Column("facts", sa.Text(), nullable=True),
        sa.Column("wall_s", sa.Double(), nullable=True),
        sa.Column("begun_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["claim_id"],
            ["replication_claims.id"],
            name="fk_replication_seeds_claim_id_replication_claims",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_replication_seeds"),
        sa.UniqueConstraint("claim_id", "seed", name="uq_replication_seeds_claim_id_seed"),
    )
    op.create_table(
        "replication_measurements",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("seed_id", sa.Integer(), nullable=False),
        sa.Column("unit", sa.String(length=500), nullable=False),
        sa.Column("newcomer", sa.Double(), nullable=True),
        sa.Column("comparison", sa.Double(), nullable=True),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["seed_id"],
            ["replication_seeds.id"],
            name="fk_replication_measurements_seed_id_replication_seeds",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_replication_measurements"),
        sa.UniqueConstraint("seed_id", "unit", name="uq_replication_measurements_seed_id_unit"),
    )


def downgrade() -> None:
    op.drop_table("replication_measurements")
    op.drop_table("replication_seeds")
    op.drop_table("replication_claims")
    op.drop_index("ix_replications_method", table_name="replications")
    op.drop_table("replications")
