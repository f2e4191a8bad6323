"""What each account may still ask of GitHub, and which backends are left alone.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
import sqlmodel
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply this revision."""
    op.create_table(
        "circuit",
        sa.Column("key", sqlmodel.sql.sqltypes.AutoString(length=200), nullable=False),
        sa.Column("state", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("first_failed", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("several", sa.Boolean(), nullable=False),
        sa.Column("refusing", sa.Boolean(), nullable=False),
        sa.Column("since", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=False),
        sa.Column("held_until", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True),
        sa.Column("probes", sa.Integer(), nullable=False),
        sa.Column("allowed", sa.Integer(), nullable=True),
        sa.Column("reason", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    with op.batch_alter_table("pacing", schema=None) as batch_op:
        batch_op.add_column(sa.Column("free_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True))
        batch_op.add_column(sa.Column("spent", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("strikes", sa.Integer(), nullable=True))
    # Not in a batch: on SQLite that may copy a table which can be long.
    op.add_column("effect", sa.Column("not_before", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True))
    op.create_index(
        "ix_effect_running",
        "effect",
        ["pacing"],
        unique=False,
        sqlite_where=sa.text("state = 'running'"),
        postgresql_where=sa.text("state = 'running'"),
    )


def downgrade() -> None:
    """Undo this revision."""
    op.drop_index("ix_effect_running", table_name="effect")
    with op.batch_alter_table("effect", schema=None) as batch_op:
        batch_op.drop_column("not_before")
    with op.batch_alter_table("pacing", schema=None) as batch_op:
        batch_op.drop_column("strikes")
        batch_op.drop_column("spent")
        batch_op.drop_column("free_at")
    op.drop_table("circuit")
