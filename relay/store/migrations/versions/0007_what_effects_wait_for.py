"""Keep what each effect waits for, so that a claim reads what it can take and not all that is owed.

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
import sqlmodel
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply this revision."""
    # Not in a batch: on SQLite that would copy a table which can be long.
    waits_for = sqlmodel.sql.sqltypes.AutoString(length=200)
    op.add_column("effect", sa.Column("waits_for", waits_for, server_default="", nullable=False))


def downgrade() -> None:
    """Undo this revision."""
    op.drop_column("effect", "waits_for")
