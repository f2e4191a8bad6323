"""A clock that ran ahead and was set right: what it made wait is not waited for any longer than its rule says."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select, update

from relay.deciding.circuits import Circuit, State
from relay.deciding.effects import Kind, NewEffect
from relay.store import budgets, circuits, gaps
from relay.store.circuits import Book
from relay.store.claiming import LEASE
from relay.store.engine import Store
from relay.store.outbox import Ended
from relay.store.set_back import (
    CLOCK,
    STANDS,
    TOLERANCE,
    Leases,
    SetBack,
    Watch,
    cut_waits,
    end_leases,
    too_long,
)
from relay.store.tables import Effect
from relay.store.tables_gaps import Turn
from relay.store.tables_limits import Pacing
from relay.work.schedule import LONGEST
from tests.store.test_claiming import NOW, dispatches, end, put, take

AHEAD = timedelta(hours=3)
THEN = NOW + AHEAD
MINUTE = timedelta(minutes=1)


class Process:
    """One process that looks at its clock, as the sweep does. Seconds pass where they are named."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seconds = 0.0
        self._watch = Watch(lambda: self._seconds)

    def look(self, at: datetime, *, after: timedelta = timedelta()) -> SetBack | None:
        """What the clock tells at a look, after so much time."""
        self._seconds += after.total_seconds()
        moment = self._watch.look(at)
        seen = self._store.write_now(lambda conn: cut_waits(conn, moment, LONGEST))
        self._watch.looked(moment, seen)
        return seen.cut


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
    put(store, *dispatches("org", 2), at=NOW - MINUTE)
    put(store, NewEffect(Kind.OBSERVE, "later", "account org", 9, "", delay=5 * MINUTE), at=THEN)
    process = Process(store)
    process.look(THEN)
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

    assert process.look(NOW) is not None

    found = effects(store)
    assert [NOW + MINUTE, NOW + 2 * MINUTE, NOW + 5 * MINUTE] == [found[number].due for number in (0, 1, 9)]
    assert NOW + 2 * MINUTE == found[1].not_before
    pacing = row(store, Pacing, "account org")
    assert (NOW + MINUTE, NOW + 2 * MINUTE) == (pacing.not_before, pacing.free_at)
    assert NOW == row(store, Pacing, "account over").not_before
    shut = store.read_now(circuits.load)["account away"]
    assert NOW + 2 * MINUTE == shut.held_until
    assert NOW + 5 * MINUTE == row(store, Turn, "find").due_at


def test_it_is_done_once_and_only_where_the_clock_was_set_back(store: Store) -> None:
    """A wait that GitHub named afterwards stands, and so does all while clocks differ by less than a moment."""
    process = Process(store)
    assert process.look(NOW) is None
    assert process.look(NOW + MINUTE) is None
    store.write_now(lambda conn: budgets.rest(conn, "account org", NOW + AHEAD, "rate_limited"))
    assert process.look(NOW + MINUTE - TOLERANCE) is None
    process.look(THEN)
    assert process.look(NOW) == SetBack(AHEAD, 1)
    store.write_now(lambda conn: budgets.rest(conn, "account org", NOW + AHEAD, "rate_limited"))

    assert process.look(NOW) is None
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
    process = Process(store)
    process.look(THEN)

    process.look(NOW)

    found = effects(store)
    assert [NOW + timedelta(hours=1), NOW] == [found[one.subject_id].due for one in (first, second)]


def test_a_lease_that_is_too_long_ends_once_nobody_can_be_at_work(store: Store) -> None:
    """Sooner it may be that of a living worker, whose clock is right where ours is behind."""
    put(store, *dispatches("org", 2), at=NOW)
    first, second = take(store, at=THEN)
    seconds = [0.0]
    leases = Leases(lambda: seconds[0])

    def look_at_leases() -> int:
        ended = leases.outstayed(store.read_now(lambda conn: too_long(conn, NOW)))
        return store.write_now(lambda conn: end_leases(conn, ended, NOW))

    assert 0 == look_at_leases()
    seconds[0] = LEASE.total_seconds()
    assert 0 == look_at_leases()
    assert [] == take(store, "other", at=NOW)
    end(store, Ended(second, "done", 0.1), at=NOW)
    seconds[0] += 1
    assert 1 == look_at_leases()

    (again,) = take(store, "other", at=NOW + timedelta(seconds=1))
    assert (first.id, first.attempts + 1) == (again.id, again.attempts)
    assert 0 == look_at_leases()


def test_replicas_whose_clocks_differ_cut_nothing(store: Store) -> None:
    """Neither was set back. The hour that GitHub named is waited out, whichever of them looks and however often."""
    store.write_now(lambda conn: budgets.rest(conn, "account org", NOW + timedelta(hours=1), "rate_limited"))
    ahead, behind = Process(store), Process(store)
    cut = []
    for minute in range(10):
        now = NOW + minute * MINUTE
        if minute == 5:
            behind = Process(store)  # It is started anew.
        cut += [ahead.look(now + 5 * MINUTE, after=MINUTE), behind.look(now, after=MINUTE)]

    assert [None] * 20 == cut
    assert NOW + timedelta(hours=1) == row(store, Pacing, "account org").not_before


def test_a_replica_that_is_ahead_may_write_at_the_last_moment(store: Store) -> None:
    """Whoever starts beside it and looks rarely finds another time than at the start, and cuts nothing."""
    store.write_now(lambda conn: budgets.rest(conn, "account org", NOW + timedelta(hours=1), "rate_limited"))
    ahead, behind = Process(store), Process(store)
    ahead.look(NOW + 5 * MINUTE)
    behind.look(NOW)
    ahead.look(NOW + 9 * MINUTE, after=4 * MINUTE)

    assert behind.look(NOW + 4 * MINUTE, after=4 * MINUTE) is None
    assert NOW + timedelta(hours=1) == row(store, Pacing, "account org").not_before


def test_processes_of_one_machine_cut_once(store: Store) -> None:
    """Both see that its clock was set back; a wait that was written down after the first had cut stands."""
    first, second = Process(store), Process(store)
    assert [None, None] == [first.look(THEN), second.look(THEN)]
    assert SetBack(AHEAD, 0) == first.look(NOW + MINUTE, after=MINUTE)
    store.write_now(lambda conn: budgets.rest(conn, "account org", NOW + AHEAD, "rate_limited"))

    assert second.look(NOW + MINUTE, after=MINUTE) is None
    assert NOW + AHEAD == row(store, Pacing, "account org").not_before


def test_a_clock_that_was_set_right_while_nobody_ran_is_noticed_at_the_start(store: Store) -> None:
    """Once nobody can be alive who is ahead. Of two that start together, one cuts."""
    Process(store).look(THEN)
    store.write_now(lambda conn: budgets.rest(conn, "account org", THEN + MINUTE, "rate_limited"))
    first, second = Process(store), Process(store)
    assert [None, None] == [first.look(NOW), second.look(NOW)]
    assert first.look(NOW + STANDS, after=STANDS) is None
    assert THEN + MINUTE == row(store, Pacing, "account org").not_before

    late = STANDS + MINUTE
    assert [SetBack(AHEAD, 1), None] == [first.look(NOW + late, after=MINUTE), second.look(NOW + late, after=late)]
    assert NOW + late == row(store, Pacing, "account org").not_before
    assert first.look(NOW + 2 * late, after=late) is None


def test_what_the_database_did_not_take_is_cut_at_the_next_look(store: Store) -> None:
    """That the clock was set back is known until the cut is committed."""
    seconds = [0.0]
    watch = Watch(lambda: seconds[0])
    watch.looked(before := watch.look(THEN), store.write_now(lambda conn: cut_waits(conn, before, LONGEST)))

    assert AHEAD == watch.look(NOW).by
    seconds[0] += 5
    assert AHEAD == watch.look(NOW + timedelta(seconds=5)).by
