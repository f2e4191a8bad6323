"""Backups: one file of one moment, restored into either engine, and what goes on from there."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, func, insert, select, text

from relay.store import schema
from relay.store.backup import LEAP, BackupError, back_up, restore, vacuum
from relay.store.documents import ALLOWLIST, keep
from relay.store.engine import Store, make_engine
from relay.store.tables import Audit, Change, Delivery, Dispatch, Effect, metadata
from tests.conftest import Clock, empty
from tests.work.record import Record

NOW = datetime(2026, 12, 1, tzinfo=UTC)

Rows = dict[str, list[tuple[Any, ...]]]


@pytest.fixture
def filled(store: Store, clock: Clock) -> Store:
    """A database in which something happened: strings in other scripts, times, flags, NULLs, an outbox."""
    record = Record(store, clock)
    change = record.change(labels=["ciflow/crcr/npu", "ünïcode ✓"])
    record.planned(change, [{"effect": "dispatch", "backend": "org/npu", "reason": "wanted"}])
    dispatch = record.told(change)
    record.report(dispatch, "failure", version="2.9", tests=[("test_add", "TestAdd", "1 ≠ 2")])
    record.dispatch(change, "org/xpu")
    store.write_now(lambda conn: keep(conn, ALLOWLIST, "L1: []", etag=None, digest="d", now=clock.now()))
    return store


def rows(url: str) -> Rows:
    """Everything that a database holds."""
    engine = make_engine(url, read_only=True)
    try:
        with engine.connect() as conn:
            return {
                table.name: [tuple(row) for row in conn.execute(select(table).order_by(*table.primary_key))]
                for table in metadata.sorted_tables
            }
    finally:
        engine.dispose()


def without_marks(found: Rows) -> Rows:
    """Without what a restore adds: its audit row and the rows that make numbers leap."""
    kept = dict(found)
    kept["change"] = [row for row in kept["change"] if row[0] < LEAP]
    kept["dispatch"] = [row for row in kept["dispatch"] if row[0] < LEAP]
    kept["audit"] = [row for row in kept["audit"] if "database restored" not in row]
    return kept


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def other_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a backup is restored to; on SQLite not even the file is there."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'restored.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


def test_a_backup_restores_into_either_engine(filled: Store, other_url: str, tmp_path: Path) -> None:
    """Every row of every table, from any engine to any: also the way from SQLite to PostgreSQL."""
    before = rows(filled.url)
    file = tmp_path / "backup.db"

    held = back_up(filled.url, file)
    filled.close()
    if other_url.startswith("postgres"):
        empty(other_url)
    restored = restore(other_url, file, who="ada", now=NOW)

    assert (schema.newest(), before.keys()) == (held.revision, held.rows.keys())
    assert {name: len(found) for name, found in before.items()} == dict(held.rows) == dict(restored.rows)
    assert before == without_marks(rows(other_url))
    assert 0o600 == file.stat().st_mode & 0o777
    assert [file.name] == [path.name for path in tmp_path.iterdir() if "backup" in path.name]


def test_numbers_that_were_given_out_after_the_backup_never_come_to_mean_others(filled: Store, tmp_path: Path) -> None:
    """A listener may hold the capability of a dispatch that the backup does not know: its number is left out."""
    file = tmp_path / "backup.db"
    back_up(filled.url, file)
    filled.close()
    restore(filled.url, file, who="ada", now=NOW, force=True)

    with contextlib.closing(Store(filled.url)) as again:
        record = Record(again, Clock(NOW))
        highest = max(row.id for row in record.rows(Dispatch) if row.id < LEAP)
        change = record.change("9" * 40, number=9)
        made = record.dispatch(change)

    assert made > highest + LEAP
    assert change > LEAP


def test_what_was_owed_is_asked_for_before_it_is_sent(filled: Store, tmp_path: Path) -> None:
    """It may have been sent after the backup was taken: a second try asks GitHub first, so this is one."""
    table = Effect.__table__  # type: ignore[attr-defined]
    owed = {
        "lane": "a",
        "pacing": "p",
        "kind": "dispatch",
        "subject_id": 1,
        "due": NOW,
        "created_at": NOW,
        "state": "ready",
    }
    filled.write_now(lambda conn: conn.execute(insert(table), [owed, {**owed, "lane": "b", "state": "done"}]).rowcount)
    file, url = tmp_path / "backup.db", f"sqlite:///{tmp_path / 'restored.db'}"
    back_up(filled.url, file)
    restore(url, file, who="ada", now=NOW)

    found = [row for row in rows(url)["effect"] if row[1] in {"a", "b"}]
    attempts = [column.name for column in table.c].index("attempts")
    assert [("a", 1), ("b", 0)] == [(row[1], row[attempts]) for row in found]


@contextlib.contextmanager
def writing(store: Store) -> Iterator[list[int]]:
    """Somebody who writes all the time: a change and a delivery of it in each transaction."""
    written: list[int] = []
    stop = threading.Event()

    def unit(conn: Connection) -> int:
        number = len(written)
        change = {"kind": "push", "thread": f"t{number}", "head_sha": f"{number:040}"}
        times = dict.fromkeys(("created_at", "updated_at", "received_at"), NOW)
        change_id: int = conn.execute(
            insert(Change.__table__).values(**change, **times).returning(Change.__table__.c.id)  # type: ignore[attr-defined]
        ).scalar_one()
        delivery = {"id": f"w{number}", "event": "push", "repository": "up/stream", "payload": "x" * 2000, "plan": "[]"}
        conn.execute(insert(Delivery.__table__).values(**delivery, received_at=NOW, change_id=change_id))  # type: ignore[attr-defined]
        return change_id

    def work() -> None:
        while not stop.is_set():
            written.append(store.write_now(unit))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield written
    finally:
        stop.set()
        thread.join()


def test_a_backup_beside_a_busy_writer_shows_one_moment(store: Store, tmp_path: Path) -> None:
    """Each transaction is in it wholly or not at all, and the writer is not stopped."""
    with writing(store) as written:
        while len(written) < 20:
            time.sleep(0.002)
        counts = []
        for number in range(2):
            file = tmp_path / f"backup-{number}.db"
            held = back_up(store.url, file)
            counts.append((held.rows["change"], held.rows["delivery"]))
            before = len(written)
            while len(written) < before + 5:
                time.sleep(0.002)

    assert [(number, number) for number, _ in counts] == counts
    assert 20 <= counts[0][0] < counts[1][0] <= len(written)


def test_a_file_that_is_there_is_not_overwritten_unless_that_is_said(filled: Store, tmp_path: Path) -> None:
    """The last good backup is worth more than a new one."""
    file = tmp_path / "backup.db"
    file.write_text("precious")

    with pytest.raises(BackupError, match=r"backup\.db exists; name another file, or overwrite it with --force"):
        back_up(filled.url, file)

    assert "precious" == file.read_text()
    back_up(filled.url, file, force=True)
    assert b"SQLite format 3" == file.read_bytes()[:15]


def test_a_database_that_is_not_empty_is_not_mixed_with_a_backup(filled: Store, clock: Clock, tmp_path: Path) -> None:
    """Refused, untouched; with force all of it is replaced."""
    file = tmp_path / "backup.db"
    back_up(filled.url, file)
    Record(filled, clock).change("8" * 40, number=8)
    filled.close()
    before = rows(filled.url)

    with pytest.raises(BackupError, match="the database is not empty: it has rows in "):
        restore(filled.url, file, who="ada", now=NOW)

    assert before == rows(filled.url)
    restore(filled.url, file, who="ada", now=NOW, force=True)
    with contextlib.closing(Store(filled.url)) as again:
        assert {7} == {row.number for row in Record(again, clock).rows(Change) if row.id < LEAP}
        assert ("ada", "database restored") in [(row.who, row.what) for row in Record(again, clock).rows(Audit)]


def test_a_database_that_somebody_has_open_is_not_replaced(filled: Store, tmp_path: Path) -> None:
    """Not by force either: a service would go on with what it remembers, in between rows of another time."""
    file = tmp_path / "backup.db"
    back_up(filled.url, file)
    before = rows(filled.url)

    for force in (False, True):
        with pytest.raises(BackupError, match="the database is in use by "):
            restore(filled.url, file, who="ada", now=NOW, force=force)

    assert before == rows(filled.url)
    # Whoever has it open goes on as before, also by a new connection.
    filled.write_engine.dispose()
    filled.write_now(lambda conn: keep(conn, ALLOWLIST, "L2: []", etag=None, digest="e", now=NOW))
    filled.close()
    restore(filled.url, file, who="ada", now=NOW, force=True)
    assert before == without_marks(rows(filled.url))


def test_a_backup_of_an_older_schema_is_brought_to_this_one(other_url: str, tmp_path: Path) -> None:
    """What the version before this one left behind is of use to this one, and stays as it was."""
    file = tmp_path / "older.db"
    engine = make_engine(f"sqlite:///{file}")
    schema.upgrade(engine, to="0001")
    with engine.begin() as conn:
        conn.exec_driver_sql(
            "INSERT INTO delivery (id, event, repository, sender, received_at, payload, plan) "
            "VALUES ('D1', 'push', 'up/stream', 'ada', '2026-11-30 12:00:00.000000', '{}', '[]')"
        )
    engine.dispose()
    if other_url.startswith("postgres"):
        empty(other_url)

    held = restore(other_url, file, who="ada", now=NOW)

    assert "0001" == held.revision
    (row,) = rows(other_url)["delivery"]
    assert ("D1", datetime(2026, 11, 30, 12, tzinfo=UTC)) == (row[0], row[5])
    with contextlib.closing(sqlite3.connect(file)) as old:
        assert ("0001",) == old.execute("SELECT version_num FROM alembic_version").fetchone()


def test_a_backup_of_a_newer_schema_is_refused(sqlite_template: Path, tmp_path: Path) -> None:
    """What is not known cannot be kept, and to drop it silently would be a loss."""
    file = tmp_path / "newer.db"
    shutil.copy(sqlite_template, file)
    with contextlib.closing(sqlite3.connect(file)) as newer:
        newer.execute("UPDATE alembic_version SET version_num = '9999'")
        newer.commit()

    with pytest.raises(BackupError, match="at schema 9999, which this version does not know"):
        restore(f"sqlite:///{tmp_path / 'target.db'}", file, who="ada", now=NOW)

    assert not (tmp_path / "target.db").exists()


@pytest.mark.postgres
def test_a_schema_that_is_newer_is_backed_up_by_the_version_that_made_it(postgres_url: str, tmp_path: Path) -> None:
    """After going back a version there is nothing to migrate here: that advice would lead nowhere."""
    engine = make_engine(postgres_url)

    def is_at(revision: str | None) -> None:
        with engine.begin() as conn:
            conn.execute(text("UPDATE alembic_version SET version_num = :at"), {"at": revision})

    is_at("9999")
    try:
        with pytest.raises(BackupError, match=r"at schema 9999.* take the backup with the version that migrated it"):
            back_up(postgres_url, tmp_path / "backup.db")
    finally:
        is_at(schema.newest())
        engine.dispose()

    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"not a database, but long enough to be looked at" * 40, "cannot be read as an SQLite file"),
        (b"", "is an SQLite file, and not one of this service"),
    ],
)
def test_what_is_no_backup_is_said_to_be_none(content: bytes, said: str, tmp_path: Path) -> None:
    """In words, before anything is touched."""
    file = tmp_path / "backup.db"
    file.write_bytes(content)

    with pytest.raises(BackupError, match=said):
        restore(f"sqlite:///{tmp_path / 'target.db'}", file, who="ada", now=NOW)


def test_a_damaged_backup_is_refused(filled: Store, tmp_path: Path) -> None:
    """A page of it was overwritten: found before anything is restored from it."""
    file = tmp_path / "backup.db"
    back_up(filled.url, file)
    content = bytearray(file.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 12288] = b"\xff" * 12288
    file.write_bytes(content)

    with pytest.raises(BackupError, match=r"is damaged|cannot be read"):
        restore(f"sqlite:///{tmp_path / 'target.db'}", file, who="ada", now=NOW)


def test_vacuum_gives_room_back(store: Store, clock: Clock) -> None:
    """What was forgotten takes no room any more, and what is there stays."""
    record = Record(store, clock)
    record.change()
    big = [
        {"id": f"w{number}", "event": "push", "repository": "", "payload": "x" * 20_000, "plan": "[]"}
        for number in range(100)
    ]
    table = Delivery.__table__  # type: ignore[attr-defined]
    store.write_now(lambda conn: conn.execute(insert(table), [{**row, "received_at": NOW} for row in big]).rowcount)
    store.write_now(lambda conn: conn.execute(table.delete()).rowcount)

    done = vacuum(store.url)

    if store.dialect == "sqlite":
        assert done.after < done.before - 1_000_000
    assert min(done.before, done.after) > 0
    assert 1 == store.read_now(lambda conn: conn.execute(select(func.count()).select_from(Change)).scalar())
    clock.advance(timedelta(seconds=1))
    assert record.change("7" * 40, number=9)
