"""What was done and is not noted would be done again after a crash, so it never becomes much."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from sqlalchemy import Connection

from relay.store.engine import Store
from relay.store.outbox import Claimed
from relay.work.outbox import Job, Note, Verdict
from tests.conftest import Clock
from tests.work.test_worker import drain, owed, put


class Quick:
    """Does everything at once, and notes it slowly."""

    def __init__(self) -> None:
        self.done = self.noted = self.most = 0

    async def begin(self, effects: Sequence[Claimed]) -> list[tuple[Claimed, Job]]:
        """One job for each."""
        return [(effect, partial(self.perform, effect)) for effect in effects]

    async def perform(self, _effect: Claimed) -> Note | None:
        """Nothing takes less time."""
        self.done += 1
        self.most = max(self.most, self.done - self.noted)
        return self.note

    def note(self, _conn: Connection, _now: datetime) -> None:
        """A database that is busy."""
        time.sleep(0.005)
        self.noted += 1

    def judge(self, error: Exception) -> Verdict | None:
        """Nothing fails."""

    def put_back(self, effect: Claimed) -> Note | None:
        """Nothing fails."""

    def gave_up(self, effect: Claimed, reason: str, detail: str) -> Note | None:
        """Nothing fails."""


def test_a_database_that_is_slow_slows_what_is_begun(store: Store, clock: Clock) -> None:
    """GitHub answers sooner than the database: what is under way and what is not noted are bounded together."""
    put(store, clock, *[f"lane {number}" for number in range(60)])
    performer = Quick()

    asyncio.run(drain(store, performer, clock, owed(store), in_flight=5))  # type: ignore[arg-type]

    assert (60, 60) == (performer.done, performer.noted)
    assert performer.most <= 5
