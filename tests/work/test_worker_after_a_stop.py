"""After a stop very much is due at once: the worker goes through all of it, and begins what it claimed in time."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from sqlalchemy import Connection

from relay.deciding.effects import Kind, NewEffect
from relay.store import outbox
from relay.store.candidates import WOKEN
from relay.store.engine import Store
from tests.conftest import Clock
from tests.work.test_worker import Performer, drain, put


def test_what_a_claim_left_asleep_is_looked_at_at_once(sqlite_store: Store, clock: Clock) -> None:
    """After an hour's stop, what can go must not wait for as many polls as there are thousands that cannot."""
    rest = [NewEffect(Kind.DISPATCH, f"l{n}", "account org", n, delay=timedelta(seconds=1)) for n in range(WOKEN)]
    last = NewEffect(Kind.DISPATCH, "last", "account other", WOKEN, delay=timedelta(seconds=2))

    def unit(conn: Connection) -> None:
        outbox.enqueue(conn, [*rest, last], clock.now())
        conn.exec_driver_sql("UPDATE effect SET waits_for = 'time'")
        outbox.rest(conn, "account org", clock.now() + timedelta(hours=1), "primary")

    sqlite_store.write_now(unit)
    clock.advance(timedelta(minutes=1))
    performer = Performer(lambda _effect: None, {})

    asyncio.run(drain(sqlite_store, performer, clock, lambda: bool(performer.performed), poll_seconds=60))

    assert [WOKEN] == performer.performed


def test_what_was_claimed_is_begun_while_its_lease_is_young(sqlite_store: Store, clock: Clock) -> None:
    """Requests are given way to, but a job that began late would still run when its lease has ended."""
    put(sqlite_store, clock, *[f"lane {number}" for number in range(40)])
    rounds = 0
    begun: list[int] = []

    async def keep_busy() -> None:
        nonlocal rounds
        while True:
            time.sleep(0.02)  # noqa: ASYNC251  # Work that keeps the loop from everything else.
            rounds += 1
            await asyncio.sleep(0)

    async def story() -> None:
        busy = asyncio.create_task(keep_busy())
        performer = Performer(lambda _effect: begun.append(rounds), {})
        await drain(sqlite_store, performer, clock, lambda: len(begun) == 40, begin_seconds=0.05)
        busy.cancel()

    asyncio.run(story())

    assert begun[-1] - begun[0] < 6
