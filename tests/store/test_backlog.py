"""What the figures say of a backlog: whether a worker turns is one question, and what is owed is another."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from relay.deciding.circuits import Circuit, State
from relay.deciding.effects import HUD_PACING, Kind, NewEffect, forward_hud
from relay.store import circuits, outbox
from relay.store.circuits import Book
from relay.store.engine import Store
from relay.store.outbox import LEASE, Backlog, Claimed, Ended

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NONE = timedelta()


def put(store: Store, *effects: NewEffect) -> None:
    """Write effects down."""
    store.write_now(lambda conn: outbox.enqueue(conn, effects, NOW))


def take(store: Store, *, at: datetime = NOW) -> list[Claimed]:
    """Claim what is due."""
    return store.write_now(lambda conn: outbox.claim(conn, owner="me", count=10, now=at))


def owed(store: Store, *, at: datetime) -> Backlog:
    """The figures."""
    return store.read_now(lambda conn: outbox.backlog(conn, at))


def told(number: int, lane: str) -> NewEffect:
    """A dispatch."""
    return NewEffect(Kind.DISPATCH, lane, "account org", number)


def test_what_nobody_takes_grows_older(store: Store) -> None:
    """No worker turns: that wakes somebody up."""
    put(store, told(1, "lane"))

    assert Backlog(1, NONE, NONE) == owed(store, at=NOW)
    assert Backlog(1, 10 * MINUTE, 10 * MINUTE) == owed(store, at=NOW + 10 * MINUTE)


def test_a_hud_that_is_down_is_no_worker_that_stands_still(store: Store) -> None:
    """Its rows wait behind its circuit, and whoever is called for that finds nothing to do."""
    circuit = Circuit(HUD_PACING, State.OPEN, NOW, failures=9, held_until=NOW + 60 * MINUTE)
    store.write_now(lambda conn: circuits.keep(conn, Book({HUD_PACING: circuit}, {HUD_PACING})))
    put(store, *[forward_hud(number, number, "test") for number in range(3)])
    assert [] == take(store)

    assert Backlog(3, NONE, 10 * MINUTE) == owed(store, at=NOW + 10 * MINUTE)


def test_what_waits_for_an_account_or_its_lane_needs_no_worker(store: Store) -> None:
    """GitHub named a time for one, and the other's turn has not come."""
    put(store, told(1, "lane"), told(2, "lane"), NewEffect(Kind.DISPATCH, "other", "account resting", 3))
    store.write_now(lambda conn: outbox.rest(conn, "account resting", NOW + 60 * MINUTE, "primary"))
    assert [1] == [one.subject_id for one in take(store)]

    assert Backlog(3, NONE, MINUTE / 2) == owed(store, at=NOW + MINUTE / 2)


def test_what_is_to_be_tried_again_counts_from_then(store: Store) -> None:
    """Until then nobody is late, however long ago it was tried first."""
    put(store, told(1, "lane"))
    (first,) = take(store)
    ends = [Ended(first, "retry", 0.1, due=NOW + 5 * MINUTE)]
    store.write_now(lambda conn: outbox.finish(conn, ends, owner="me", now=NOW))
    assert [] == take(store)

    assert Backlog(1, NONE, NONE) == owed(store, at=NOW + 4 * MINUTE)
    assert Backlog(1, 2 * MINUTE, 2 * MINUTE) == owed(store, at=NOW + 7 * MINUTE)


def test_what_a_dead_worker_held_counts_from_the_end_of_its_lease(store: Store) -> None:
    """Until then it is under way, as far as anybody can tell."""
    put(store, told(1, "lane"))
    assert 1 == len(take(store))

    assert Backlog(1, NONE, LEASE / 2) == owed(store, at=NOW + LEASE / 2)
    assert Backlog(1, 3 * MINUTE, LEASE + 3 * MINUTE) == owed(store, at=NOW + LEASE + 3 * MINUTE)
    assert 1 == len(take(store, at=NOW + LEASE + 3 * MINUTE))
    assert Backlog(1, NONE, LEASE + 3 * MINUTE) == owed(store, at=NOW + LEASE + 3 * MINUTE)
