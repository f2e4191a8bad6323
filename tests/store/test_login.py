"""The database's password is rotated under a store that works, and the place of the database is not."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from relay.store.engine import Store, StoreDownError, make_engine
from relay.store.login import Login, same_place, url_file
from relay.store.notify import listen

ROLE = "crcr_rotated"
#: What is no URL, some of it with a password in it that was not written as a URL wants it.
NO_URLS = (
    "nonsense",
    "",
    "://a",
    "postgresql://crcr:s3cr@et:word@db/crcr",
    "postgresql://crcr:secret@[::1/crcr",
    "postgresql://crcr:secret@db:/crcr",
    f"postgresql://crcr:secret@db:{'9' * 5000}/crcr",
)
ASKED = (f"local all {ROLE} scram-sha-256", f"host all {ROLE} all scram-sha-256")


@pytest.fixture
def admin(postgres_url: str) -> Iterator[Any]:
    """Somebody who may set passwords, on a server that asks this one role for its."""
    engine = make_engine(postgres_url)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        path = conn.execute(text("SHOW hba_file")).scalar_one()
        usual = conn.execute(text("SELECT pg_read_file(:path)"), {"path": path}).scalar_one()

        def ask_by(rules: str) -> None:
            # What the server itself may write: these lines, one row each.
            rows = " UNION ALL ".join(f"SELECT $l${line}$l$" for line in rules.splitlines() if line.strip())
            conn.exec_driver_sql(f"COPY ({rows}) TO '{path}'")
            conn.execute(text("SELECT pg_reload_conf()"))

        conn.exec_driver_sql(f"DROP ROLE IF EXISTS {ROLE}")
        conn.exec_driver_sql(f"CREATE ROLE {ROLE} LOGIN SUPERUSER PASSWORD 'first'")
        ask_by("\n".join([*ASKED, usual]))
        try:
            yield conn
        finally:
            ask_by(usual)
            conn.exec_driver_sql(f"DROP ROLE {ROLE}")
    engine.dispose()


def entered(url: str, password: str, database: str | None = None) -> str:
    """The database's URL for that role."""
    made = make_url(url).set(username=ROLE, password=password, database=database)
    return made.render_as_string(hide_password=False)


def who(store: Store) -> str:
    """Whom the database takes a new writer for."""
    store.write_engine.dispose()
    return store.write_now(lambda conn: str(conn.execute(text("SELECT session_user")).scalar_one()))


@pytest.mark.postgres
def test_a_new_password_needs_no_restart(admin: Any, postgres_url: str, tmp_path: Path) -> None:
    """What is open stays open; a new connection is made by what the file says now, also the one that listens."""
    path = tmp_path / "database-url"
    path.write_text(entered(postgres_url, "first"))
    with closing(Store(entered(postgres_url, "first"), url_file=path)) as store:
        assert ROLE == who(store)
        admin.exec_driver_sql(f"ALTER ROLE {ROLE} PASSWORD 'second'")
        assert store.write_now(lambda conn: conn.execute(text("SELECT 1")).scalar_one()) == 1
        with pytest.raises(StoreDownError):
            who(store)  # The file has not changed yet.

        path.write_text(entered(postgres_url, "second") + "\n")

        assert ROLE == who(store)
        assert 1 == store.read_now(lambda conn: conn.execute(text("SELECT 1")).scalar_one())
        heard = asyncio.Event()

        async def hears() -> None:
            listening = asyncio.create_task(listen(store, heard.set, first_wait=0.01))
            async with asyncio.timeout(3):
                await heard.wait()
            listening.cancel()

        asyncio.run(hears())


@pytest.mark.postgres
def test_a_file_that_cannot_be_used_changes_nothing(admin: Any, postgres_url: str, tmp_path: Path) -> None:
    """Another database, none at all, nonsense: the store stays with the database and the password that it has."""
    path = tmp_path / "database-url"
    started = entered(postgres_url, "first")
    with closing(Store(started, url_file=path)) as store:
        for wrong in (entered(postgres_url, "other", database="elsewhere"), "nonsense", None):
            path.unlink(missing_ok=True)
            if wrong is not None:
                path.write_text(wrong)
            assert ROLE == who(store)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(make_url(entered(postgres_url, "other")).set(drivername="postgresql").render_as_string(False))


def test_a_place_is_one_whoever_enters() -> None:
    """User and password say nothing of where; host, port, name and options do."""
    here = "postgresql://a:b@db/crcr"
    assert same_place(here, "postgres://c:d@db/crcr")
    assert same_place(here, "postgresql+psycopg://db/crcr")
    for there in ("postgresql://a:b@db2/crcr", "postgresql://a:b@db:5433/crcr", "postgresql://a:b@db/x", *NO_URLS):
        assert not same_place(here, there)
        assert not same_place(there, here)
    assert not same_place(here, f"{here}?target_session_attrs=primary")


@pytest.mark.parametrize("nonsense", NO_URLS, ids=range(len(NO_URLS)))
def test_what_is_no_url_changes_nothing_and_is_not_repeated(nonsense: str, tmp_path: Path) -> None:
    """A part of a password may be what makes it none, and logs show errors."""
    path = tmp_path / "database-url"
    path.write_text(nonsense)
    named = {"host": "db", "dbname": "crcr", "user": "old", "password": "secret"}

    assert named == Login(make_url("postgresql+psycopg://old:secret@db/crcr"), path)(named)
    with pytest.raises(ArgumentError) as error:
        make_engine(nonsense)
    assert "ValueError" not in "".join(traceback.format_exception(error.value))
    assert "word@db" not in str(error.value)


def test_a_password_that_is_gone_is_not_sent(tmp_path: Path) -> None:
    """The file is the whole truth of how the database is entered: nothing of the old is mixed in."""
    path = tmp_path / "database-url"
    path.write_text("postgresql://new@db/crcr")
    login = Login(make_url("postgresql+psycopg://old:secret@db/crcr"), path)

    assert {"host": "db", "dbname": "crcr", "user": "new"} == login(
        {"host": "db", "dbname": "crcr", "user": "old", "password": "secret"}
    )
    assert {"user": "x"} == Login(URL.create("postgresql"), None)({"user": "x"})


def test_a_variable_that_holds_the_url_itself_wins(tmp_path: Path) -> None:
    """As for every other secret."""
    named = {"CRCR_DATABASE_URL_FILE": str(tmp_path / "u")}

    assert tmp_path / "u" == url_file(named)
    assert url_file({**named, "CRCR_DATABASE_URL": "sqlite:///x.db"}) is None
    assert url_file({}) is None
