"""What people ask for, what GitHub shows of runs, and what we say on pull requests.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
import sqlmodel
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply this revision."""
    op.create_table(
        "command",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("delivery_id", sqlmodel.sql.sqltypes.AutoString(length=128), nullable=False),
        sa.Column("source", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("head_sha", sqlmodel.sql.sqltypes.AutoString(length=64), nullable=True),
        sa.Column("comment_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("sender", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("verb", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("backend", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("check_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("words", sa.Text(), nullable=False),
        sa.Column("state", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("role", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("created_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=False),
        sa.Column("decided_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("delivery_id"),
    )
    with op.batch_alter_table("command", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_command_number"), ["number"], unique=False)

    op.create_table(
        "comment",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("topic", sqlmodel.sql.sqltypes.AutoString(length=300), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("wanted", sqlmodel.sql.sqltypes.AutoString(length=64), nullable=False),
        sa.Column("applied", sqlmodel.sql.sqltypes.AutoString(length=64), nullable=True),
        sa.Column("github_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("creating", sa.Boolean(), nullable=False),
        sa.Column("head_sha", sqlmodel.sql.sqltypes.AutoString(length=64), nullable=True),
        sa.Column("created_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=False),
        sa.Column("written_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("number", "topic", name="uq_comment_number_topic"),
    )
    op.create_table(
        "override",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("head_sha", sqlmodel.sql.sqltypes.AutoString(length=64), nullable=False),
        sa.Column("backend", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("who", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("head_sha", "backend", name="uq_override_head_backend"),
    )
    op.create_table(
        "observation",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("dispatch_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("run_id", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("run_attempt", sa.Integer(), nullable=False),
        sa.Column("status", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("conclusion", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("workflow", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("jobs", sa.Text(), nullable=False),
        sa.Column("etag", sqlmodel.sql.sqltypes.AutoString(), nullable=True),
        sa.Column("seen_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["dispatch_id"],
            ["dispatch.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("dispatch_id", "run_id", "run_attempt", name="uq_observation_attempt"),
    )
    with op.batch_alter_table("backend", schema=None) as batch_op:
        batch_op.add_column(sa.Column("demoted_to", sa.Integer(), nullable=True))
        batch_op.add_column(sa.Column("demoted_until", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True))
        batch_op.add_column(sa.Column("demote_reason", sqlmodel.sql.sqltypes.AutoString(), nullable=True))

    with op.batch_alter_table("dispatch", schema=None) as batch_op:
        batch_op.add_column(sa.Column("cause", sqlmodel.sql.sqltypes.AutoString(), nullable=False, server_default=""))
        batch_op.add_column(sa.Column("rerun_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True))
        batch_op.add_column(
            sa.Column("rerun_by", sqlmodel.sql.sqltypes.AutoString(), nullable=False, server_default="")
        )
        batch_op.add_column(sa.Column("observed_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=True))
        batch_op.add_column(
            sa.Column("observe_note", sqlmodel.sql.sqltypes.AutoString(), nullable=False, server_default="")
        )
        batch_op.create_index(
            "ix_dispatch_paused",
            ["backend"],
            unique=False,
            sqlite_where=sa.text("state = 'paused'"),
            postgresql_where=sa.text("state = 'paused'"),
        )


def downgrade() -> None:
    """Undo this revision."""
    with op.batch_alter_table("dispatch", schema=None) as batch_op:
        batch_op.drop_index("ix_dispatch_paused")
        batch_op.drop_column("observe_note")
        batch_op.drop_column("observed_at")
        batch_op.drop_column("rerun_by")
        batch_op.drop_column("rerun_at")
        batch_op.drop_column("cause")

    with op.batch_alter_table("backend", schema=None) as batch_op:
        batch_op.drop_column("demote_reason")
        batch_op.drop_column("demoted_until")
        batch_op.drop_column("demoted_to")

    op.drop_table("observation")
    op.drop_table("override")
    op.drop_table("comment")
    with op.batch_alter_table("command", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_command_number"))

    op.drop_table("command")
