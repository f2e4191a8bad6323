"""Every moment at which a process may die with something half done: beside each commit and each outgoing request.

The moments are not listed anywhere: a wrapped store and a wrapped transport meet them as they come, count them, write
each down, and end the process by SIGKILL at the ones it was told to die at.
"""

from __future__ import annotations

import os
import re
import signal
import ssl
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import event

from relay.github.http import AsyncBaseTransport, AsyncHTTPTransport, Request, Response
from relay.store.engine import Store

#: Where to die: at a number, or at the first crossing of a place.
Deaths = Collection[int | str]

_IDS = re.compile(r"(?<=/)(?:\d+|[0-9a-f]{40})(?=/|$)|(?<=/compare/)[^/]+")
_WRITES = re.compile(r'\s*(?:INSERT INTO|UPDATE|DELETE FROM|CREATE TABLE|ALTER TABLE)\s+"?(\w+)', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Crossing:
    """One moment that was met: its number, what was about to happen or had just happened, and when.

    ``at`` is ``time.perf_counter()``, which all processes of a machine share, and the simulator's record uses.
    """

    ordinal: int
    at: float
    what: str  # "commit delivery,dispatch,effect" or "POST /repos/org/backend/dispatches"
    moment: str  # before, after, or failed: the request was sent and its answer never came

    @property
    def place(self) -> str:
        """The crossing without what differs from pass to pass: numbers, ids and commits."""
        return f"{_IDS.sub('*', self.what)} {self.moment}"

    def __str__(self) -> str:
        return f"{self.ordinal} {self.what} {self.moment}"


def read_crossings(record: Path) -> list[Crossing]:
    """What was met so far, by all processes that wrote to this record."""
    if not record.exists():
        return []
    found = []
    for line in record.read_text().splitlines():
        ordinal, at, moment, what = line.split(" ", 3)
        found.append(Crossing(int(ordinal), float(at), what, moment))
    return found


class Crossings:
    """Counts on where the process before this one stopped, so that one number means one moment of a whole pass."""

    def __init__(self, record: Path, die_at: Deaths) -> None:
        earlier = read_crossings(record)
        self._count = len(earlier)
        self._met = {crossing.place for crossing in earlier}
        self._record = record.open("a")
        self._die_at = frozenset(die_at)
        self._lock = threading.Lock()  # The writer's thread commits while the event loop sends.

    def cross(self, what: str, moment: str) -> None:
        """This moment is now. Does not return where the process was told to die at it."""
        with self._lock:
            self._count += 1
            now = Crossing(self._count, time.perf_counter(), what, moment)
            self._record.write(f"{now.ordinal} {now.at:.6f} {moment} {what}\n")
            self._record.flush()
            wanted = now.ordinal in self._die_at or (now.place in self._die_at and now.place not in self._met)
            self._met.add(now.place)
            if wanted:
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)  # The signal reaches the process whole, though perhaps another thread of it first.


def watched_store(crossings: Crossings) -> Callable[[str], Store]:
    """What opens a store whose every commit of something is a crossing, before it and before its caller learns of it.

    A transaction that changed nothing, such as a claim that found nothing due, leaves no trace and is none.
    """

    def open_store(url: str) -> Store:
        store = Store(url)
        engine = store.write_engine
        tables: set[str] = set()
        changes_before = [0]

        @event.listens_for(engine, "begin")
        def begin(conn: Any) -> None:
            tables.clear()
            if store.dialect == "sqlite":
                changes_before[0] = conn.connection.total_changes

        @event.listens_for(engine, "before_cursor_execute")
        def note(_conn: Any, _cursor: Any, statement: str, *_more: Any) -> None:
            if (found := _WRITES.match(statement)) is not None:
                tables.add(found.group(1))

        def wrote(connection: Any) -> bool:
            if store.dialect == "sqlite":
                return bool(connection.total_changes != changes_before[0])
            cursor = connection.cursor()
            cursor.execute("SELECT pg_current_xact_id_if_assigned() IS NOT NULL")
            (found,) = cursor.fetchone()
            cursor.close()
            return bool(found)

        commit = engine.dialect.do_commit

        def do_commit(connection: Any) -> None:
            if not wrote(connection):
                commit(connection)
                return
            what = f"commit {','.join(sorted(tables))}"
            crossings.cross(what, "before")
            commit(connection)
            crossings.cross(what, "after")

        engine.dialect.do_commit = do_commit  # type: ignore[method-assign, assignment]
        return store

    return open_store


class WatchedTransport(AsyncBaseTransport):
    """The network, with a crossing before each request is sent and another before its answer reaches the caller."""

    def __init__(self, crossings: Crossings) -> None:
        self._crossings = crossings
        # The simulator speaks plain HTTP, so this context is never used, and an empty one costs nothing to make.
        self._wire = AsyncHTTPTransport(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    async def handle_async_request(self, request: Request) -> Response:
        """Send one request."""
        what = f"{request.method} {request.url.path}"
        self._crossings.cross(what, "before")
        try:
            answer = await self._wire.handle_async_request(request)
        except Exception:
            self._crossings.cross(what, "failed")
            raise
        self._crossings.cross(what, "after")
        return answer

    async def aclose(self) -> None:
        """Close its connections."""
        await self._wire.aclose()
