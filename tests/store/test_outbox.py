"""The outbox keeps its promises on both databases: nothing lost, order within a lane, one owner at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Connection

from relay.deciding.circuits import Pace
from relay.deciding.effects import Kind, NewEffect
from relay.store import outbox
from relay.store.engine import Store
from relay.store.outbox import Claimed, Ended
from tests.conftest import empty

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def effect(number: int, lane: str = "a", **given: Any) -> NewEffect:
    """An effect on the subject of this number."""
    return NewEffect(Kind.DISPATCH, lane, "account org", number, **given)


def put(store: Store, *effects: NewEffect, at: datetime = NOW) -> None:
    """Write effects down."""
    store.write_now(lambda conn: outbox.enqueue(conn, effects, at))


def take(store: Store, *, owner: str = "me", at: datetime = NOW, count: int = 100) -> list[Claimed]:
    """Claim what is due."""
    return store.write_now(lambda conn: outbox.claim(conn, owner=owner, count=count, now=at))


def end(store: Store, *ends: Ended, owner: str = "me", at: datetime = NOW) -> list[int]:
    """Note endings, and say for which subjects the lease was still ours."""

    def note(conn: Connection) -> tuple[Ended, ...]:
        held = outbox.finish(conn, ends, owner=owner, now=at)
        outbox.conclude(conn, held, at, pace=Pace(), sparing={})
        return held

    return [one.effect.subject_id for one in store.write_now(note)]


def subjects(claimed: Sequence[Claimed]) -> list[int]:
    """What was claimed, in the order in which it is to be performed."""
    return [one.subject_id for one in claimed]


def test_a_lane_is_served_in_order_and_lanes_do_not_wait_for_each_other(store: Store) -> None:
    """A backend must not hear that a pull request was closed before it hears that it was opened."""
    put(store, effect(1), effect(2), effect(3, "b"))

    first = take(store)

    assert {1, 3} == set(subjects(first))
    assert take(store) == []
    end(store, Ended(next(one for one in first if one.subject_id == 1), "done", 0.1))
    assert subjects(take(store)) == [2]


def test_urgent_goes_first_and_the_newest_first_among_equals(store: Store) -> None:
    """After an outage, gates and the heads that people look at come before yesterday's."""
    put(store, effect(1, "a"), effect(2, "b"), effect(3, "c", priority=-5))

    assert subjects(take(store, count=2)) == [3, 2]


def test_a_resting_account_holds_its_effects_back_and_no_others(store: Store) -> None:
    """CASES 3: a secondary limit of one installation stops that one alone, until the time GitHub named."""
    put(store, effect(1, "a"), NewEffect(Kind.DISPATCH, "b", "account other", 2))
    limited = next(one for one in take(store) if one.subject_id == 1)
    until = NOW + 60 * SECOND

    end(store, Ended(limited, "limited", 0.1, "rate_limited", "wait", due=until, resting=until))
    put(store, effect(3, "c"))

    assert take(store, at=NOW + 59 * SECOND) == []
    assert sorted(subjects(take(store, at=until))) == [1, 3]


def test_a_shorter_rest_does_not_end_a_longer_one(store: Store) -> None:
    """Two answers may come in any order; the more careful one counts."""
    put(store, effect(1))
    store.write_now(lambda conn: outbox.rest(conn, "account org", NOW + 60 * SECOND, "primary"))
    store.write_now(lambda conn: outbox.rest(conn, "account org", NOW + 5 * SECOND, "secondary"))

    assert take(store, at=NOW + 30 * SECOND) == []


def test_an_expired_lease_is_taken_over_and_its_first_owner_can_note_nothing(store: Store) -> None:
    """A replica that froze and came back must not overwrite what the one that took over has noted."""
    put(store, effect(1))
    (frozen,) = take(store, owner="frozen")
    later = NOW + outbox.LEASE + SECOND

    assert take(store, owner="other", at=NOW + SECOND) == []
    (taken,) = take(store, owner="other", at=later)

    assert end(store, Ended(frozen, "done", 61.0), owner="frozen", at=later) == []
    assert end(store, Ended(frozen, "dead", 61.0, "gone"), owner="frozen", at=later) == []
    assert end(store, Ended(taken, "done", 0.1), owner="other", at=later) == [1]


def test_a_retry_waits_for_its_time_and_counts(store: Store) -> None:
    """Only failures count against the schedule: a rate limit says nothing about the effect."""
    put(store, effect(1))
    (first,) = take(store)
    end(store, Ended(first, "retry", 0.1, "github_unavailable", "502", due=NOW + 10 * SECOND))

    assert take(store, at=NOW + 9 * SECOND) == []
    (second,) = take(store, at=NOW + 10 * SECOND)
    end(store, Ended(second, "limited", 0.1, "rate_limited", "", due=NOW + 20 * SECOND), at=NOW + 10 * SECOND)
    (third,) = take(store, at=NOW + 20 * SECOND)

    assert (first.attempts, second.attempts, third.attempts) == (1, 2, 3)
    assert (first.failures, second.failures, third.failures) == (0, 1, 1)


def test_waiting_effects_of_one_key_become_one_but_a_running_one_does_not_swallow_the_next(store: Store) -> None:
    """A check that changed while it is being written must be written again."""
    put(store, effect(1, coalesce_key="check 1"), effect(2, coalesce_key="check 1"))
    (running,) = take(store)

    put(store, effect(3, coalesce_key="check 1"))
    end(store, Ended(running, "retry", 0.1, "github_unavailable", "", due=NOW))

    assert store.read_now(outbox.open_count) == 2
    (again,) = take(store)
    end(store, Ended(again, "done", 0.1))
    assert subjects(take(store)) == [3]


def test_only_what_waits_can_be_cancelled(store: Store) -> None:
    """What is on its way to GitHub cannot be called back, and nobody may believe that it was."""
    put(store, effect(1, "a"), effect(2, "b"))
    end_of_lane = take(store, count=1)[0].subject_id

    cancelled = store.write_now(
        lambda conn: outbox.cancel(conn, kinds=[Kind.DISPATCH], subject_ids=[1, 2], reason="superseded", now=NOW)
    )

    assert {1, 2} - {end_of_lane} == set(cancelled)
    assert store.read_now(outbox.open_count) == 1


def test_a_dead_letter_is_revived_by_its_reason_with_a_fresh_schedule(store: Store) -> None:
    """CASES 4: installing the app brings back what died of its absence, and only that."""
    put(store, effect(1, "a", subject="org/x"), effect(2, "b", subject="org/x"))
    one, two = sorted(take(store), key=lambda claimed: claimed.subject_id)
    end(store, Ended(one, "dead", 0.1, "not_installed"), Ended(two, "dead", 0.1, "invalid"))
    assert take(store) == []

    revived = store.write_now(
        lambda conn: outbox.revive(conn, kinds=[Kind.DISPATCH], subjects=["org/x"], reasons=["not_installed"], now=NOW)
    )

    assert revived == (1,)
    (again,) = take(store)
    assert (again.subject_id, again.failures) == (1, 0)


class Outbox(RuleBasedStateMachine):
    """Random histories of two workers on one outbox, against a list that cannot be wrong."""

    url = ""

    @initialize()
    def begin(self) -> None:
        """An empty outbox."""
        forget(self.url)
        self.store = Store(self.url)
        self.now = NOW
        self.count = 0
        self.open: dict[int, str] = {}
        self.done: dict[str, list[int]] = {}
        self.held: dict[int, tuple[str, Claimed, datetime]] = {}

    @rule(lane=st.sampled_from("abc"))
    def enqueue(self, lane: str) -> None:
        """One more effect."""
        self.count += 1
        put(self.store, effect(self.count, lane), at=self.now)
        self.open[self.count] = lane

    @rule(owner=st.sampled_from(["one", "two"]), count=st.integers(1, 4))
    def claim(self, owner: str, count: int) -> None:
        """A worker claims: only heads of lanes, and never what another holds."""
        for claimed in take(self.store, owner=owner, at=self.now, count=count):
            lane = self.open[claimed.subject_id]
            assert claimed.subject_id == min(subject for subject, its in self.open.items() if its == lane)
            before = self.held.get(claimed.subject_id)
            assert before is None or before[2] < self.now, "claimed while another's lease ran"
            self.held[claimed.subject_id] = (owner, claimed, self.now + outbox.LEASE)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), outcome=st.sampled_from(["done", "retry", "limited", "dead"]))
    def finish(self, data: st.DataObject, outcome: str) -> None:
        """A worker notes an ending of something it holds or has lost."""
        subject = data.draw(st.sampled_from(sorted(self.held)))
        owner, claimed, _ = self.held[subject]
        due = self.now + 5 * SECOND
        noted = end(self.store, Ended(claimed, outcome, 0.1, "reason", due=due), owner=owner, at=self.now)
        assert [subject] == noted
        del self.held[subject]
        if outcome in {"done", "dead"}:
            self.done.setdefault(self.open.pop(subject), []).append(subject)

    @rule(seconds=st.sampled_from([1, 10, 61]))
    def wait(self, seconds: int) -> None:
        """Time passes."""
        self.now += seconds * SECOND

    @invariant()
    def nothing_is_lost_and_lanes_end_in_order(self) -> None:
        """What is not done is still owed, and each lane ended in the order in which it was planned."""
        assert len(self.open) == self.store.read_now(outbox.open_count)
        for ended in self.done.values():
            assert sorted(ended) == ended

    def teardown(self) -> None:
        """Everything that is still owed can be done."""
        self.now += 100 * SECOND
        while claimed := take(self.store, at=self.now):
            for one in claimed:
                end(self.store, Ended(one, "done", 0.1), at=self.now)
                del self.open[one.subject_id]
        assert self.open == {}
        self.store.close()


@pytest.mark.slow
def test_random_histories_of_two_workers(database_url: str) -> None:
    """No history of claims, expiries, endings and cancellations loses an effect or breaks a lane's order."""

    class OnThisDatabase(Outbox):
        url = database_url

    run_state_machine_as_test(
        OnThisDatabase,
        settings=settings(
            max_examples=25,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def forget(url: str) -> None:
    """Start from nothing, on either database."""
    if url.startswith("postgres"):
        empty(url)
        return
    opened = Store(url)
    for table in ("attempt", "effect", "pacing"):
        opened.write_now(partial(Connection.exec_driver_sql, statement=f"DELETE FROM {table}"))
    opened.close()
