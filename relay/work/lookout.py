"""The lookout: runs what finds out, turn by turn, that a webhook did not come."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import structlog

from relay.store.engine import StoreDownError
from relay.work.gaps import GapSweep
from relay.work.missed import SOON, MissedDeliveries

log = structlog.get_logger(__name__)

#: After a start, webhooks that waited for us come first: much of what seems missing is on its way.
PATIENCE = timedelta(seconds=10)


class Lookout:
    """Takes every turn that is due. Each replica may run one: which of them has a turn, the database says."""

    def __init__(self, missed: MissedDeliveries, gaps: GapSweep, *, every: timedelta) -> None:
        self.missed = missed
        self.gaps = gaps
        self._every = min(every, SOON)
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Look until ``stop`` is called. A turn that fails does not end it: the next may work."""
        await self._wait(min(self._every, PATIENCE))
        while not self._stopped.is_set():
            for turn in (self.missed.turn, self.gaps.find, self.gaps.heal):
                try:
                    await turn()
                except StoreDownError as error:
                    log.warning("store_unreachable", error=str(error))
                except Exception:
                    log.exception("lookout_turn_failed")
            await self._wait(self._every)

    def stop(self) -> None:
        """Let ``run`` return after the turn it is in. Call it on the loop that runs it."""
        self._stopped.set()

    async def _wait(self, time: timedelta) -> None:
        try:
            async with asyncio.timeout(time.total_seconds()):
                await self._stopped.wait()
        except TimeoutError:
            return
