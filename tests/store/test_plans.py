"""How statements are carried out: those that run all the time look at what is open, not at all that was ever done."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, event, insert
from sqlmodel import SQLModel

from allowlist.model import RepoName
from relay.deciding.effects import Kind, NewEffect
from relay.store import outbox
from relay.store.checks import CheckTerms, heal, touch_head
from relay.store.deadlines import note_dead_letters, sweep_deadlines
from relay.store.doubts import siblings_of
from relay.store.engine import Store
from relay.store.forwarding import revive_forwards
from relay.store.reading.asked import asked_on
from relay.store.reading.deliveries import dead_letters
from relay.store.retention import forget
from relay.store.tables import Change, Check, Command
from relay.store.waiting import waiting
from relay.texts.words import GATE_NAME
from tests.conftest import empty

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
TERMS = CheckTerms(RepoName("up", "stream"), "ciflow/crcr/", timedelta(seconds=3))


def carried_out(store: Store, unit: Callable[[Connection], Any]) -> str:
    """The database's own account of how it carries out the statements of this unit."""
    said: list[tuple[str, Any]] = []

    def note(_conn: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
        said.append((statement, parameters))

    def explain(conn: Connection) -> str:
        event.listen(store.write_engine, "before_cursor_execute", note)
        unit(conn)
        event.remove(store.write_engine, "before_cursor_execute", note)
        prefix = "EXPLAIN QUERY PLAN "
        if store.dialect == "postgresql":
            # Few rows are read fastest without an index; asked is whether there is one for many.
            conn.exec_driver_sql("SET LOCAL enable_seqscan = off")
            prefix = "EXPLAIN "
        rows = (row for statement, given in said for row in conn.exec_driver_sql(prefix + statement, given))
        return "\n".join(str(row[-1]) for row in rows)

    return store.write_now(explain)


def put_much_behind_us(store: Store) -> None:
    """Effects that were done, heads that ended, their gates and commands, so that an index pays; and nothing is due.

    PostgreSQL is told what there is: else it would guess, and otherwise each time that it had come to count.
    """

    def unit(conn: Connection) -> None:
        done = [NewEffect(Kind.DISPATCH, f"l{n}", "account org", subject_id=n) for n in range(2_000)]
        outbox.enqueue(conn, done, NOW)
        conn.exec_driver_sql("UPDATE effect SET state = 'done'")
        change = Change(
            kind="push", thread="", head_sha="", state="closed", created_at=NOW, updated_at=NOW, received_at=NOW
        )
        check = Check(head_sha="", name=GATE_NAME, status="completed", created_at=NOW)
        command = Command(delivery_id="", source="comment", sender="ada", verb="status", created_at=NOW)
        ended: list[tuple[SQLModel, Callable[[int], dict[str, Any]]]] = [
            (change, lambda n: {"thread": f"t{n}", "ended_at": NOW}),
            (check, lambda _: {}),
            (command, lambda n: {"delivery_id": f"D{n}", "number": 10_000 + n}),
        ]
        for row, own in ended:
            alike = row.model_dump(exclude={"id"})
            conn.execute(insert(type(row)), [alike | {"head_sha": f"{n:040x}"} | own(n) for n in range(2_000)])
        if store.dialect == "postgresql":
            conn.exec_driver_sql("ANALYZE")

    store.write_now(unit)


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with much behind it, on each database. No unit finds anything to do, so all tests can share it."""
    if request.param == "sqlite":
        path = tmp_path_factory.mktemp("plans") / "relay.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
        url = f"sqlite:///{path}"
    else:
        url = request.getfixturevalue("postgres_url")
        empty(url)
    with contextlib.closing(Store(url)) as opened:
        put_much_behind_us(opened)
        yield opened


@pytest.mark.parametrize(
    ("index", "unit"),
    [
        ("ix_effect_open", lambda conn: outbox.claim(conn, owner="me", count=9, now=NOW)),
        ("ix_effect_ready", lambda conn: outbox.claim(conn, owner="me", count=9, now=NOW)),
        ("ix_effect_until", lambda conn: outbox.claim(conn, owner="me", count=9, now=NOW)),
        ("ix_effect_open", outbox.free_turns),
        ("ix_effect_open", outbox.open_count),
        ("ix_effect_open", lambda conn: outbox.backlog(conn, NOW)),
        (
            "ix_effect_dispatched",
            lambda conn: siblings_of(conn, 1, "org/npu", since=NOW, first_at=NOW, shown_before=NOW),
        ),
        ("ix_effect_dead", lambda conn: note_dead_letters(conn, NOW, TERMS)),
        ("ix_effect_dead", dead_letters),
        ("ix_effect_subject", lambda conn: revive_forwards(conn, NOW)),
        ("ix_check_owed", lambda conn: heal(conn, TERMS, NOW)),
        ("ix_effect_open", lambda conn: touch_head(conn, "1" * 40, TERMS, NOW)),
        ("ix_dispatch_next_deadline", lambda conn: sweep_deadlines(conn, NOW, TERMS)),
        ("ix_change_ended_at", lambda conn: forget(conn, NOW)),
        ("ix_effect_open", lambda conn: waiting(conn, NOW)),
        ("ix_effect_dead", lambda conn: waiting(conn, NOW)),
        ("ix_dispatch_next_deadline", lambda conn: waiting(conn, NOW)),
        ("ix_change_ended_at", lambda conn: waiting(conn, NOW)),
        ("ix_job_dispatch", lambda conn: waiting(conn, NOW)),
        ("ix_command_head_sha", lambda conn: asked_on(conn, "1" * 40, 7)),
    ],
)
def test_what_runs_all_the_time_has_an_index(store: Store, index: str, unit: Callable[[Connection], Any]) -> None:
    """After ninety days there are millions of effects that are done, and a claim twice a second must not read them."""
    account = carried_out(store, unit)

    assert index in account
    assert "SCAN effect\n" not in f"{account}\n"
    assert "Seq Scan on effect" not in account


def test_a_touch_reads_of_what_is_owed_only_its_own(store: Store) -> None:
    """It runs with every report, and thousands may be owed: an index of them that is read from end to end is none."""
    account = carried_out(store, lambda conn: touch_head(conn, "1" * 40, TERMS, NOW))

    assert "SCAN effect" not in account
    if store.dialect == "postgresql":
        assert "Index Cond: ((lane)::text = " in account
