"""The store: what it said it kept it kept, and one unit's fault is nobody else's."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from relay.store.engine import GO_FIRST, GROUP, RefusalError, Store, StoreDownError
from relay.store.postgres import TAKE_TURN
from tests.conftest import empty


def insert(store: Store, key: str) -> None:
    """Keep one row."""
    store.write_now(lambda conn: _insert(conn, key))


def _insert(conn: Connection, key: str) -> None:
    conn.execute(
        text("INSERT INTO pacing (key, not_before, reason) VALUES (:k, '2026-11-30 12:00:00', '')"), {"k": key}
    )


def _insert_much(conn: Connection) -> None:
    for number in range(100):
        _insert(conn, f"{number}" * 1_000)


def keys(store: Store) -> list[str]:
    """The rows that are kept."""
    return store.read_now(lambda conn: list(conn.execute(text("SELECT key FROM pacing ORDER BY key")).scalars()))


def run_together(store: Store, *units: object) -> list[object]:
    """Queue the units while the writer is busy, so that they share one transaction; returns values or errors."""
    gate = threading.Event()
    blocker = store._submit(lambda _conn: gate.wait(5))
    futures: list[Future[object]] = [store._submit(unit) for unit in units]  # type: ignore[arg-type]
    gate.set()
    blocker.result(5)
    return [future.exception(5) or future.result(5) for future in futures]


def test_a_unit_that_fails_takes_no_other_with_it(store: Store) -> None:
    """Units that share a commit are strangers to each other: a duplicate key in one must not undo the rest."""
    insert(store, "there")

    outcomes = run_together(
        store,
        lambda conn: _insert(conn, "a"),
        lambda conn: _insert(conn, "there"),
        lambda conn: _insert(conn, "b"),
    )

    assert keys(store) == ["a", "b", "there"]
    assert [type(None), IntegrityError, type(None)] == [type(outcome) for outcome in outcomes]


def test_a_refusal_costs_the_group_nothing(store: Store) -> None:
    """A caller that is turned away before anything was written must not make the others run again."""
    runs: list[str] = []

    def counted(conn: Connection) -> None:
        runs.append("counted")
        _insert(conn, "a")

    def refuse(_conn: Connection) -> None:
        raise RefusalError("no")

    outcomes = run_together(store, counted, refuse)

    assert (keys(store), runs) == (["a"], ["counted"])
    assert isinstance(outcomes[1], RefusalError)


def test_what_a_caller_waits_for_goes_before_the_workers_notes(store: Store) -> None:
    """A webhook's answer must not stand behind claims and notes, and those must not starve behind webhooks."""
    order: list[str] = []
    gate, held = threading.Event(), threading.Event()

    def hold(_conn: Connection) -> None:
        held.set()
        gate.wait(5)

    def noted(name: str) -> Callable[[Connection], None]:
        return lambda _conn: order.append(name)

    blocker = store._submit(hold)
    held.wait(5)
    futures = [store._submit(noted("worker"))]
    futures += [store._submit(noted("webhook"), waited_for=True) for _ in range(GO_FIRST * GROUP + 1)]
    gate.set()
    for future in [blocker, *futures]:
        future.result(5)

    assert (["webhook"] * GO_FIRST * GROUP + ["worker", "webhook"]) == order


def test_two_processes_that_want_the_same_rows_crosswise_both_get_them(database_url: str) -> None:
    """Each holds a row that the other wants next: a deadlock, were it not that all writers take turns."""
    with closing(Store(database_url)) as first, closing(Store(database_url)) as second:
        insert(first, "a")
        insert(first, "b")
        tries: list[str] = []

        def touch(*rows: str) -> Callable[[Connection], None]:
            def unit(conn: Connection) -> None:
                for row in rows:
                    tries.append(row)
                    conn.execute(text("UPDATE pacing SET reason = reason || 'x' WHERE key = :k"), {"k": row})
                    time.sleep(0.2)

            return unit

        both = [first._submit(touch("a", "b")), second._submit(touch("b", "a"))]
        for one in both:
            one.result(10)

        found = first.read_now(lambda conn: list(conn.execute(text("SELECT reason FROM pacing")).scalars()))
        assert ["xx", "xx"] == found
        assert 4 == len(tries)  # Neither had to begin again.


@pytest.mark.postgres
def test_a_process_that_stops_in_its_turn_does_not_stop_the_others(postgres_url: str) -> None:
    """The server ends a session that does nothing in the middle of a transaction, and the next has its turn."""
    empty(postgres_url)
    gate, held, limits = threading.Event(), threading.Event(), []

    def stop(conn: Connection) -> None:
        limits.append(conn.execute(text("SHOW idle_in_transaction_session_timeout")).scalar())
        conn.execute(text("SET LOCAL idle_in_transaction_session_timeout = 300"))  # So that the test need not wait.
        held.set()
        gate.wait(30)

    with closing(Store(postgres_url)) as frozen, closing(Store(postgres_url)) as other:
        stuck = frozen._submit(stop)
        held.wait(5)

        insert(other, "a")

        gate.set()
        assert ["8s"] == limits
        with pytest.raises(StoreDownError):
            stuck.result(10)
        assert ["a"] == keys(other)


def test_readers_see_only_what_is_committed(store: Store) -> None:
    """A page must never show what a failed transaction would have written."""
    seen: list[list[str]] = []

    def unit(conn: Connection) -> None:
        _insert(conn, "a")
        seen.append(keys(store))

    store.write_now(unit)

    assert (seen, keys(store)) == ([[]], ["a"])


def test_a_reader_cannot_write(store: Store) -> None:
    """Only the writer writes, or the order of commits would be anybody's."""
    with pytest.raises((StoreDownError, DBAPIError)):
        store.read_now(lambda conn: _insert(conn, "a"))

    assert keys(store) == []


def test_a_closed_store_says_so(store: Store) -> None:
    """A request that comes while the service stops gets an answer, not a wait."""
    store.close()

    with pytest.raises(StoreDownError):
        insert(store, "late")


def test_an_unreachable_database_is_our_fault_and_passes() -> None:
    """Callers are told to come back; nothing about the database's address leaks into the message."""
    store = Store("postgresql://nobody:secret@127.0.0.1:9/none")

    with pytest.raises(StoreDownError) as told:
        insert(store, "a")
    with pytest.raises(StoreDownError):
        keys(store)
    store.close()

    assert "secret" not in str(told.value)
    assert "127.0.0.1" not in str(told.value)


def _on_a_file(template: Path, folder: Path) -> tuple[Store, Path]:
    path = folder / "relay.db"
    shutil.copy(template, path)
    return Store(f"sqlite:///{path}"), path


@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced"])
def test_nothing_is_kept_in_a_file_that_has_lost_its_name(
    sqlite_template: Path, tmp_path: Path, replaced: bool
) -> None:
    """SQLite would write on into the nameless file, and all that was answered 200 would be gone at the next start."""
    store, path = _on_a_file(sqlite_template, tmp_path)
    insert(store, "before")
    moved = path.rename(tmp_path / "moved.db")
    if replaced:
        shutil.copy(sqlite_template, path)

    with pytest.raises(StoreDownError, match=r"relay\.db is") as told:
        insert(store, "lost")
    troubled = store.trouble(60)
    path.unlink(missing_ok=True)
    moved.rename(path)
    insert(store, "after")
    kept = keys(store)
    store.close()

    assert str(told.value) == troubled
    assert str(tmp_path) not in str(told.value)
    assert ["after", "before"] == kept


def test_a_damaged_file_is_our_fault_and_is_named(sqlite_template: Path, tmp_path: Path) -> None:
    """Callers are told to come back, instead of being shown an error of ours."""
    store, path = _on_a_file(sqlite_template, tmp_path)
    path.write_bytes(b"no database " * 10_000)

    with pytest.raises(StoreDownError, match="file is not a database"):
        insert(store, "a")
    with pytest.raises(StoreDownError, match="file is not a database"):
        keys(store)
    store.close()


def test_a_database_that_can_only_be_read_says_why(sqlite_template: Path, tmp_path: Path) -> None:
    """A full disk and a lock are mended in different ways, and reading goes on in both."""
    store, _path = _on_a_file(sqlite_template, tmp_path)
    insert(store, "a")
    assert store.trouble(60) is None
    store.write_now(lambda conn: conn.exec_driver_sql("PRAGMA max_page_count = 1"))

    with pytest.raises(StoreDownError, match="database or disk is full"):
        store.write_now(_insert_much)
    troubled = store.trouble(60)
    kept = keys(store)
    store.close()

    assert "the database did not answer: OperationalError: database or disk is full" == troubled
    assert ["a"] == kept


def test_a_database_that_is_gone_is_asked_once_for_all_who_wait() -> None:
    """Each try may take seconds, and a webhook has ten: the last of a group must not wait for the others' tries."""
    store = Store("postgresql://nobody@127.0.0.1:9/none")
    tries: list[str] = []
    event.listen(store.write_engine, "do_connect", lambda *_of_connecting: tries.append("connect"))

    _, *outcomes = [_outcome(future) for future in _queued(store, 9)]
    store.close()

    # The first of them may have been alone in its group.
    assert len(tries) <= 2
    assert [StoreDownError] * 8 == [type(outcome) for outcome in outcomes]


@pytest.mark.postgres
def test_a_turn_that_does_not_come_is_waited_for_once_by_all_who_wait(postgres_url: str) -> None:
    """Each wait may take nine seconds, and whoever stands last in a group would wait for all the others' as well."""
    empty(postgres_url)
    turns: list[str] = []

    def hasten(connection: Any, _record: object) -> None:
        connection.execute("SET lock_timeout = 300")  # So that the test need not wait.
        connection.commit()

    def note(_conn: object, _cursor: object, statement: str, *_rest: object) -> None:
        turns.extend([statement] * (statement == TAKE_TURN))

    with closing(Store(postgres_url)) as other, closing(Store(postgres_url)) as store:
        event.listen(store.write_engine, "connect", hasten)
        event.listen(store.write_engine, "before_cursor_execute", note)
        gate, held = threading.Event(), threading.Event()

        def hold(_conn: Connection) -> None:
            held.set()
            gate.wait(5)

        turn = other._submit(hold)
        held.wait(5)
        outcomes = [_outcome(future) for future in _queued(store, 3)]
        gate.set()
        turn.result(5)
        insert(store, "later")

        assert ["later"] == keys(store)

    # The first may have been alone in its group.
    assert len(turns) - 1 <= 2
    assert [StoreDownError] * 3 == [type(outcome) for outcome in outcomes]


def _queued(store: Store, count: int) -> list[Future[None]]:
    return [store._submit(lambda conn: _insert(conn, "a")) for _ in range(count)]


def _outcome(future: Future[None]) -> object:
    return future.exception(20)


def test_an_error_does_not_repeat_the_values_of_its_statement(store: Store) -> None:
    """Values are callers' texts and, once, our own key; errors go into logs."""
    insert(store, "somebody's text")

    with pytest.raises(IntegrityError) as told:
        insert(store, "somebody's text")

    assert "INSERT INTO pacing" in str(told.value)
    assert "parameters: " not in str(told.value)
