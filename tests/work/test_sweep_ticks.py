"""What one process remembers of its looks at the clock is its own, and no unit of work changes it."""

from __future__ import annotations

import asyncio
from threading import get_ident

from relay.work.sweep import Sweep
from tests.work.record import Record


def test_time_without_a_clock_is_looked_at_beside_the_units(record: Record) -> None:
    """A unit may run more than once, and by another thread: what one process remembers of its looks is not its own."""
    asked: list[int] = []

    def ticks() -> float:
        asked.append(get_ident())
        return 0.0

    sweep = Sweep(
        store=record.store, terms=record.terms, now=record.clock.now, wake=lambda: None, seconds=1, ticks=ticks
    )
    asyncio.run(sweep.turn())

    assert {get_ident()} == set(asked)
