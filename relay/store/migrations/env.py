"""Alembic's entry point. It runs on the connection that ``relay.store.schema`` hands it, never on one of its own."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from relay.store.tables import metadata

# SQLite does not say of an index that a column of it descends, so these would look as if they had been changed.
_DESCENDING = {"ix_effect_ready"}


def _is_compared(_object: object, name: str | None, kind: str, _reflected: bool, _other: object) -> bool:
    return kind != "index" or name not in _DESCENDING or context.get_context().dialect.name != "sqlite"


def _run(connection: Connection) -> None:
    # Batch mode rebuilds a table where SQLite cannot alter it in place; on PostgreSQL it alters in place.
    context.configure(
        connection=connection,
        target_metadata=metadata,
        render_as_batch=True,
        compare_type=True,
        include_object=_is_compared,
    )
    with context.begin_transaction():
        context.run_migrations()


_run(context.config.attributes["connection"])
