"""Find what may go, what waits for a time, and check runs that were asked for, without reading all there ever were.

In a revision of its own: an index is made while others read the table, a column is not. Nobody writes to it meanwhile.
Not concurrently, which waits for all who read: for the replica, too, that waits in order to migrate, and until then for
a backup; and what it leaves behind when it is interrupted looks like an index and is none.

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_READY = "state = 'ready' AND waits_for <> 'time'"
_UNTIL = "state = 'ready' AND waits_for = 'time'"


def upgrade() -> None:
    """Apply this revision."""
    op.create_index(
        "ix_effect_ready",
        "effect",
        ["waits_for", "priority", sa.text("id DESC")],
        unique=False,
        sqlite_where=sa.text(_READY),
        postgresql_where=sa.text(_READY),
    )
    op.create_index(
        "ix_effect_until",
        "effect",
        ["due"],
        unique=False,
        sqlite_where=sa.text(_UNTIL),
        postgresql_where=sa.text(_UNTIL),
    )
    op.create_index(
        "ix_check_creating",
        "check",
        ["id"],
        unique=False,
        sqlite_where=sa.text("creating = 1"),
        postgresql_where=sa.text("creating"),
    )


def downgrade() -> None:
    """Undo this revision."""
    op.drop_index("ix_check_creating", table_name="check")
    op.drop_index("ix_effect_until", table_name="effect")
    op.drop_index("ix_effect_ready", table_name="effect")
