"""Find what one backend was told in the last minutes without reading all that it was told in ninety days.

Not concurrently, as revision 0010 says of its own.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_DISPATCHES = "kind = 'dispatch'"


def upgrade() -> None:
    """Apply this revision."""
    op.create_index(
        "ix_effect_dispatched",
        "effect",
        ["subject", "finished_at"],
        unique=False,
        sqlite_where=sa.text(_DISPATCHES),
        postgresql_where=sa.text(_DISPATCHES),
    )


def downgrade() -> None:
    """Undo this revision."""
    op.drop_index("ix_effect_dispatched", table_name="effect")
