"""A clock that ran ahead and was set right: what it made wait is not waited for any longer than its rule says."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import insert, select, update

from relay.circuits import Circuit, State
from relay.effects import Kind, NewEffect
from relay.store import budgets, circuits, gaps
from relay.store.circuits import Book
from relay.store.claiming import LEASE
from relay.store.engine import Store
from relay.store.outbox import Ended
from relay.store.set_back import CLOCK, TOLERANCE, SetBack, bring_back
from relay.store.tables import Change, Dispatch, Effect
from relay.store.tables_gaps import Turn
from relay.store.tables_limits import Pacing
from relay.work.schedule import LONGEST
from tests.store.test_claiming import NOW, dispatches, end, put, take

AHEAD = timedelta(hours=3)
THEN = NOW + AHEAD
MINUTE = timedelta(minutes=1)


def look(store: Store, at: datetime) -> SetBack | None:
    """What the sweep does."""
    return store.write_now(lambda conn: bring_back(conn, LONGEST, at))


def row(store: Store, table: Any, key: object) -> Any:
    """One row."""
    column = next(iter(table.__table__.primary_key))
    return store.read_now(lambda conn: conn.execute(select(table.__table__).where(column == key)).one())


def effects(store: Store) -> Mapping[int, Any]:
    """All effects, by subject."""
    table = Effect.__table__  # type: ignore[attr-defined]
    return {one.subject_id: one for one in store.read_now(lambda conn: conn.execute(select(table)).all())}


def test_waits_of_every_kind_last_as_long_as_they_should(store: Store) -> None:
    """Written down by a clock that was three hours ahead, each ends as long after now as it would have after then."""
    put(store, *dispatches("org", 3), at=NOW - MINUTE)
    put(store, NewEffect(Kind.OBSERVE, "later", "account org", 9, "", delay=5 * MINUTE), at=THEN)
    look(store, THEN)
    claimed = {one.subject_id: one for one in take(store, at=THEN)}
    end(store, Ended(claimed[0], "retry", 0.1, "why", "what", due=THEN + MINUTE, down=True), at=THEN)
    limited = Ended(claimed[1], "limited", 0.1, due=THEN + 2 * MINUTE, not_before=THEN + 2 * MINUTE)
    end(store, limited, at=THEN)
    book = Book({})
    book.put("account away", Circuit("account away", State.OPEN, THEN, failures=9, held_until=THEN + 2 * MINUTE))

    def unit(conn: Any) -> None:
        budgets.rest(conn, "account org", THEN + MINUTE, "rate_limited")
        budgets.rest(conn, "account over", THEN - MINUTE, "rate_limited")
        budgets.spare(conn, "account org", THEN + 2 * MINUTE)
        circuits.keep(conn, book)
        gaps.take_turn(conn, "find", 5 * MINUTE, THEN)

    store.write_now(unit)

    assert look(store, NOW) is not None

    found = effects(store)
    assert [NOW + MINUTE, NOW + 2 * MINUTE, NOW + 5 * MINUTE] == [found[number].due for number in (0, 1, 9)]
    assert NOW + 2 * MINUTE == found[1].not_before
    assert NOW + LEASE == found[2].lease
    pacing = row(store, Pacing, "account org")
    assert (NOW + MINUTE, NOW + 2 * MINUTE) == (pacing.not_before, pacing.free_at)
    assert NOW == row(store, Pacing, "account over").not_before
    shut = store.read_now(circuits.load)["account away"]
    assert (NOW, NOW + 2 * MINUTE) == (shut.since, shut.held_until)
    assert NOW + 5 * MINUTE == row(store, Turn, "find").due_at


def test_it_is_done_once_and_only_where_the_clock_was_set_back(store: Store) -> None:
    """A wait that GitHub named afterwards stands, and so does all while clocks differ by less than a moment."""
    assert look(store, NOW) is None
    assert look(store, NOW + MINUTE) is None
    store.write_now(lambda conn: budgets.rest(conn, "account org", NOW + AHEAD, "rate_limited"))
    assert look(store, NOW + MINUTE - TOLERANCE) is None
    look(store, THEN)
    assert look(store, NOW) == SetBack(AHEAD, 1)
    store.write_now(lambda conn: budgets.rest(conn, "account org", NOW + AHEAD, "rate_limited"))

    assert look(store, NOW) is None
    assert NOW + AHEAD == row(store, Pacing, "account org").not_before
    assert NOW == row(store, Turn, CLOCK).mark


def test_what_the_right_clock_made_wait_goes_on_waiting(store: Store) -> None:
    """A retry that was due in an hour before the clock ran ahead; one brought forward to then is due at once."""
    put(store, *dispatches("org", 2), at=NOW)
    first, second = take(store, at=NOW)
    end(store, *(Ended(one, "retry", 0.1, "why", due=NOW + 10 * MINUTE) for one in (first, second)), at=NOW)
    table = Effect.__table__  # type: ignore[attr-defined]
    hour = {"failures": 5, "due": NOW + timedelta(hours=1)}
    store.write_now(lambda conn: conn.execute(update(table).where(table.c.id == first.id).values(**hour)))
    store.write_now(lambda conn: conn.execute(update(table).where(table.c.id == second.id).values(due=THEN)))
    look(store, THEN)

    look(store, NOW)

    found = effects(store)
    assert [NOW + timedelta(hours=1), NOW] == [found[one.subject_id].due for one in (first, second)]


def test_deadlines_end_when_they_should_and_never_sooner(store: Store) -> None:
    """A gate must not be held for as long as the clock was ahead, nor be let go before its backend had its time."""
    hour = timedelta(hours=1)
    change, table = Change.__table__, Dispatch.__table__  # type: ignore[attr-defined]

    def told(thread: str, created: datetime, started: datetime | None, deadline: datetime, last: datetime) -> int:
        def unit(conn: Any) -> int:
            head: dict[str, Any] = {"kind": "pull_request", "head_sha": "1" * 40, "thread": thread}
            head |= dict.fromkeys(("created_at", "updated_at", "received_at"), NOW)
            change_id = conn.execute(insert(change).values(**head).returning(change.c.id)).scalar_one()
            values = {"change_id": change_id, "backend": f"org/{change_id}", "level": 4, "state": "sent"}
            values |= {"created_at": created, "started_at": started, "outcome": "queued", "outcome_at": created}
            values |= {"next_deadline": deadline, "give_up_at": last, "purpose": "test"}
            values |= {
                "event_type": "e",
                "delivery_id": f"d{change_id}",
                "origin_delivery": "o",
                "reason_code": "wanted",
            }
            values |= {"terms": "{}"}
            return int(conn.execute(insert(table).values(**values).returning(table.c.id)).scalar_one())

        return store.write_now(unit)

    whole = told("1", THEN, None, THEN + 2 * hour, THEN + 2 * hour)
    running = told("2", NOW, THEN, THEN + hour, NOW + 2 * hour)
    patient = told("3", NOW, THEN, NOW + 2 * hour, NOW + 2 * hour)
    look(store, THEN)
    look(store, NOW)

    assert (NOW, NOW + 2 * hour, NOW + 2 * hour) == _times(row(store, Dispatch, whole))
    assert (NOW, NOW + 2 * hour, NOW + 2 * hour) == _times(row(store, Dispatch, running))
    assert (NOW, NOW + 2 * hour, NOW + 2 * hour) == _times(row(store, Dispatch, patient))
    assert NOW == row(store, Dispatch, running).started_at


def _times(told: Any) -> tuple[datetime, datetime, datetime]:
    return told.created_at, told.next_deadline, told.give_up_at
