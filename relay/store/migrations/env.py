"""Alembic's entry point. It runs on the connection that ``relay.store.schema`` hands it, never on one of its own."""

from alembic import context
from sqlalchemy import Connection

from relay.store.tables import metadata


def _run(connection: Connection) -> None:
    # Batch mode rebuilds a table where SQLite cannot alter it in place; on PostgreSQL it alters in place.
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True, compare_type=True)
    with context.begin_transaction():
        context.run_migrations()


_run(context.config.attributes["connection"])
