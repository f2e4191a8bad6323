"""Webhooks that never came, and what was found missing.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
import sqlmodel
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply this revision."""
    big = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    text = sqlmodel.sql.sqltypes.AutoString
    time = sqlmodel.sql.sqltypes.UTCDateTime
    op.create_table(
        "gap",
        sa.Column("id", big, autoincrement=True, nullable=False),
        sa.Column("cause", text(length=32), nullable=False),
        sa.Column("subject", text(length=320), nullable=False),
        sa.Column("head_sha", text(length=64), nullable=False),
        sa.Column("number", big, nullable=True),
        sa.Column("ref", text(), nullable=True),
        sa.Column("event", text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("updated_at", time(), nullable=False),
        sa.Column("found_at", time(), nullable=False),
        sa.Column("not_before", time(), nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("app_id", text(length=64), nullable=False),
        sa.Column("github_id", big, nullable=True),
        sa.Column("asking_at", time(), nullable=True),
        sa.Column("asked_at", time(), nullable=True),
        sa.Column("delivery_id", text(length=128), nullable=True),
        sa.Column("ended_at", time(), nullable=True),
        sa.Column("healed", sa.Boolean(), nullable=False),
        sa.Column("how", text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("cause", "subject", "head_sha", name="uq_gap_cause_subject_head"),
    )
    with op.batch_alter_table("gap", schema=None) as batch_op:
        batch_op.create_index("ix_gap_ended_at", ["ended_at"], unique=False)
        batch_op.create_index(
            "ix_gap_open",
            ["id"],
            unique=False,
            sqlite_where=sa.text("ended_at IS NULL"),
            postgresql_where=sa.text("ended_at IS NULL"),
        )
    op.create_table(
        "listing",
        sa.Column("backend", text(length=160), nullable=False),
        sa.Column("asks", text(length=64), nullable=False),
        sa.Column("since", time(), nullable=False),
        sa.PrimaryKeyConstraint("backend"),
    )
    op.create_table(
        "turn",
        sa.Column("name", text(length=128), nullable=False),
        sa.Column("due_at", time(), nullable=False),
        sa.Column("began_at", time(), nullable=True),
        sa.Column("mark", time(), nullable=True),
        sa.PrimaryKeyConstraint("name"),
    )


def downgrade() -> None:
    """Undo this revision."""
    op.drop_table("turn")
    op.drop_table("listing")
    with op.batch_alter_table("gap", schema=None) as batch_op:
        batch_op.drop_index("ix_gap_open")
        batch_op.drop_index("ix_gap_ended_at")

    op.drop_table("gap")
