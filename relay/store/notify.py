"""How a commit of one process wakes the workers of others: PostgreSQL's NOTIFY and LISTEN.

Polling is the floor: a notice that is lost, or a pooler in between that knows no LISTEN, costs half a second and
nothing else. On SQLite there is one process, and its own wake-up is enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import structlog

from relay.store.engine import Store
from relay.store.postgres import CHANNEL

log = structlog.get_logger(__name__)

#: How long the line may be silent before it is asked whether it still works, and how long that may take.
SILENT_SECONDS = 15.0
ANSWER_SECONDS = 5.0
#: How long is waited before a lost line is made anew; doubled from the first to the longest.
FIRST_WAIT = 0.5
LONGEST_WAIT = 15.0


@dataclass(slots=True)
class Line:
    """Whether notices come in just now; None where there are none to come."""

    up: bool | None = None


async def listen(
    store: Store, wake: Callable[[], None], *, first_wait: float = FIRST_WAIT, line: Line | None = None
) -> None:
    """Call ``wake`` for each notice of another process, until cancelled. Returns at once where there are none to come.

    A line that breaks is made anew; what was announced meanwhile is made up for by one more call. ``line`` is told how
    it stands.
    """
    if store.dialect != "postgresql":
        return
    wait = first_wait
    line = line or Line()
    line.up = False
    while True:
        try:
            async with await _connected(store) as connection:
                await connection.execute(f"LISTEN {CHANNEL}")
                log.info("listening")
                line.up, wait = True, first_wait
                wake()
                await _heed(connection, store.name, wake)
        except (psycopg.Error, OSError) as error:
            # Its words may name host and user, so only its kind is told.
            log.warning("not_listening", error=type(error).__name__, again_in_seconds=wait)
        finally:
            line.up = False
        await asyncio.sleep(wait)
        wait = min(wait * 2, LONGEST_WAIT)


async def _connected(store: Store) -> psycopg.AsyncConnection[Any]:
    arguments, named = store.connect_arguments()
    return await psycopg.AsyncConnection.connect(*arguments, autocommit=True, **named)


async def _heed(line: psycopg.AsyncConnection[Any], own: str, wake: Callable[[], None]) -> None:
    while True:
        async for notice in line.notifies(timeout=SILENT_SECONDS):
            # Whoever commits here wakes this process itself, before the notice has come round.
            if notice.payload != own:
                wake()
        # A server that went away without a word is silent as well.
        async with asyncio.timeout(ANSWER_SECONDS):
            await line.execute("SELECT 1")
