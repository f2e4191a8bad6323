"""Who has a database open is seen, however they were told to enter it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url, text

from relay.store.engine import Store
from relay.store.served import users_of


@pytest.mark.postgres
def test_a_name_that_the_url_gives_does_not_hide_us(postgres_url: str) -> None:
    """People name their sessions in the URL; a restore beneath a service would be the price."""
    url = make_url(postgres_url).update_query_dict({"application_name": "x"}).render_as_string(hide_password=False)
    assert users_of(url) is None
    with closing(Store(url)) as store:
        own = text("SELECT pg_backend_pid(), host(inet_client_addr())")
        pid, at = store.write_now(lambda conn: tuple(conn.execute(own).one()))

        # The tests' own server listens on a socket, which is no address; whose machine that is nobody says.
        assert f"session {pid} from {at or 'an unknown place'}" in (users_of(url) or "")


@pytest.mark.postgres
def test_a_line_that_only_listens_is_one_of_ours(postgres_url: str) -> None:
    """A service in which nothing happens may have nothing else open."""
    with closing(Store(postgres_url)) as store:
        arguments, named = store.connect_arguments()
        with psycopg.connect(*arguments, **named) as line:
            found = users_of(postgres_url)

            assert f"session {line.info.backend_pid} from" in (found or "")


#: Holds what SQLite holds while it makes a log's index anew after a crash: https://www.sqlite.org/walformat.html#locks
_RECOVERING = """
import fcntl, sys
with open(sys.argv[1], "w+b") as index:
    index.truncate(32768)
    fcntl.lockf(index, fcntl.LOCK_SH, 1, 128)
    fcntl.lockf(index, fcntl.LOCK_EX, 3, 120)
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def recovering(path: Path) -> Iterator[str]:
    """Another process is just doing that; gives the database's URL."""
    with closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA journal_mode=WAL")
        made.execute("CREATE TABLE one (two)")
    command = [sys.executable, "-c", _RECOVERING, f"{path}-shm"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert b"held\n" == other.stdout.readline()
        yield f"sqlite:///{path}"
        other.communicate()


def test_a_file_that_a_service_is_just_recovering_is_in_use(tmp_path: Path) -> None:
    """It was killed and starts again: SQLite calls the file busy by another number than usual."""
    with recovering(tmp_path / "one.db") as url:
        found = users_of(url)
    path = tmp_path / "two.db"
    connected = closing(sqlite3.connect(path, timeout=0))
    with recovering(path), connected as third, pytest.raises(sqlite3.OperationalError) as raised:
        third.execute("PRAGMA journal_mode=DELETE")

    assert ("another process", sqlite3.SQLITE_BUSY_RECOVERY) == (found, raised.value.sqlite_errorcode)
    assert users_of(url) is None
