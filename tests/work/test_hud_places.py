"""Rows for the HUD are taken together, and none of them waits for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from relay.deciding.effects import Kind, forward_hud
from relay.store import outbox
from relay.store.claiming import HUD_IN_FLIGHT
from relay.store.engine import Store
from relay.store.outbox import Claimed
from relay.work.hud_places import HudPlaces
from relay.work.outbox import Note, Worker
from tests.conftest import Clock
from tests.work.test_worker import Performer, Silent, owed

ROW, OTHER = Kind.FORWARD_HUD, Kind.DISPATCH


def test_a_few_rows_call_for_no_look() -> None:
    """What came meanwhile is found when the worker looks anyway, and then all of it at once."""
    places = HudPlaces()
    places.claimed([ROW] * 5, full=False)

    assert not places.noted([ROW] * 3)
    assert not places.noted([ROW] * 2)


def test_anything_else_calls_for_one() -> None:
    """A lane may have become free."""
    places = HudPlaces()
    places.claimed([ROW, OTHER], full=False)

    assert places.noted([ROW, OTHER])


def test_where_all_places_were_taken_more_is_looked_for_as_soon_as_most_are_free() -> None:
    """A backlog is worked off without a pause, and not a few rows at a time."""
    places = HudPlaces()
    places.claimed([ROW] * (HUD_IN_FLIGHT - 4), full=False)
    places.claimed([ROW] * 4, full=True)

    assert not places.noted([ROW] * (HUD_IN_FLIGHT // 2))
    assert places.noted([ROW] * (HUD_IN_FLIGHT // 4))
    places.claimed([ROW] * 2, full=False)
    assert not places.noted([ROW] * 2)


def test_who_has_few_of_the_places_waits_for_most_of_those() -> None:
    """Several replicas share them, and no small claim of one may become many that are smaller still."""
    places = HudPlaces()
    places.claimed([ROW] * 8, full=True)

    assert not places.noted([ROW] * 5)
    assert places.noted([ROW])


class Held(Performer):
    """Tells the HUD nothing until it may."""

    def __init__(self) -> None:
        super().__init__(lambda _effect: None, {})
        self.begun = 0
        self.may = asyncio.Event()

    async def perform(self, effect: Claimed) -> Note | None:
        """One row."""
        self.begun += 1
        await self.may.wait()
        return await super().perform(effect)


def test_a_backlog_has_no_pause_where_replicas_share_the_places(sqlite_store: Store, clock: Clock) -> None:
    """Each holds half of them, so that neither fills them alone; and nobody waits for the next poll."""

    def put(numbers: range) -> None:
        rows = [forward_hud(number, number, "test") for number in numbers]
        sqlite_store.write_now(lambda conn: outbox.enqueue(conn, rows, clock.now()))

    async def until(true: Callable[[], bool]) -> None:
        while not true():
            await asyncio.sleep(0.005)

    async def work() -> None:
        held = Held(), Held()
        workers = [
            Worker(
                sqlite_store,
                performer,
                now=clock.now,
                random=lambda: 0.5,
                name=f"worker {number}",
                observer=Silent(),
                poll_seconds=60,
            )
            for number, performer in enumerate(held)
        ]
        half = HUD_IN_FLIGHT // 2
        running = []
        async with asyncio.timeout(3):
            for performer, worker, due in zip(held, workers, (range(half), range(half, 10 * half)), strict=True):
                put(due)
                running.append(asyncio.create_task(worker.run()))
                await until(lambda performer=performer: performer.begun == half)  # type: ignore[misc]
            for performer in held:
                performer.may.set()
            try:
                await until(owed(sqlite_store))
            finally:
                for worker in workers:
                    worker.stop()
                await asyncio.gather(*running)

    asyncio.run(work())
