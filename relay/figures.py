"""Reads the figures that nobody counts as they change, for whoever asks for ``/metrics``.

What tells whether the outbox is idle is read for each who asks, but one reading serves all who wait for it; the rest is
read every few seconds at most. So a storm of scrapes costs no more than one reader's time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from allowlist.model import RepoName, Severity
from relay.clock import Now
from relay.deciding.effects import pacing_of
from relay.deciding.gaps import Cause
from relay.metrics import Metrics
from relay.store import budgets, circuits, outbox
from relay.store.engine import Store, StoreDownError
from relay.store.gaps import open_by_cause
from relay.store.waiting import waiting
from relay.work.allowlist import AllowlistKeeper

#: How old what is shown of waits and dead letters may be.
FRESH = timedelta(seconds=5)


class Figures:
    """Brings the gauges of ``metrics`` up to date. ``left`` says what each account may still ask of GitHub."""

    def __init__(
        self,
        *,
        store: Store,
        keeper: AllowlistKeeper,
        metrics: Metrics,
        upstream: RepoName,
        left: Callable[[], Mapping[str, int]],
        now: Now,
    ) -> None:
        self._store = store
        self._keeper = keeper
        self._metrics = metrics
        self._upstream = pacing_of(upstream)
        self._left = left
        self._now = now
        self._looking = asyncio.Lock()
        self._begun = 0
        self._waited_at: datetime | None = None

    async def read(self) -> None:
        """Read what is to be shown. A database that does not answer leaves the last figures."""
        begun = self._begun
        async with self._looking:
            if self._begun > begun:
                return  # Somebody began after we had come, so what they read is as new as what we would.
            self._begun += 1
            self._show_own()
            try:
                await self._show_backlog()
                await self._show_waiting()
            except StoreDownError:
                return

    def _show_own(self) -> None:
        """What this process knows without asking."""
        state, shown = self._keeper.state, self._metrics.waiting
        if state.checked_at is not None:
            self._metrics.allowlist_age_seconds.set((self._now() - state.checked_at).total_seconds())
        shown.allowlist_entries.set(len(state.allowlist.entries))
        shown.allowlist_unread.set(1 if state.trouble or not state.loaded else 0)
        faults = Counter(fault.severity for fault in state.faults)
        for severity in Severity:
            shown.allowlist_faults.labels(severity.value).set(faults[severity])
        shown.failed(self._store.failed_commits)
        shown.left(by_side(self._left(), self._upstream))

    async def _show_backlog(self) -> None:
        now = self._now()
        backlog = await self._store.read(lambda conn: outbox.backlog(conn, now))
        gaps = await self._store.read(open_by_cause)
        states = await self._store.read(circuits.counts)
        held = await self._store.read(lambda conn: budgets.held(conn, now))
        for cause in Cause:
            self._metrics.gaps_open.labels(cause.value).set(gaps.get(cause, 0))
        for state, count in states.items():
            self._metrics.circuits.labels(state.value).set(count)
        self._metrics.accounts_held.labels("limit").set(held.resting)
        self._metrics.accounts_held.labels("budget").set(held.saving)
        self._metrics.effects_open.set(backlog.open)
        self._metrics.oldest_takable_seconds.set(backlog.takable.total_seconds())
        self._metrics.oldest_due_seconds.set(backlog.due.total_seconds())

    async def _show_waiting(self) -> None:
        now = self._now()
        if self._waited_at is not None and timedelta() <= now - self._waited_at < FRESH:
            return
        self._metrics.waiting.show(await self._store.read(lambda conn: waiting(conn, now)))
        self._waited_at = now


def by_side(left: Mapping[str, int], upstream: str) -> Mapping[str, int]:
    """The least of each side. A series for each account would be one for each backend."""
    found: dict[str, int] = {}
    for account, requests in left.items():
        side = "upstream" if account == upstream else "backends"
        found[side] = min(requests, found.get(side, requests))
    return found
