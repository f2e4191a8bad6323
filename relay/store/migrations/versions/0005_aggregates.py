"""What is kept for ever, and what decisions can be replayed from.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
import sqlmodel
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply this revision."""
    op.create_table(
        "allowlist_version",
        sa.Column("digest", sqlmodel.sql.sqltypes.AutoString(length=64), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("kept_at", sqlmodel.sql.sqltypes.UTCDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_table(
        "dispatch_history",
        sa.Column("day", sqlmodel.sql.sqltypes.AutoString(length=10), nullable=False),
        sa.Column("backend", sqlmodel.sql.sqltypes.AutoString(length=160), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("kind", sqlmodel.sql.sqltypes.AutoString(length=32), nullable=False),
        sa.Column("purpose", sqlmodel.sql.sqltypes.AutoString(length=32), nullable=False),
        sa.Column("outcome", sqlmodel.sql.sqltypes.AutoString(length=32), nullable=False),
        sa.Column("dispatches", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("sent", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("late", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("reports", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("jobs", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("queue_count", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("queue_ms", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("queue_ms_most", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("execution_count", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("execution_ms", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("execution_ms_most", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.PrimaryKeyConstraint("day", "backend", "level", "kind", "purpose", "outcome"),
    )
    op.create_table(
        "combination_history",
        sa.Column("day", sqlmodel.sql.sqltypes.AutoString(length=10), nullable=False),
        sa.Column("backend", sqlmodel.sql.sqltypes.AutoString(length=160), nullable=False),
        sa.Column("backend_version", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("suite_version", sqlmodel.sql.sqltypes.AutoString(), nullable=False),
        sa.Column("conclusion", sqlmodel.sql.sqltypes.AutoString(length=32), nullable=False),
        sa.Column("jobs", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("passed", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("failed", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("skipped", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("total", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.PrimaryKeyConstraint("day", "backend", "backend_version", "suite_version", "conclusion"),
    )
    with op.batch_alter_table("delivery", schema=None) as batch_op:
        batch_op.add_column(sa.Column("ground", sa.Text(), nullable=True))

    # The list in force was taken up before versions were kept, and what is decided from now on is decided by it.
    op.execute(
        "INSERT INTO allowlist_version (digest, body, kept_at) "
        "SELECT digest, body, updated_at FROM document WHERE key = 'allowlist' AND length(digest) BETWEEN 1 AND 64"
    )


def downgrade() -> None:
    """Undo this revision."""
    with op.batch_alter_table("delivery", schema=None) as batch_op:
        batch_op.drop_column("ground")

    op.drop_table("combination_history")
    op.drop_table("dispatch_history")
    op.drop_table("allowlist_version")
