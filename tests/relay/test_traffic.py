"""Work that can wait a moment gives way to what is under way."""

from __future__ import annotations

import asyncio
import time

from relay.traffic import BUSY_SECONDS, Traffic


async def busy(rounds: list[int], many: int) -> None:
    """So many rounds of the event loop each of which takes long."""
    for number in range(many):
        time.sleep(BUSY_SECONDS * 2)  # noqa: ASYNC251  # Work that keeps the loop from everything else.
        rounds.append(number)
        await asyncio.sleep(0)


def test_nothing_more_is_begun_while_rounds_of_the_loop_take_long() -> None:
    """A request that comes now would wait behind all that is under way, so there must not be more of it."""
    rounds: list[int] = []

    async def story() -> int:
        task = asyncio.create_task(busy(rounds, 5))
        await Traffic().give_way(10)
        seen = len(rounds)
        await task
        return seen

    assert 5 == asyncio.run(story())


def test_a_loop_that_stays_busy_is_not_waited_for_for_ever() -> None:
    """Something else may keep it busy all the time, and the work must go on."""
    rounds: list[int] = []

    async def story() -> int:
        task = asyncio.create_task(busy(rounds, 40))
        await Traffic().give_way(BUSY_SECONDS * 4)
        seen = len(rounds)
        task.cancel()
        return seen

    assert asyncio.run(story()) < 40
