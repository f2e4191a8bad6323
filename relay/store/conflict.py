"""INSERT for a row that may be there already, in the dialect of each database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Insert
from sqlalchemy.dialects import postgresql, sqlite


def on_conflict_do_nothing(conn: Connection, table: Any, **where: Any) -> Insert:
    """An INSERT that leaves an existing row alone."""
    if conn.dialect.name == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing(**where)
    return sqlite.insert(table).on_conflict_do_nothing(**where)


def on_conflict_replace(conn: Connection, table: Any, key: str, columns: Sequence[str]) -> Insert:
    """An INSERT that replaces these columns of the row that has this key already."""
    upsert: Any = (postgresql if conn.dialect.name == "postgresql" else sqlite).insert(table)
    replaced: Insert = upsert.on_conflict_do_update(
        index_elements=[key], set_={name: upsert.excluded[name] for name in columns}
    )
    return replaced
