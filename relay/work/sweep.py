"""The sweep: what no event will ever say is found by looking.

Deadlines that passed, looks that got lost, and what was kept for long enough.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime, timedelta

import structlog
from sqlalchemy import Connection

from relay.clock import Now
from relay.store.admin import end_expired
from relay.store.checks import CheckTerms, heal
from relay.store.deadlines import BATCH, Concluded, ask_first, note_dead_letters, sweep_deadlines
from relay.store.engine import Store, StoreDownError
from relay.store.forwarding import revive_forwards
from relay.store.queue import end_groups
from relay.store.retention import KEEP, forget
from relay.store.returning import bring_back, probe
from relay.store.set_back import Claim, Leases, Watch, cut_waits, end_leases, too_long
from relay.tracing import trace_id
from relay.work.schedule import LONGEST

log = structlog.get_logger(__name__)

#: How often what should not happen is looked for: checks and dispatches that a dying process left behind, and waits
#: that a clock wrote down which was set back since.
HEAL_EVERY = timedelta(seconds=60)

#: How often what was kept for long enough is looked for, and how many steps one turn takes at most.
FORGET_EVERY = timedelta(hours=1)
STEPS = 50


class Sweep:
    """Looks at deadlines every few seconds. Each replica may run one: they share the work and repeat nothing.

    ``ticks`` are seconds that no clock's setting changes.
    """

    def __init__(
        self,
        *,
        store: Store,
        terms: CheckTerms,
        now: Now,
        wake: Callable[[], None],
        seconds: float,
        keep: timedelta = KEEP,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._terms = terms
        self._now = now
        self._wake = wake
        self._seconds = seconds
        self._keep = keep
        self._watch = Watch(ticks)
        self._leases = Leases(ticks)
        self._healed_at: datetime | None = None
        self._forgot_at: datetime | None = None
        self._stopped = asyncio.Event()
        self.last_turn: datetime | None = None
        self.rest = timedelta(seconds=seconds)

    async def run(self) -> None:
        """Sweep until ``stop`` is called. A turn that fails does not end it: the next may work."""
        while not self._stopped.is_set():
            try:
                await self.turn()
            except StoreDownError as error:
                log.warning("store_unreachable", error=str(error))
            except Exception:
                log.exception("sweep_turn_failed")
            try:
                async with asyncio.timeout(self._seconds):
                    await self._stopped.wait()
            except TimeoutError:
                continue

    def stop(self) -> None:
        """Let ``run`` return after the turn it is in. Call it on the loop that runs it."""
        self._stopped.set()

    async def turn(self) -> tuple[Concluded, ...]:
        """Conclude everything that has run out of time by now; returns what was concluded."""
        now = self._now()
        every: list[Concluded] = []
        asked = 0

        acts = await self._store.write(lambda conn: end_expired(conn, self._terms, now))
        back, probed = await self._store.write(
            lambda conn: (bring_back(conn, self._terms, now), probe(conn, self._terms, now))
        )
        for repo in back:
            log.info("backend_back", backend=str(repo))
        for repo in acts.pauses:
            log.info("pause_expired", backend=str(repo))
        for repo in acts.demotions:
            log.info("demotion_expired", backend=str(repo))

        def unit(conn: Connection) -> tuple[int, tuple[Concluded, ...]]:
            ended = end_groups(conn, now, self._terms)
            return len(ended) + ask_first(conn, now), sweep_deadlines(conn, now, self._terms)

        while True:
            asking, made = await self._store.write(unit)
            every += made
            asked += asking
            if max(len(made), asking) < BATCH:
                break
        for one in every:
            log.info(
                "deadline",
                dispatch=one.dispatch_id,
                delivery=one.origin,
                trace=trace_id(one.origin),
                head=one.head_sha,
                backend=str(one.backend),
                before=one.before.value,
                after=one.outcome.value,
                reason=one.reason,
            )
        healed = await self._heal(now)
        if acts.pauses or acts.told or back or probed or asked or every or healed:
            self._wake()
        await self._forget(now)
        self.last_turn = self._now()
        return tuple(every)

    async def _heal(self, now: datetime) -> int:
        if self._healed_at is not None and timedelta() <= now - self._healed_at < HEAL_EVERY:
            return 0
        moment = self._watch.look(self._now())
        seen = await self._store.write(lambda conn: cut_waits(conn, moment, LONGEST))
        self._watch.looked(moment, seen)
        if seen.cut is not None:
            log.warning("clock_set_back", seconds=seen.cut.by.total_seconds(), rows=seen.cut.waits)

        def unit(conn: Connection) -> tuple[int, tuple[Claim, ...]]:
            found = note_dead_letters(conn, now, self._terms) + len(heal(conn, self._terms, now))
            return found + revive_forwards(conn, now), too_long(conn, now)

        healed, claims = await self._store.write(unit)
        if ended := self._leases.outstayed(claims):
            healed += await self._store.write(lambda conn: end_leases(conn, ended, now))
        self._healed_at = now
        if healed:
            log.warning("healed", rows=healed)
        return healed + (0 if seen.cut is None else seen.cut.waits)

    async def _forget(self, now: datetime) -> None:
        """Take back the room of what ended long ago, in small steps between which everybody else has a turn."""
        if self._forgot_at is not None and timedelta() <= now - self._forgot_at < FORGET_EVERY:
            return
        changes = rows = 0
        for _ in range(STEPS):
            step = await self._store.write(lambda conn: forget(conn, now - self._keep))
            changes, rows = changes + step.changes, rows + step.rows
            if not step.more:
                self._forgot_at = now
                break
            if self._stopped.is_set():
                break
        if rows:
            log.info("forgotten", changes=changes, rows=rows)
