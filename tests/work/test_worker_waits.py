"""What a try says that tried nothing, and what one that ran out of time may have left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pytest
from sqlalchemy import Connection, insert, select

from relay.deciding.circuits import State, backend_key
from relay.deciding.effects import Kind, NewEffect
from relay.store import circuits, outbox
from relay.store.claiming import LEASE, Claimed
from relay.store.engine import Store, StoreDownError
from relay.store.outbox import Ended
from relay.store.tables import Attempt, Effect
from relay.store.tables_limits import Circuit
from relay.work.outbox import Later, Note, Verdict
from relay.work.verdicts import NotYetError
from tests.conftest import Clock
from tests.work.test_worker import Performer, drain, put, rows


class Waiting(Performer):
    """Performs nothing before its time has come."""

    def judge(self, error: Exception) -> Verdict | None:
        """As the relay's own performer does."""
        return Later(error.reason, str(error), error.at) if isinstance(error, NotYetError) else None


def test_what_was_not_tried_is_no_failure_and_no_success(store: Store, clock: Clock) -> None:
    """A backend that is left alone is not taken for well because a dispatch to it was looked at and not sent."""
    key = backend_key("org/npu")
    shut = {"key": key, "state": State.OPEN.value, "since": clock.now(), "failures": 5, "held_until": clock.now()}
    shut |= {
        "several": True,
        "refusing": False,
        "probes": 1,
        "first_failed": "7",
        "reason": "timeout",
        "detail": "slow",
    }
    store.write_now(lambda conn: conn.execute(insert(Circuit), shut))
    dispatch = NewEffect(Kind.DISPATCH, "lane", "account org", 1, "org/npu")
    store.write_now(lambda conn: outbox.enqueue(conn, [dispatch], clock.now()))
    later = clock.now() + timedelta(hours=1)
    performer = Waiting(lambda _effect: NotYetError("not to be seen", reason="maybe_delivered", at=later), {})

    asyncio.run(drain(store, performer, clock, lambda: rows(store)[0][2] == "maybe_delivered"))

    row = store.read_now(
        lambda conn: conn.execute(select(Effect.state, Effect.failures, Effect.due, Effect.not_before)).one()
    )
    assert ("ready", 0, later, later) == tuple(row)
    assert State.OPEN is store.read_now(circuits.load)[key].state


class Sent:
    """A witness that knows whether anything was sent."""

    def __init__(self, *, sent: bool) -> None:
        self._sent = sent

    def reached(self) -> bool:
        """No answer."""
        return False

    def sent(self) -> bool:
        """As the test says."""
        return self._sent

    def take_sparing(self) -> Mapping[str, datetime]:
        """None."""
        return {}


class Hanging(Performer):
    """Does not come to an end."""

    async def perform(self, effect: Claimed) -> Note | None:
        """One try."""
        await asyncio.sleep(60)
        return None


@pytest.mark.parametrize("sent", [True, False])
def test_only_what_was_sent_may_have_arrived(store: Store, clock: Clock, *, sent: bool) -> None:
    """A try that ran out of time while it looked, or waited for a token, leaves no doubt."""
    put(store, clock, "lane")
    given = {"job_seconds": 0.02, "witness": Sent(sent=sent)}

    asyncio.run(
        drain(store, Hanging(lambda _effect: None, {}), clock, lambda: rows(store)[0][2] == "too_slow", **given)
    )

    assert [sent] == store.read_now(lambda conn: list(conn.execute(select(Attempt.unsure)).scalars()))


def test_of_two_tries_that_end_together_only_the_one_in_force_counts(store: Store, clock: Clock) -> None:
    """The first was kept while the database was away for so long that the same worker claimed it again."""
    put(store, clock, "lane")
    pace = {"owner": "worker", "count": 10, "pace": circuits.Pace()}
    (first,) = store.write_now(lambda conn: outbox.claim(conn, now=clock.now(), **pace))
    clock.advance(LEASE + timedelta(seconds=1))
    (second,) = store.write_now(lambda conn: outbox.claim(conn, now=clock.now(), **pace))
    ends = [
        Ended(first, "done", 1.0),
        Ended(second, "retry", 1.0, "network", "gone", due=clock.now() + timedelta(minutes=1)),
    ]

    noted = store.write_now(lambda conn: outbox.finish(conn, ends, owner="worker", now=clock.now()))

    assert [2] == [end.effect.attempts for end in noted]
    assert [(1, "ready", "network")] == rows(store)
    assert [2] == store.read_now(lambda conn: list(conn.execute(select(Attempt.number)).scalars()))


def test_an_ending_that_cannot_be_noted_holds_up_nothing_else(store: Store, clock: Clock) -> None:
    """It was kept while the database was away, and is not taken when that is back: the lease will tell of it."""
    put(store, clock, "lane")

    class Picky(Store):
        """Is away for the first ending, and then does not take it."""

        failures: ClassVar[list[Exception]] = [StoreDownError("away"), ValueError("unwritable")]

        async def write(self, unit: Callable[[Connection], Any]) -> Any:
            if self.failures and unit.__qualname__.startswith("Worker._note."):
                raise self.failures.pop(0)
            return await super().write(unit)

    picky = Picky(store.url)
    performer = Performer(lambda _effect: None, {})

    def another_is_done() -> bool:
        if not picky.failures and len(rows(store)) == 1:
            another = NewEffect(Kind.DISPATCH, "another", "account org", 2)
            store.write_now(lambda conn: outbox.enqueue(conn, [another], clock.now()))
        return (2, "done", "") in rows(store)

    asyncio.run(drain(picky, performer, clock, another_is_done))
    picky.close()

    assert [1, 2] == performer.performed
