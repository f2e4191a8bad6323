"""Keep of each try whether it may have taken effect although it failed.

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply this revision."""
    op.add_column("attempt", sa.Column("unsure", sa.Boolean(), nullable=True))


def downgrade() -> None:
    """Undo this revision."""
    op.drop_column("attempt", "unsure")
