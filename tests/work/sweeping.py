"""A GitHub that shows two things on a page, and a sweep that looks at one: what the tests of gaps have in common."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from allowlist.model import Allowlist
from relay.github.errors import Invalid, Limited, RetryLater
from relay.github.listed import (
    BranchHead,
    GitHubLists,
    HookDeliveries,
    HookDelivery,
    PullListed,
    PullPage,
    RefHead,
    Side,
)
from relay.github.port import Address, Located
from relay.store import gaps
from relay.store.engine import Store
from relay.work.gaps import FULL, FULL_EVERY, GapSweep
from relay.work.upstream import FINDING, PAGES_AT_MOST
from tests.conftest import Clock
from tests.relay.test_gaps import pull
from tests.store.taking_in import TERMS
from tests.work.test_lookout import Hanging, Uncounted

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


class Paged(Hanging):
    """A GitHub that shows two things on a page."""

    def __init__(self) -> None:
        super().__init__()
        self.pulls_there: list[PullListed] = []
        self.hooks: list[HookDelivery] = []
        self.asked_for: list[str] = []
        self.down_at_page: int | None = None
        self.queue_down = False
        self.unchanged = 0
        self.resting_until: datetime | None = None

    async def locate(self, at: Address) -> Located:
        """There, with the usual branch."""
        return Located(1, 7, 1, private=False, full_name=at.repo, default_branch="main")

    async def branch(self, at: Address, name: str, etag: str | None = None) -> BranchHead | None:
        """None."""
        raise Invalid(f"{at.repo} {name} {etag}", reason="not_found", status=404)

    async def refs(self, at: Address, prefix: str) -> tuple[RefHead, ...]:
        """None."""
        if self.queue_down:
            raise RetryLater(f"{at.repo} 502 {prefix}", ambiguous=False)
        return ()

    async def pulls(self, at: Address, state: str, page: int, etag: str | None = None) -> PullPage | None:
        """Two at a time, the last updated first; nothing where this page is still what its ETag stands for."""
        if page == self.down_at_page:
            raise RetryLater(f"{at.repo} 502 {etag}", ambiguous=False)
        every = [one for one in self.pulls_there if state == "all" or one.shown.state == "open"]
        every.sort(key=lambda one: one.shown.updated_at, reverse=True)
        shown = tuple(every[2 * page - 2 : 2 * page])
        now = f"{state} {page} {[(one.shown.number, one.shown.updated_at) for one in shown]}"
        if etag == now:
            self.unchanged += 1
            return None
        return PullPage(shown, now, more=len(every) > 2 * page)

    async def deliveries(self, side: Side, cursor: str | None, count: int = 100) -> HookDeliveries:
        """Two at a time, the newest first; a cursor leads on from one delivery, whatever came since."""
        every = sorted(self.hooks, key=lambda one: one.delivery_id, reverse=True)
        every = [one for one in every if cursor is None or one.delivery_id < int(cursor)]
        more = len(every) > 2 and count > 1
        return HookDeliveries(tuple(every[: min(2, count)]), str(every[1].delivery_id) if more else None)

    async def redeliver(self, side: Side, delivery_id: int) -> bool:
        """Taken, unless it asks for a rest."""
        if self.resting_until is not None:
            raise Limited(f"{side} {delivery_id} too much", retry_at=self.resting_until)
        self.asked_for += [one.guid for one in self.hooks if one.delivery_id == delivery_id]
        return True


def sweep(store: Store, github: GitHubLists, clock: Clock, pages: int = PAGES_AT_MOST) -> GapSweep:
    """A sweep with an allowlist in force that names nobody, which reads so many pages at most."""
    return GapSweep(
        store=store,
        github=github,
        terms=TERMS,
        listed=Allowlist,
        now=clock.now,
        wake=lambda: None,
        fresh_id=lambda: "1",
        counts=Uncounted(),
        every=MINUTE,
        pages_at_most=pages,
    )


def listed(number: int, clock: Clock, hours: float, state: str = "open") -> PullListed:
    """A pull request that changed so many hours ago."""
    return pull(f"{number:040x}", state, clock.now() - hours * HOUR, number=number)


def looked_before(store: Store, clock: Clock, *, full_is_due: bool) -> None:
    """The relay has looked at all of upstream ten hours ago."""

    def unit(conn: Any) -> None:
        now = clock.now()
        gaps.take_turn(conn, FINDING, MINUTE, now - HOUR)
        gaps.finish_turn(conn, FINDING, now - 10 * HOUR, now - 10 * HOUR)
        gaps.take_turn(conn, FULL, FULL_EVERY, now - (25 * HOUR if full_is_due else HOUR))

    store.write_now(unit)


def mark(store: Store, name: str = FINDING) -> Any:
    """Up to when has been looked at."""
    return store.read_now(lambda conn: gaps.look_at_turn(conn, name)).mark
