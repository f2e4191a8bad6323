"""The way to the database: a writer that commits in groups, readers beside it.

SQLite allows one writer at a time, and on PostgreSQL one thread that commits many units of work together is three
times faster than a thread for each. So both use the same shape: units of work queue up, the writer runs as many as
are waiting inside one transaction, commits once, and only then does any caller learn that its work is kept.

What a caller waits for, a webhook or a callback, goes before what the worker notes. On PostgreSQL the writers of all
processes take turns besides: see ``postgres.TAKE_TURN``.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DatabaseError, DBAPIError, IntegrityError, OperationalError, SQLAlchemyError

from relay.store import postgres
from relay.store.login import Login, read_url
from relay.store.shared import SharedUnit

T = TypeVar("T")

#: More units than this wait for the next commit, so that one caller's wait stays bounded.
GROUP = 64

#: So many groups that callers wait for may go before the worker's in a row; then those have their turn.
GO_FIRST = 4

#: How long a database may keep us waiting, in seconds. GitHub waits ten for an answer, and a caller may have to see the
#: end of the wait before its own.
WAIT_SECONDS = 3

#: PostgreSQL's codes for "somebody else was faster, try again": serialization failure, deadlock.
_CONTENTION = {"40001", "40P01"}
#: And for "whom you wait for takes too long".
_NOT_HAD = "55P03"


class StoreDownError(Exception):
    """The database did not answer; nothing was kept, and the caller may try again."""


class RefusalError(Exception):
    """A unit of work declines before it has written anything, so the group it runs in need not be undone."""


class _DatabaseFile:
    """SQLite's file, which somebody may delete or replace beneath us.

    SQLite would go on writing into a file that no longer has a name, and what it said it kept would be gone at the
    next start. So each commit looks first whether the name still leads to the file that was opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: tuple[int, int] | None = None

    def check(self) -> None:
        """Raise StoreDownError when the file is not the one that the first commit went to."""
        if self._opened is None:
            return
        found = self._identity()
        if found != self._opened:
            what = "is gone" if found is None else "is another than the one that was opened"
            raise StoreDownError(f"the database file {self._path.name} {what}: put it back, or restart the relay")

    def committed(self) -> None:
        """A commit went to the file, so this is the one."""
        if self._opened is None:
            self._opened = self._identity()

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino


def _database_file(url: URL) -> _DatabaseFile | None:
    named = url.database or ""
    is_file = url.get_backend_name() == "sqlite" and named not in ("", ":memory:") and not named.startswith("file:")
    return _DatabaseFile(Path(named)) if is_file else None


@dataclass(frozen=True, slots=True)
class _Waiting:
    unit: Callable[[Connection], Any]
    future: Future[Any]


class _Line:
    """Units that wait for a writer, those that a caller waits for first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._first: deque[_Waiting] = deque()
        self._later: deque[_Waiting] = deque()
        self._passed = 0
        self._closed = False

    def put(self, waiting: _Waiting, *, first: bool) -> None:
        """One more waits. What comes after ``close`` is told that nothing will be written any more."""
        with self._changed:
            if not self._closed:
                (self._first if first else self._later).append(waiting)
                self._changed.notify()
                return
        waiting.future.set_exception(StoreDownError("the store is closed"))

    def close(self) -> None:
        """Nothing more comes; what waits is still handed out."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def group(self) -> list[_Waiting]:
        """Wait for the units that the next commit is for; none once the line is closed and empty."""
        with self._changed:
            while not (self._first or self._later or self._closed):
                self._changed.wait()
            line = self._first if self._first and not (self._later and self._passed >= GO_FIRST) else self._later
            self._passed = self._passed + 1 if line is self._first and self._later else 0
            return [line.popleft() for _ in range(min(GROUP, len(line)))]


def normalize_url(url: str) -> str:
    """Accept the URL forms people write (``postgres://``, ``postgresql://``) and name our driver."""
    for prefix in ("postgres://", "postgresql://"):
        if url.startswith(prefix):
            return "postgresql+psycopg://" + url.removeprefix(prefix)
    return url


def make_engine(url: str, *, read_only: bool = False) -> Engine:
    """An engine with the settings each database needs to keep what it said it kept.

    Its errors name the statement and never its values: those are callers' texts, and once our own key.
    Raises sqlalchemy's ArgumentError for a URL that is none, without its text.
    """
    parsed = read_url(normalize_url(url))
    if parsed.get_backend_name() != "sqlite":
        return postgres.open_engine(parsed, read_only=read_only, wait_seconds=WAIT_SECONDS)
    engine = create_engine(
        parsed, hide_parameters=True, connect_args={"timeout": WAIT_SECONDS, "check_same_thread": False}, pool_size=8
    )

    @event.listens_for(engine, "connect")
    def _configure(dbapi: Any, _record: Any) -> None:
        dbapi.isolation_level = None  # We say BEGIN ourselves: the driver's deferred one breaks read-then-write.
        cursor = dbapi.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")  # A 202 means "kept", even when the power goes.
        cursor.execute("PRAGMA foreign_keys=ON")
        # Of the readers, each of which has its own, few read the same again; the file system keeps what they do.
        cursor.execute(f"PRAGMA cache_size={-2000 if read_only else -16000}")
        cursor.execute("PRAGMA wal_autocheckpoint=4000")
        if read_only:
            cursor.execute("PRAGMA query_only=ON")
        cursor.close()

    begin = "BEGIN" if read_only else "BEGIN IMMEDIATE"
    # Not by the engine's "begin" event: with one listener, each statement would look for listeners of all others.
    engine.dialect.do_begin = lambda connection: connection.execute(begin)  # type: ignore[assignment, method-assign]
    return engine


class Store:
    """Runs units of work on the database, off the event loop.

    A unit may run more than once, so it must have no effect but on its connection.
    ``write`` returns after the commit that holds the unit; ``read`` sees a consistent snapshot and may run beside it.
    Both raise StoreDownError when the database cannot be reached, and whatever the unit itself raised.
    New connections to PostgreSQL are made by the user and password that stand in ``url_file`` at that moment.
    """

    def __init__(self, url: str, *, readers: int = 4, url_file: Path | None = None) -> None:
        self.url = url
        self._writing = make_engine(url)
        self._reading = make_engine(url, read_only=True)
        self._login = Login(self._writing.url, url_file)
        if self.dialect == "postgresql":
            postgres.enter_by(self._writing, self._login)
            postgres.enter_by(self._reading, self._login)
        self._file = _database_file(self._writing.url)
        self._failed: tuple[float, str] | None = None
        #: How many commits the database did not take, for the metrics.
        self.failed_commits = 0
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix="store-read")
        self._line = _Line()
        self._thread = threading.Thread(target=self._run, name="store-write", daemon=True)
        self._thread.start()
        self._closed = False
        self.name = secrets.token_hex(8)
        self._notice = postgres.notice(self.name) if self.dialect == "postgresql" else None

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self._writing.dialect.name

    @property
    def write_engine(self) -> Engine:
        """For migrations, which own their connection."""
        return self._writing

    def connect_arguments(self) -> tuple[Sequence[Any], dict[str, Any]]:
        """What the driver is called with, for a connection that is no part of the store's work."""
        arguments, named = postgres.connect_arguments(self._writing, WAIT_SECONDS)
        return arguments, {**self._login(named), "application_name": postgres.OURS}

    def trouble(self, within: float) -> str | None:
        """Why a commit failed within the last so many seconds, or None. A full disk can still be read from."""
        failed = self._failed
        return failed[1] if failed is not None and time.monotonic() - failed[0] < within else None

    async def write(self, unit: Callable[[Connection], T], *, waited_for: bool = False) -> T:
        """Run the unit in a transaction and return its value once that is committed.

        What somebody outside waits for, as ``waited_for`` says, goes before what can wait a moment.
        """
        return await asyncio.wrap_future(self._submit(unit, waited_for=waited_for))

    async def read(self, unit: Callable[[Connection], T]) -> T:
        """Run the unit on a connection that can only read."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, self.read_now, unit)

    def write_now(self, unit: Callable[[Connection], T]) -> T:
        """As ``write``, for callers that have no event loop (commands, tests)."""
        return self._submit(unit).result()

    def read_now(self, unit: Callable[[Connection], T]) -> T:
        """As ``read``, for callers that have no event loop."""
        try:
            with self._reading.begin() as conn:
                return unit(conn)
        except DBAPIError as error:
            raise _translated(error) from error

    def close(self) -> None:
        """Finish what is queued, then let go of the database. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._line.close()
        self._thread.join()
        self._readers.shutdown(wait=True)
        self._writing.dispose()
        self._reading.dispose()

    def _submit(self, unit: Callable[[Connection], T], *, waited_for: bool = False) -> Future[T]:
        future: Future[T] = Future()
        self._line.put(_Waiting(unit, future), first=waited_for)
        return future

    def _run(self) -> None:
        while group := self._line.group():
            self._commit(group)

    def _commit(self, group: list[_Waiting]) -> None:
        live = [waiting for waiting in group if waiting.future.set_running_or_notify_cancel()]
        if not live:
            return
        try:
            settled = self._transact(live)
        except StoreDownError as error:
            # It is down for all of them: to try each on its own would let the last wait for as many time-outs.
            self._note(error)
            for waiting in live:
                waiting.future.set_exception(error)
            return
        except Exception as error:  # noqa: BLE001  # Whatever one unit raised must reach its caller and no other.
            if len(live) == 1:
                live[0].future.set_exception(self._note(_translated(error)))
                return
            # One unit spoiled the transaction of all. Each runs again on its own, so that it hurts only itself.
            for waiting in live:
                self._commit_alone(waiting)
            return
        for waiting, value, refusal in settled:
            if refusal is not None:
                waiting.future.set_exception(refusal)
            else:
                waiting.future.set_result(value)

    def _commit_alone(self, waiting: _Waiting) -> None:
        try:
            ((_, value, refusal),) = self._transact([waiting])
        except Exception as error:  # noqa: BLE001  # As above.
            waiting.future.set_exception(self._note(_translated(error)))
            return
        if refusal is not None:
            waiting.future.set_exception(refusal)
        else:
            waiting.future.set_result(value)

    def _note(self, error: Exception) -> Exception:
        if isinstance(error, StoreDownError):
            self._failed = (time.monotonic(), str(error))
            self.failed_commits += 1
        return error

    def _transact(self, group: list[_Waiting]) -> list[tuple[_Waiting, Any, RefusalError | None]]:
        for remaining in (2, 1, 0):
            begun = False
            if self._file is not None:
                self._file.check()
            try:
                settled: list[tuple[_Waiting, Any, RefusalError | None]] = []
                with self._writing.begin() as conn:
                    begun = True
                    if self._notice is not None:
                        conn.exec_driver_sql(postgres.TAKE_TURN)
                    for kind, together in groupby(group, key=lambda waiting: type(waiting.unit)):
                        settled += _settle(conn, kind, list(together))
                    if postgres.announced(conn) and self._notice is not None:
                        conn.exec_driver_sql(self._notice)
            except SQLAlchemyError as error:
                if remaining and _is_contention(error):
                    continue
                if not begun or _is_disconnect(error) or _is_kept_waiting(error):
                    raise _translated(error) from error
                raise
            else:
                if self._file is not None:
                    self._file.committed()
                return settled
        raise AssertionError("unreachable: the last try returns or raises")


def _settle(
    conn: Connection, kind: type[Any], group: list[_Waiting]
) -> list[tuple[_Waiting, Any, RefusalError | None]]:
    """Do units of one kind that stand one behind the other: what each came to, or why it declined."""
    if issubclass(kind, SharedUnit):
        units: list[Any] = [waiting.unit for waiting in group]
        values = kind.do_all(conn, units)
        return [(waiting, value, None) for waiting, value in zip(group, values, strict=True)]
    settled: list[tuple[_Waiting, Any, RefusalError | None]] = []
    for waiting in group:
        try:
            settled.append((waiting, waiting.unit(conn), None))
        except RefusalError as refusal:
            settled.append((waiting, None, refusal))
    return settled


def _is_contention(error: SQLAlchemyError) -> bool:
    return isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) in _CONTENTION


def _is_kept_waiting(error: SQLAlchemyError) -> bool:
    # For their turn, mostly, which stands before all that a unit does: whoever came next would wait as long.
    return isinstance(error, DBAPIError) and _sqlstate(error.orig) == _NOT_HAD


def _is_disconnect(error: SQLAlchemyError) -> bool:
    return isinstance(error, DBAPIError) and error.connection_invalidated


def _translated(error: Exception) -> Exception:
    """Losing the database is our fault and passes; breaking a rule of it is a fault of the unit and does not."""
    if isinstance(error, IntegrityError):
        return error
    # SQLite says by the plain DatabaseError that its file is damaged, or none.
    is_down = isinstance(error, OperationalError) or type(error) is DatabaseError
    if isinstance(error, DBAPIError) and (is_down or error.connection_invalidated):
        return StoreDownError(f"the database did not answer: {_said(error.orig)}")
    if type(error).__name__ == "TimeoutError" and type(error).__module__.startswith("sqlalchemy"):
        return StoreDownError("no database connection was free")
    return error


def _said(original: BaseException | None) -> str:
    """What the driver said, which tells a full disk from a lock; but nothing of where the database is."""
    kind = type(original).__name__
    if type(original).__module__.partition(".")[0] == "sqlite3":
        return f"{kind}: {original}"
    # Without a code the message is of the connection, and names host and user.
    said = getattr(getattr(original, "diag", None), "message_primary", None) if _sqlstate(original) else None
    return kind if said is None else f"{kind}: {str(said)[:200]}"


def _sqlstate(original: BaseException | None) -> str | None:
    code = getattr(original, "sqlstate", None)
    return code if isinstance(code, str) else None
