"""The lookout and the end of a process: nobody waits long for a GitHub that answers slowly."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from relay.github.listed import BranchHead, GitHubLists, HookDeliveries, PullListed, PullPage, RefHead, Side
from relay.github.port import Address, Located
from relay.store.engine import Store
from relay.work.gaps import GapSweep
from relay.work.lookout import Lookout
from relay.work.missed import MissedDeliveries
from tests.conftest import Clock
from tests.store.taking_in import TERMS

HOUR = timedelta(hours=1)


class Hanging(GitHubLists):
    """A GitHub of whose answers none comes."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def _never(self) -> None:
        self.asked.set()
        await asyncio.sleep(3600)

    def app_id_of(self, side: Side) -> str:
        """One app for both."""
        return {Side.UPSTREAM: "1", Side.BACKENDS: "1"}[side]

    async def locate(self, at: Address) -> Located:
        """Never."""
        await self._never()
        raise AssertionError(at)

    async def deliveries(self, side: Side, cursor: str | None, count: int = 100) -> HookDeliveries:
        """Never."""
        await self._never()
        raise AssertionError((side, cursor, count))

    async def redeliver(self, side: Side, delivery_id: int) -> bool:
        """Never."""
        await self._never()
        raise AssertionError((side, delivery_id))

    async def pulls(self, at: Address, state: str, page: int, etag: str | None = None) -> PullPage | None:
        """Never."""
        await self._never()
        raise AssertionError((at, state, page, etag))

    async def pull_listed(self, at: Address, number: int) -> PullListed:
        """Never."""
        await self._never()
        raise AssertionError((at, number))

    async def branch(self, at: Address, name: str, etag: str | None = None) -> BranchHead | None:
        """Never."""
        await self._never()
        raise AssertionError((at, name, etag))

    async def refs(self, at: Address, prefix: str) -> tuple[RefHead, ...]:
        """Never."""
        await self._never()
        raise AssertionError((at, prefix))


class Uncounted:
    """Counts nothing."""

    def gap_found(self, cause: str) -> None:
        """As it says."""

    def gap_healed(self, cause: str) -> None:
        """As it says."""


def lookout(store: Store, github: GitHubLists, clock: Clock) -> Lookout:
    """A lookout that begins at once, and leaves soon."""
    missed = MissedDeliveries(
        store=store, github=github, terms=TERMS, now=clock.now, counts=Uncounted(), every=timedelta(seconds=0.01)
    )
    gaps = GapSweep(
        store=store,
        github=github,
        terms=TERMS,
        listed=lambda: None,
        now=clock.now,
        wake=lambda: None,
        fresh_id=lambda: "1",
        counts=Uncounted(),
        every=HOUR,
    )
    return Lookout(missed, gaps, every=timedelta(seconds=0.01), now=clock.now, leave_seconds=0.05)


def test_a_process_does_not_wait_for_a_look_that_takes_long(store: Store, clock: Clock) -> None:
    """A look reads hundreds of pages; whoever ends the process kills it after half a minute. A crash costs no more."""

    async def leave() -> float:
        github = Hanging()
        looking = lookout(store, github, clock)
        running = asyncio.create_task(looking.run())
        await asyncio.wait_for(github.asked.wait(), 5)
        began = time.monotonic()
        looking.stop()
        await asyncio.wait_for(running, 5)
        return time.monotonic() - began

    assert asyncio.run(leave()) < 3
