"""Under steady load no kind of work waits for ever behind another."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from allowlist.model import RepoName
from relay.deciding.effects import Kind, NewEffect, forward_hud, pacing_of
from relay.store import outbox
from relay.store.claiming import HUD_IN_FLIGHT, LEASE, LOOKS_IN_FLIGHT
from relay.store.engine import Store
from relay.store.handover import begin_work
from relay.store.observing import first_look

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
BACKEND = RepoName.parse("org/npu")


def _dispatch(number: int) -> NewEffect:
    return NewEffect(Kind.DISPATCH, f"dispatch {number}", pacing_of(BACKEND), number, str(BACKEND), priority=-4)


@pytest.mark.parametrize(
    "urgent", [_dispatch, lambda number: first_look(number, BACKEND, 4)], ids=["told", "looked at"]
)
def test_reports_are_forwarded_whatever_else_there_is_to_do(store: Store, urgent: object) -> None:
    """More comes than can be done, for hours: the HUD hears of what is new all the same, and holds nothing up."""
    done = Counter[Kind]()
    for turn in range(4):
        now = NOW + timedelta(minutes=turn)
        numbers = range(turn * 100, turn * 100 + 100)
        both = [*(urgent(number) for number in numbers), *(forward_hud(number, number, "test") for number in numbers)]  # type: ignore[operator]
        store.write_now(lambda conn, both=both, now=now: outbox.enqueue(conn, both, now - timedelta(hours=1)))  # type: ignore[misc]
        claimed = store.write_now(lambda conn, now=now: outbox.claim(conn, owner="me", count=60, now=now))  # type: ignore[misc]
        ends = [outbox.Ended(effect, "done", 0.1) for effect in claimed]
        store.write_now(lambda conn, ends=ends, now=now: outbox.finish(conn, ends, owner="me", now=now))  # type: ignore[misc]
        done.update(effect.kind for effect in claimed)

    assert 4 * HUD_IN_FLIGHT == done.pop(Kind.FORWARD_HUD)
    assert 4 * (60 - HUD_IN_FLIGHT) == done.total()


def test_no_more_rows_are_under_way_than_the_hud_has_places(store: Store) -> None:
    """Whoever claims next, here or at another replica, leaves them be until some have ended."""
    rows = [forward_hud(number, number, "test") for number in range(2 * HUD_IN_FLIGHT)]
    store.write_now(lambda conn: outbox.enqueue(conn, rows, NOW))
    first = store.write_now(lambda conn: outbox.claim(conn, owner="one", count=100, now=NOW))
    assert (HUD_IN_FLIGHT, True) == (len(first), first.hud_is_full)

    second = store.write_now(lambda conn: outbox.claim(conn, owner="two", count=100, now=NOW))
    assert (0, True) == (len(second), second.hud_is_full)
    store.write_now(
        lambda conn: outbox.finish(conn, [outbox.Ended(one, "done", 0.1) for one in first[:5]], owner="one", now=NOW)
    )
    third = store.write_now(lambda conn: outbox.claim(conn, owner="two", count=100, now=NOW))
    assert (5, True) == (len(third), third.hud_is_full)


def test_a_claim_says_whether_more_rows_may_wait_for_a_place(store: Store) -> None:
    """Who has taken all that were due need not look again before more have come."""
    rows = [forward_hud(number, number, "test") for number in range(HUD_IN_FLIGHT)]
    store.write_now(lambda conn: outbox.enqueue(conn, rows[1:], NOW))
    claimed = store.write_now(lambda conn: outbox.claim(conn, owner="one", count=100, now=NOW))
    assert (HUD_IN_FLIGHT - 1, False) == (len(claimed), claimed.hud_is_full)

    store.write_now(lambda conn: outbox.enqueue(conn, rows[:1], NOW))
    last = store.write_now(lambda conn: outbox.claim(conn, owner="two", count=100, now=NOW))
    assert (1, True) == (len(last), last.hud_is_full)


def test_looks_at_runs_leave_places_for_what_comes_meanwhile(store: Store) -> None:
    """After a busy hour thousands of them are due, and each asks GitHub several times."""
    looks = [first_look(number, BACKEND, 4) for number in range(200)]
    store.write_now(lambda conn: outbox.enqueue(conn, looks, NOW - timedelta(hours=1)))
    begun = store.write_now(lambda conn: outbox.claim(conn, owner="one", count=100, now=NOW))
    assert [Kind.OBSERVE] * LOOKS_IN_FLIGHT == [one.kind for one in begun]
    store.write_now(lambda conn: outbox.enqueue(conn, [_dispatch(1)], NOW))

    (told,) = store.write_now(lambda conn: outbox.claim(conn, owner="two", count=100, now=NOW))
    assert Kind.DISPATCH is told.kind
    ends = [outbox.Ended(one, "done", 0.1) for one in begun[:7]]
    store.write_now(lambda conn: outbox.finish(conn, ends, owner="one", now=NOW))
    assert 7 == len(store.write_now(lambda conn: outbox.claim(conn, owner="one", count=100, now=NOW)))


def _leave_looks_behind(store: Store) -> None:
    """As many looks are under way as may be, and many more wait; then the process dies."""
    looks = [first_look(number, BACKEND, 4) for number in range(200)]
    store.write_now(lambda conn: outbox.enqueue(conn, looks, NOW - timedelta(hours=1)))
    assert LOOKS_IN_FLIGHT == len(store.write_now(lambda conn: outbox.claim(conn, owner="one", count=100, now=NOW)))
    assert [] == store.write_now(lambda conn: outbox.claim(conn, owner="two", count=100, now=NOW + LEASE))


def test_looks_that_a_dead_process_had_begun_do_not_keep_their_places(store: Store) -> None:
    """Else each would wait for a place of its own, and no run would ever be looked at again."""
    _leave_looks_behind(store)
    over = NOW + LEASE + timedelta(seconds=1)

    taken = store.write_now(lambda conn: outbox.claim(conn, owner="two", count=100, now=over))
    beside = store.write_now(lambda conn: outbox.claim(conn, owner="three", count=100, now=over))

    assert (LOOKS_IN_FLIGHT, 0) == (len(taken), len(beside))


def test_the_next_process_takes_over_looks_as_well(store: Store) -> None:
    """On SQLite it need not wait for the end of their leases."""
    _leave_looks_behind(store)
    settle = timedelta(seconds=10)

    end = begin_work(store, NOW, settle)
    soon = NOW + settle + timedelta(seconds=1)
    taken = store.write_now(lambda conn: outbox.claim(conn, owner="two", count=100, now=soon))
    end()

    assert (LOOKS_IN_FLIGHT if store.dialect == "sqlite" else 0) == len(taken)
