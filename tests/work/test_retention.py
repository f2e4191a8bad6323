"""Retention: what is open stays, what ended long ago goes with all that hangs on it, and acts of people stay."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from sqlalchemy import insert

from relay.deciding.effects import Kind, NewEffect, pin_backend
from relay.store import outbox, retention
from relay.store.retention import Forgotten, forget
from relay.store.tables import (
    Attempt,
    Audit,
    Backend,
    Change,
    Check,
    Command,
    Comment,
    Delivery,
    Dispatch,
    Effect,
    Job,
    Observation,
    Override,
    Report,
    TestResult,
    metadata,
)
from relay.work.sweep import FORGET_EVERY, Sweep
from tests.conftest import Clock
from tests.relay.planning import S1, S2, pull_request, push
from tests.store.taking_in import Intake
from tests.work.record import NPU, TERMS, Record

DAY = timedelta(days=1)
KEEP = timedelta(days=90)
OF_A_CHANGE = (
    Change,
    Delivery,
    Dispatch,
    Report,
    Job,
    TestResult,
    Observation,
    Check,
    Override,
    Comment,
    Command,
    Effect,
    Attempt,
)


def history(record: Record, head_sha: str, number: int = 7) -> int:
    """A change with everything that can hang on one; returns its id."""
    change = record.change(head_sha, number=number)
    record.planned(change, [])
    dispatch = record.told(change)
    record.report(dispatch, "failure", run=str(number), tests=[("test_add", "TestAdd", "1 is not 2")])
    now = record.clock.now()
    said = [
        insert(Observation).values(dispatch_id=dispatch, run_id="1", run_attempt=1, status="completed", seen_at=now),
        insert(Override).values(head_sha=head_sha, backend="org/npu", number=number, who="ada", why="known", at=now),
        insert(Comment).values(number=number, topic="status", body="", wanted="", created_at=now),
        insert(Command).values(
            delivery_id=f"c{number}", source="comment", number=number, sender="ada", verb="status", created_at=now
        ),
    ]
    record.store.write_now(lambda conn: [conn.execute(statement) for statement in said])
    record.store.write_now(
        lambda conn: outbox.enqueue(
            conn,
            [
                NewEffect(Kind.OBSERVE, f"o{number}", "account org", subject_id=dispatch),
                NewEffect(Kind.RUN_COMMAND, f"a{number}", "account up", subject_id=record.rows(Command)[-1].id),
                NewEffect(Kind.RECONCILE_COMMENT, f"b{number}", "up", subject_id=record.rows(Comment)[-1].id),
                NewEffect(Kind.DISPATCH, f"d{number}", "account org", subject_id=dispatch),
                NewEffect(Kind.FORWARD_HUD, f"h{number}", "hud", subject_id=record.rows(Report)[-1].id),
                NewEffect(Kind.CONFIRM_COMMIT, f"c{number}", "account up", subject_id=change),
            ],
            record.clock.now(),
        )
    )
    record.settle()
    tried = [
        {"effect_id": row.id, "number": 1, "finished_at": record.clock.now(), "seconds": 0, "outcome": "done"}
        for row in record.rows(Effect)
        if row.state == "running"
    ]
    if tried:
        table = Attempt.__table__  # type: ignore[attr-defined]
        record.store.write_now(lambda conn: conn.execute(insert(table), tried))
    return change


def end(record: Record, change: int, state: str = "closed") -> None:
    """Nobody waits for this change any more."""
    record.edit_change(change, state=state, ended_at=record.clock.now())
    record.settle(passing=timedelta(seconds=4))


def forget_all(record: Record) -> Forgotten:
    """What ended longer ago than is kept, in as many steps as it takes."""
    changes = rows = 0
    while True:
        step = record.store.write_now(lambda conn: forget(conn, record.clock.now() - KEEP))
        changes, rows = changes + step.changes, rows + step.rows
        if not step.more:
            return Forgotten(changes, rows)


def counts(record: Record) -> dict[str, int]:
    """How many rows each table has."""
    return {table.__tablename__: len(record.rows(table)) for table in OF_A_CHANGE}


def test_a_change_goes_with_everything_that_hangs_on_it(record_on_both: Record) -> None:
    """Not a row of it is left, the backend is, and what belongs to another change is untouched."""
    record = record_on_both
    history(record, S2, number=8)
    record.settle(passing=timedelta(seconds=4))
    before = counts(record)
    end(record, history(record, S1))
    assert all(counts(record)[name] > count > 0 for name, count in before.items())

    record.clock.advance(KEEP + DAY)
    gone = forget_all(record)

    assert (1, False) == (gone.changes, gone.more)
    assert before == counts(record)
    assert {S2} == {row.head_sha for row in record.rows(Change)} == {row.head_sha for row in record.rows(Check)}
    assert ["org/npu"] == [row.repo for row in record.rows(Backend)]


def test_what_is_open_or_ended_lately_is_kept(record_on_both: Record) -> None:
    """Ninety days count from the end and not from the beginning: a pull request may be open for a year."""
    record = record_on_both
    history(record, S2, number=8)
    closed = history(record, S1)
    record.clock.advance(365 * DAY)
    end(record, closed)
    before = counts(record)

    record.clock.advance(KEEP - timedelta(seconds=4))
    assert Forgotten() == forget_all(record)

    assert before == counts(record)


def test_a_change_whose_backend_is_awaited_is_kept(record_on_both: Record) -> None:
    """A deadline that the sweep has still to conclude is no garbage."""
    record = record_on_both
    change = record.change()
    record.told(change)
    record.edit_change(change, state="closed", ended_at=record.clock.now())
    record.clock.advance(KEEP + DAY)

    assert 0 == forget_all(record).changes


def test_a_commit_s_checks_stay_while_another_change_has_it(record_on_both: Record) -> None:
    """Two pull requests can share a head; the check on it is both's."""
    record = record_on_both
    record.change(number=8)
    end(record, record.change())
    checks = len(record.rows(Check))
    record.clock.advance(KEEP + DAY)

    assert 1 == forget_all(record).changes

    assert checks == len(record.rows(Check)) > 0


def test_a_large_change_goes_in_steps(record: Record) -> None:
    """A night of thousands of jobs must not stand between a webhook and its answer."""
    change = record.change()
    dispatch = record.told(change)
    for number in range(7):
        record.report(dispatch, "success", job=f"job {number}")
    end(record, change)
    record.clock.advance(KEEP + DAY)

    def step() -> tuple[int, int, bool]:
        gone = record.store.write_now(lambda conn: forget(conn, record.clock.now() - KEEP, reports=3))
        return len(record.rows(Report)), gone.changes, gone.more

    assert [(4, 0, True), (1, 0, True), (0, 1, False)] == [step(), step(), step()]


def test_what_hangs_on_no_change_goes_by_its_age(record_on_both: Record) -> None:
    """Installations' webhooks, questions for ids, and our own conclusions; what people and the list changed stays."""
    record = record_on_both
    now = record.clock.now()

    def unit(conn: Any) -> None:
        outbox.enqueue(conn, [pin_backend(NPU)], now)
        (claimed,) = outbox.claim(conn, owner="w", count=9, now=now)
        outbox.finish(conn, [outbox.Ended(claimed, "done", 0.1)], owner="w", now=now)
        conn.execute(
            insert(Delivery.__table__).values(  # type: ignore[attr-defined]
                id="W1", event="installation", repository="", sender="", received_at=now, payload="{}", plan="[]"
            )
        )
        acts = [("relay", "deadline"), ("relay", "allowlist"), ("ada", "pause")]
        rows = [
            {"at": now, "who": who, "what": what, "subject": "", "why": "", "before": "", "after": ""}
            for who, what in acts
        ]
        conn.execute(insert(Audit.__table__), rows)  # type: ignore[attr-defined]

    record.store.write_now(unit)
    record.clock.advance(KEEP)
    assert 0 == forget_all(record).rows

    record.clock.advance(DAY)
    assert 4 == forget_all(record).rows

    assert ([], [], []) == (record.rows(Delivery), record.rows(Effect), record.rows(Attempt))
    assert ["allowlist", "pause"] == [row.what for row in record.rows(Audit)]


def test_every_kind_of_effect_goes_with_something() -> None:
    """A kind that nobody thought of here would stay for ever."""
    groups = (
        retention.OF_DISPATCHES,
        retention.OF_REPORTS,
        retention.OF_CHECKS,
        retention.OF_CHANGES,
        retention.OF_COMMENTS,
        retention.OF_COMMANDS,
        retention.OF_NOTHING,
    )

    assert sorted(Kind) == sorted(kind for group in groups for kind in group)


def test_the_sweep_forgets_once_an_hour(record: Record) -> None:
    """It is nobody's hurry, and the look itself costs something."""
    sweep = Sweep(
        store=record.store, terms=TERMS, now=record.clock.now, wake=lambda: None, seconds=1, keep=timedelta(days=2)
    )
    end(record, record.change())
    asyncio.run(sweep.turn())
    record.clock.advance(2 * DAY + FORGET_EVERY)
    end(record, late := record.change(S2, number=8))

    asyncio.run(sweep.turn())
    assert [late] == [row.id for row in record.rows(Change)]

    record.edit_change(late, ended_at=record.clock.now() - 3 * DAY)
    asyncio.run(sweep.turn())
    assert [late] == [row.id for row in record.rows(Change)]
    record.clock.advance(FORGET_EVERY)
    asyncio.run(sweep.turn())

    assert [] == record.rows(Change)


def test_a_head_grows_old_from_when_nobody_waits_for_it(store: Any, clock: Clock) -> None:
    """A replaced or closed head from then on, one that came back not at all, and a push from its receipt on."""
    intake = Intake(store, (), clock.now())
    began = clock.now()
    intake.take(pull_request(), "D1")
    assert [(S1, None)] == intake.changes("head_sha", "ended_at")

    later = Intake(store, (), clock.advance(DAY))
    later.take(pull_request("synchronize", S2, 1, before=S1), "D2")
    later.take(push(), "D3")
    assert [(S1, began + DAY), (S2, None), (S2, began + DAY)] == intake.changes("head_sha", "ended_at")

    last = Intake(store, (), clock.advance(DAY))
    last.take(pull_request("synchronize", S1, 2, before=S2), "D4")
    last.take(pull_request("closed", S1, 3, closed=True), "D5")

    assert [(S1, began + 2 * DAY), (S2, began + 2 * DAY)] == intake.changes("head_sha", "ended_at")[:2]


def test_every_table_is_forgotten_or_kept_on_purpose() -> None:
    """A table that nobody thought of here would grow for ever."""
    kept_for_ever = {"dispatch_history", "combination_history"}
    # One row for each backend, account or job of the service.
    few = {"backend", "document", "pacing", "circuit", "listing", "turn"}
    by_age = {"audit", "allowlist_version", "gap"}

    assert set(metadata.tables) == {table.__tablename__ for table in OF_A_CHANGE} | kept_for_ever | few | by_age
