"""A worker that is told to stop: what it has begun it finishes, what it has not it gives back at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from relay.store.engine import Store
from relay.store.outbox import Claimed
from relay.work.outbox import Job, Note, Worker
from tests.conftest import Clock
from tests.work.test_worker import Performer, Silent, drain, owed, put, rows


class Told(Performer):
    """Is told to stop between the claim and the first request."""

    worker: Worker

    async def begin(self, effects: Sequence[Claimed]) -> list[tuple[Claimed, Job]]:
        """Everything is claimed, and nothing is begun."""
        self.worker.stop()
        return await super().begin(effects)


def test_what_was_claimed_and_not_begun_is_free_at_once(store: Store, clock: Clock) -> None:
    """A deploy must not cost a minute: nobody waits for the lease of a process that has left in order."""
    put(store, clock, "one", "two", "three")
    leaving = Told(lambda _effect: None, {})
    leaving.worker = Worker(
        store, leaving, now=clock.now, random=lambda: 0.5, name="leaving", observer=Silent(), poll_seconds=0.01
    )
    asyncio.run(leaving.worker.run())

    assert [] == leaving.performed
    assert [(1, "ready", "stopped"), (2, "ready", "stopped"), (3, "ready", "stopped")] == rows(store)
    staying = Performer(lambda _effect: None, {})
    asyncio.run(drain(store, staying, clock, owed(store)))
    assert [1, 2, 3] == sorted(staying.performed)


class Slow(Performer):
    """Takes its time."""

    async def perform(self, effect: Claimed) -> Note | None:
        """Longer than it takes to be told to stop."""
        self.together += 1
        await asyncio.sleep(0.1)
        return await super().perform(effect)


def test_what_was_begun_is_finished_and_noted(store: Store, clock: Clock) -> None:
    """A request that is under way when the signal comes is waited for, so that nobody repeats it."""
    put(store, clock, "one")
    performer = Slow(lambda _effect: None, {})
    asyncio.run(drain(store, performer, clock, lambda: performer.together == 1))

    assert [1] == performer.performed
    assert [(1, "done", "")] == rows(store)
