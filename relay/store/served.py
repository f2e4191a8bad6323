"""Whether somebody has a database open just now: what a service remembers of it must not be replaced beneath it."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.engine import URL

from relay.store.engine import make_engine, normalize_url
from relay.store.login import read_url
from relay.store.postgres import OURS

#: Sessions of ours in this very database. Names are shown to every role; from where a session comes is not, and one by
#: a socket comes from no address.
_SESSIONS = text(
    "SELECT pid, coalesce(host(client_addr), 'an unknown place') AS at FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name = :ours AND pid <> pg_backend_pid() ORDER BY pid"
)


def users_of(url: str) -> str | None:
    """Who has this database open, in words; None where nobody has."""
    parsed = read_url(normalize_url(url))
    if parsed.get_backend_name() == "sqlite":
        return _users_of_file(parsed)
    engine = make_engine(url, read_only=True)
    try:
        with engine.connect() as conn:
            found = conn.execute(_SESSIONS, {"ours": OURS}).all()
    finally:
        engine.dispose()
    return ", ".join(f"session {row.pid} from {row.at}" for row in found) or None


def _users_of_file(url: URL) -> str | None:
    """SQLite gives up its log only to whoever has the file alone: each connection holds a lock for as long as it lives.

    https://www.sqlite.org/pragma.html#pragma_journal_mode
    """
    path = Path(url.database or "")
    if not path.is_file():
        return None
    with contextlib.closing(sqlite3.connect(path, timeout=0)) as alone:
        try:
            alone.execute("PRAGMA journal_mode=DELETE")
        except sqlite3.OperationalError as error:
            # Any other trouble with the file is told by whoever opens it next, and better.
            return "another process" if _is_busy(error) else None
        except sqlite3.DatabaseError:
            return None
    return None


def _is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else has the file, whatever for: the low byte says so, the others why.

    https://www.sqlite.org/rescode.html#primary_result_codes_versus_extended_result_codes
    """
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
