"""A copy of everything the relay remembers in one file, and a database out of such a copy.

A backup is an SQLite file at the schema of the database it was taken from, whichever engine that was: so it is also the
way from SQLite to PostgreSQL. It is taken beside a service that goes on writing, shows one moment, and stands under its
name only once it is whole and on the disk. It holds callers' bodies and maybe our own key: only its owner may read it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, delete, func, insert, select, text, update

from levels.outcomes import Outcome
from relay.deciding.effects import Kind
from relay.deciding.plan import HeadState, Purpose
from relay.store import schema
from relay.store.documents import audit
from relay.store.engine import make_engine
from relay.store.served import users_of
from relay.store.tables import Change, Dispatch, Effect, metadata

_change = Change.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_dispatch = Dispatch.__table__  # type: ignore[attr-defined]
_effect = Effect.__table__  # type: ignore[attr-defined]

_PORTION = 500

#: Numbers of dispatches that a restored database leaves out. A capability names a dispatch by its number, and those
#: given out after the backup was taken are still in listeners' hands: their numbers must not come to mean others.
LEAP = 10_000_000


class BackupError(Exception):
    """The backup cannot be taken or restored; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a backup holds: its schema's revision and the rows of each table."""

    revision: str
    rows: Mapping[str, int]

    @property
    def total(self) -> int:
        """All rows together."""
        return sum(self.rows.values())


@dataclass(frozen=True, slots=True)
class Cleaned:
    """How many bytes the database took before and after."""

    before: int
    after: int


# --- Taking ----------------------------------------------------------------------------------------------------------


def back_up(url: str, target: Path, *, force: bool = False) -> Held:
    """Copy the database at this URL into a file. Safe while services write to it. Raises BackupError."""
    if target.exists() and not force:
        raise BackupError(f"{target} exists; name another file, or overwrite it with --force")
    if not target.parent.is_dir():
        raise BackupError(f"{target.parent} is no folder; make it first")
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent)
    os.close(handle)  # Made by mkstemp, so that nobody else may read it.
    partial = Path(name)
    try:
        source = make_engine(url, read_only=True)
        try:
            if source.dialect.name == "sqlite":
                _copy_file(source, partial)
            else:
                _copy_rows_out(source, partial)
        finally:
            source.dispose()
        held = _examined(partial)
        _sync(partial)
        if force:
            partial.replace(target)
        else:
            # Unlike a rename, a link does not replace what came to be there meanwhile.
            os.link(partial, target)
        _sync(target.parent)
        return held
    except FileExistsError:
        raise BackupError(f"{target} exists; name another file, or overwrite it with --force") from None
    except OSError as error:
        raise BackupError(f"{target}: {error.strerror or type(error).__name__}") from None
    finally:
        for left in (partial, *(partial.with_name(f"{partial.name}-{end}") for end in ("wal", "shm", "journal"))):
            left.unlink(missing_ok=True)


def _copy_file(source: Engine, partial: Path) -> None:
    """SQLite's own online backup, in one step: it reads one snapshot, and writers go on beside it.

    In portions it would begin again whenever another process writes, and beside a busy service never end.
    """
    with contextlib.closing(source.raw_connection()) as raw, contextlib.closing(sqlite3.connect(partial)) as into:
        driver: Any = raw.driver_connection
        driver.backup(into, pages=-1)
        into.execute("PRAGMA journal_mode=DELETE")  # One file, without a log beside it.


def _copy_rows_out(source: Engine, partial: Path) -> None:
    """All rows as one transaction sees them, into tables of the same revision."""
    with source.connect().execution_options(isolation_level="REPEATABLE READ") as conn, conn.begin():
        found = schema.revision(conn)
        if schema.is_newer(found):
            raise BackupError(
                f"this database is at schema {found}, which this version does not know; take the backup with "
                "the version that migrated it"
            )
        if found != schema.newest():
            raise BackupError(
                f"this database is at schema {found}, and this version copies {schema.newest()}; run `crcr db migrate`"
            )
        into = make_engine(f"sqlite:///{partial}")
        try:
            schema.upgrade(into)
            with into.begin() as writing:
                _copy(conn, writing)
        finally:
            into.dispose()
    with contextlib.closing(sqlite3.connect(partial)) as whole:
        whole.execute("PRAGMA journal_mode=DELETE")


def _copy(source: Connection, target: Connection) -> dict[str, int]:
    """Every row of every table, those first that others point to; returns how many of each."""
    counts: dict[str, int] = {}
    for table in metadata.sorted_tables:
        counts[table.name] = 0
        keys = list(table.primary_key)
        rows = source.execution_options(yield_per=_PORTION).execute(select(table).order_by(*keys))
        for portion in rows.mappings().partitions(_PORTION):
            target.execute(insert(table), [dict(row) for row in portion])
            counts[table.name] += len(portion)
    return counts


def _examined(path: Path) -> Held:
    """What a backup holds, once SQLite has found it sound. Raises BackupError."""
    try:
        with contextlib.closing(_read_only(path)) as conn:
            sound = conn.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if sound != "ok":
                raise BackupError(f"{path.name} is damaged: {str(sound)[:200]}")
            if conn.execute("PRAGMA foreign_key_check").fetchone() is not None:
                raise BackupError(f"{path.name} is damaged: rows point to others that are not there")
            tables = {row[0] for row in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if "alembic_version" not in tables:
                raise BackupError(f"{path.name} is an SQLite file, and not one of this service")
            (revision,) = conn.execute("SELECT version_num FROM alembic_version").fetchone() or (None,)
            if revision is None:
                raise BackupError(f"{path.name} is an SQLite file, and not one of this service")
            ours = [table.name for table in metadata.sorted_tables if table.name in tables]
            # The names are our own tables'.
            rows = {name: int(conn.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]) for name in ours}  # noqa: S608
    except sqlite3.DatabaseError as error:
        raise BackupError(f"{path.name} cannot be read as an SQLite file: {error}") from None
    return Held(str(revision), rows)


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- Restoring -------------------------------------------------------------------------------------------------------


def restore(url: str, source: Path, *, who: str, now: datetime, force: bool = False) -> Held:
    """Fill the database at this URL from a backup, in one transaction. Raises BackupError.

    The database must be empty, or is emptied with ``force``. A backup of an older schema is brought to this one first.
    No service may run on the database: it would go on with what it remembers of the old one, so that is refused.
    """
    if not source.is_file():
        raise BackupError(f"{source} is no file")
    held = _examined(source)
    if schema.is_newer(held.revision):
        raise BackupError(
            f"{source.name} is at schema {held.revision}, which this version does not know; restore it with the "
            "version that took it, or a later one"
        )
    if (users := users_of(url)) is not None:
        raise BackupError(f"the database is in use by {users}; stop every process of the service first")
    target = make_engine(url)
    try:
        with target.connect() as conn:
            found = schema.revision(conn)
        if schema.is_newer(found):
            raise BackupError(f"the database is at schema {found}, which this version does not know")
        schema.upgrade(target)
        with _at_newest(source, held) as path, _opened(path) as reading, target.begin() as writing:
            _make_empty(writing, force=force)
            counts = _copy(reading, writing)
            _go_on_from(writing, who, source.name, now)
        return Held(held.revision, counts)
    finally:
        target.dispose()


@contextlib.contextmanager
def _at_newest(source: Path, held: Held) -> Iterator[Path]:
    """The backup itself, or a copy of it that was brought to the newest schema."""
    if held.revision == schema.newest():
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="crcr-restore-") as folder:
        copy = Path(folder) / "older.db"
        with contextlib.closing(_read_only(source)) as old, contextlib.closing(sqlite3.connect(copy)) as into:
            old.backup(into)
        engine = make_engine(f"sqlite:///{copy}")
        try:
            schema.upgrade(engine)
        finally:
            engine.dispose()
        yield copy


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Connection]:
    engine = create_engine("sqlite://", creator=lambda: _read_only(path), hide_parameters=True)
    try:
        with engine.connect() as conn:
            yield conn
    finally:
        engine.dispose()


def _make_empty(conn: Connection, *, force: bool) -> None:
    """Nobody else's rows may be mixed with these."""
    filled = [
        table.name for table in metadata.sorted_tables if conn.execute(select(text("1")).select_from(table)).first()
    ]
    if filled and not force:
        raise BackupError(
            f"the database is not empty: it has rows in {', '.join(filled[:5])}; name an empty one, or replace all of "
            "it with --force"
        )
    for table in reversed(metadata.sorted_tables):
        conn.execute(delete(table))


def _go_on_from(conn: Connection, who: str, name: str, now: datetime) -> None:
    """Let a service go on from this copy, although the world has gone on since it was taken."""
    # What was owed then may have been done since: the worker asks GitHub before it repeats a second try.
    conn.execute(
        update(_effect)
        .where(_effect.c.kind == Kind.DISPATCH.value, _effect.c.state.in_(("ready", "running")))
        .values(attempts=_effect.c.attempts + 1)
    )
    _leap(conn, name, now)
    if conn.dialect.name == "postgresql":
        for table in metadata.sorted_tables:
            if table.autoincrement_column is not None:
                column = table.autoincrement_column
                highest = select(func.max(column)).scalar_subquery()
                sequence = func.pg_get_serial_sequence(f'"{table.name}"', column.name)
                conn.execute(select(func.setval(sequence, func.coalesce(highest, 1), highest.is_not(None))))
    audit(conn, at=now, who=who, what="database restored", subject=name)


def _leap(conn: Connection, name: str, now: datetime) -> None:
    """Leave numbers out. SQLite counts on from the highest row that is there, so one has to be."""
    highest = conn.execute(select(func.max(_change.c.id))).scalar() or 0
    change_id = conn.execute(
        insert(_change)
        .values(
            id=highest + LEAP,
            kind="push",
            thread=f"restored {now.isoformat()}",
            head_sha="0" * 40,
            ref="refs/crcr/restored",
            title=f"The database was restored from {name[:100]}; numbers leap here",
            author="",
            author_association="",
            html_url="",
            draft=False,
            labels="[]",
            state=HeadState.CLOSED.value,
            verified=True,
            created_at=now,
            updated_at=now,
            received_at=now,
            ended_at=now,
        )
        .returning(_change.c.id)
    ).scalar_one()
    highest = conn.execute(select(func.max(_dispatch.c.id))).scalar() or 0
    conn.execute(
        insert(_dispatch).values(
            id=highest + LEAP,
            change_id=change_id,
            backend="crcr/restored",
            level=1,
            purpose=Purpose.NOTIFY.value,
            event_type="push",
            delivery_id=f"restored {now.isoformat()}",
            origin_delivery=f"restored {now.isoformat()}",
            state="superseded",
            reason_code="restored",
            reason="",
            terms='{"queue_seconds":0,"run_seconds":0}',
            created_at=now,
            outcome=Outcome.NOT_REQUIRED.value,
            outcome_at=now,
            legs_reported=0,
            late=False,
        )
    )


# --- Cleaning --------------------------------------------------------------------------------------------------------


def vacuum(url: str) -> Cleaned:
    """Give room back that forgotten rows took, and let the planner look at the tables anew.

    On SQLite nobody can write meanwhile, and a service's writers are told to try again; on PostgreSQL they go on.
    """
    engine = make_engine(url)
    try:
        with engine.connect() as conn:
            before = _size(conn)
            driver: Any = conn.connection.driver_connection
            conn.rollback()  # Neither database cleans inside a transaction.
            if engine.dialect.name == "sqlite":
                for statement in ("VACUUM", "PRAGMA optimize", "PRAGMA wal_checkpoint(TRUNCATE)"):
                    driver.execute(statement).fetchall()
            else:
                driver.autocommit = True
                for table in metadata.sorted_tables:
                    driver.execute(f'VACUUM (ANALYZE) "{table.name}"')
                driver.autocommit = False
            return Cleaned(before, _size(conn))
    finally:
        engine.dispose()


def _size(conn: Connection) -> int:
    if conn.dialect.name == "postgresql":
        return int(conn.execute(select(func.pg_database_size(func.current_database()))).scalar_one())
    pages = conn.execute(text("PRAGMA page_count")).scalar_one()
    return int(pages) * int(conn.execute(text("PRAGMA page_size")).scalar_one())
