"""What a process that died on SQLite had begun is taken over by the next one within seconds, not when its leases end.

A claim stands until its lease ends because nobody can tell a dead process from a slow one. On SQLite all processes are
on one machine, and there the kernel can tell: each worker holds a shared lock on a file beside the database, and the
kernel lets go of it with the process, however that ends. Who gets the lock alone is the only one at work, so that every
claim it finds is a dead one's. On PostgreSQL a lost connection is no proof of a death: there the leases decide.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import structlog
from sqlalchemy import Connection, update
from sqlalchemy.engine import make_url

from relay.store.engine import Store, StoreDownError
from relay.store.tables import Effect

log = structlog.get_logger(__name__)

_effect = Effect.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.

#: Follows the name of the database's file. Not that file itself: SQLite loses its own locks when another handle on it
#: is closed. https://sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled_by_a_separate_thread_doing_close_
_SUFFIX = "-workers"


def lock_file(url: str) -> Path | None:
    """Where the workers on this database meet; None where they cannot be told: on servers, and in memory."""
    parsed = make_url(url)
    named = parsed.database or ""
    if parsed.get_backend_name() != "sqlite" or named in ("", ":memory:") or named.startswith("file:"):
        return None
    return Path(named + _SUFFIX)


def begin_work(store: Store, now: datetime, settle: timedelta) -> Callable[[], None]:
    """Count as a worker on this database from now on, and let what dead ones held go; returns what ends that.

    Their claims end ``settle`` from now: what they asked for last may take so long to show at GitHub, and is looked for
    before it is asked for again. To be called before anything is claimed, and off the event loop. Where the file cannot
    be locked or the database does not answer, the leases decide as they do elsewhere.
    """
    path = lock_file(store.url)
    if path is None:
        return _nothing
    try:
        held = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        log.warning("workers_not_counted", error=type(error).__name__)
        return _nothing
    try:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _end_dead_claims(store, now + settle)
        # Until this is granted nothing is claimed, so that whoever holds the file alone finds no claim of ours.
        fcntl.flock(held, fcntl.LOCK_SH)
    except OSError as error:
        log.warning("workers_not_counted", error=type(error).__name__)
    except BaseException:
        os.close(held)
        raise
    return lambda: os.close(held)


def _nothing() -> None:
    pass


def _end_dead_claims(store: Store, at: datetime) -> None:
    try:
        taken = store.write_now(lambda conn: _end_claims(conn, at))
    except StoreDownError as error:
        log.warning("store_unreachable", error=str(error))
    else:
        if taken:
            log.info("taken_over", effects=taken)


def _end_claims(conn: Connection, at: datetime) -> int:
    ended = conn.execute(update(_effect).where(_effect.c.state == "running", _effect.c.lease > at).values(lease=at))
    return int(ended.rowcount)
