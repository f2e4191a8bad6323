"""The lookout: runs what finds out, turn by turn, that a webhook did not come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Self

import structlog

from allowlist.model import Allowlist
from relay.clock import Now
from relay.github.listed import GitHubLists
from relay.settings import Settings
from relay.store.checks import CheckTerms
from relay.store.engine import Store, StoreDownError
from relay.work.gaps import GapSweep
from relay.work.missed import SOON, GapCounts, MissedDeliveries

log = structlog.get_logger(__name__)

#: After a start, webhooks that waited for us come first: much of what seems missing is on its way.
PATIENCE = timedelta(seconds=10)
#: How long a lookout that is told to stop goes on with its turn. A look may read hundreds of pages, and whoever
#: stops a process soon kills it; what was cut short is taken up again, as after a crash.
LEAVE_SECONDS = 5.0


class Lookout:
    """Takes every turn that is due. Each replica may run one: which of them has a turn, the database says."""

    def __init__(
        self,
        missed: MissedDeliveries,
        gaps: GapSweep,
        *,
        every: timedelta,
        now: Now,
        leave_seconds: float = LEAVE_SECONDS,
    ) -> None:
        self.missed = missed
        self.gaps = gaps
        self._now = now
        self._leave_seconds = leave_seconds
        self._every = min(every, SOON)
        self._stopped = asyncio.Event()
        self._failed = ""
        self.last_turn: datetime | None = None
        self.made_at = now()
        self.rest = self._every

    @classmethod
    def of(
        cls,
        settings: Settings,
        *,
        store: Store,
        github: GitHubLists,
        terms: CheckTerms,
        listed: Callable[[], Allowlist | None],
        now: Now,
        wake: Callable[[], None],
        fresh_id: Callable[[], str],
        counts: GapCounts,
    ) -> Self:
        """Both turns as the settings want them. ``listed`` is the allowlist in force, None while there is none."""
        asking, comparing = timedelta(seconds=settings.missed_seconds), timedelta(seconds=settings.gaps_seconds)
        missed = MissedDeliveries(store=store, github=github, terms=terms, now=now, counts=counts, every=asking)
        gaps = GapSweep(
            store=store,
            github=github,
            terms=terms,
            listed=listed,
            now=now,
            wake=wake,
            fresh_id=fresh_id,
            counts=counts,
            every=comparing,
        )
        return cls(missed, gaps, every=min(asking, comparing), now=now)

    @property
    def trouble(self) -> str:
        """Why the last look came to nothing, as a word; empty where it did not."""
        return self._failed or self.missed.trouble or self.gaps.trouble

    async def run(self) -> None:
        """Look until ``stop`` is called. A turn that fails does not end it: the next may work."""
        looking = asyncio.create_task(self._look())
        try:
            await self._stopped.wait()
            await asyncio.wait({looking}, timeout=self._leave_seconds)
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _look(self) -> None:
        await self._wait(min(self._every, PATIENCE))
        while not self._stopped.is_set():
            failed = ""
            for turn in (self.missed.turn, self.gaps.find, self.gaps.heal):
                if self._stopped.is_set():
                    return
                try:
                    await turn()
                except StoreDownError as error:
                    failed = "store_unreachable"
                    log.warning("store_unreachable", error=str(error))
                except Exception:
                    failed = "internal_error"
                    log.exception("lookout_turn_failed")
            self._failed, self.last_turn = failed, self._now()
            await self._wait(self._every)

    def stop(self) -> None:
        """Let ``run`` return soon. Call it on the loop that runs it."""
        self._stopped.set()

    async def _wait(self, time: timedelta) -> None:
        try:
            async with asyncio.timeout(time.total_seconds()):
                await self._stopped.wait()
        except TimeoutError:
            return
