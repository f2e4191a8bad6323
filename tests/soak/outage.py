"""The relay's database, taken away from outside and given back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from sqlalchemy import text
from sqlalchemy.engine import URL, make_url

from relay.store.engine import make_engine

#: Longer than it takes for whoever holds the lock to let go of it.
_LOCK_SECONDS = 30.0


@contextmanager
def database_down(url: str) -> Iterator[None]:
    """Nobody can commit to this database within the block: on PostgreSQL all are cut off, on SQLite it stays locked."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        with closing(sqlite3.connect(str(parsed.database), timeout=_LOCK_SECONDS, isolation_level=None)) as held:
            held.execute("BEGIN IMMEDIATE")
            yield
            held.execute("ROLLBACK")
        return
    _let_in(parsed, "false")
    try:
        yield
    finally:
        _let_in(parsed, "true")


def _let_in(parsed: URL, allowed: str) -> None:
    """Whether the database takes connections; where it does not, those that there are end. Needs a superuser."""
    name = parsed.database or ""
    elsewhere = parsed.set(database="template1" if name == "postgres" else "postgres")
    engine = make_engine(elsewhere.render_as_string(hide_password=False))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.execute(text(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS {allowed}'))
        if allowed == "false":
            ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"
            conn.execute(text(ended), {"name": name}).all()
    engine.dispose()
