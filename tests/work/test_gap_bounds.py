"""More at GitHub than one turn reads: nothing is lost, nobody is blamed, and the next turn goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select
from structlog.testing import capture_logs

from allowlist.model import Allowlist
from relay.deciding.gaps import Cause
from relay.github.errors import Invalid, RetryLater
from relay.github.listed import BranchHead, HookDeliveries, HookDelivery, PullListed, PullPage, RefHead, Side
from relay.github.port import Address, Located
from relay.store import gaps
from relay.store.engine import Store
from relay.store.tables import Gap
from relay.work.gaps import FULL, FULL_EVERY, GapSweep
from relay.work.missed import MissedDeliveries
from relay.work.upstream import FINDING
from tests.conftest import Clock
from tests.relay.planning import pull_request
from tests.relay.test_gaps import pull
from tests.store.taking_in import TERMS, Intake
from tests.work.test_lookout import Hanging, Uncounted

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)

_gap: Any = Gap.__table__  # type: ignore[attr-defined]


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
        """Taken."""
        self.asked_for += [one.guid for one in self.hooks if one.delivery_id == delivery_id]
        return True


def listed(number: int, clock: Clock, hours: float, state: str = "open") -> PullListed:
    """A pull request that changed so many hours ago."""
    return pull(f"{number:040x}", state, clock.now() - hours * HOUR, number=number)


def sweep(store: Store, github: Paged, clock: Clock, pages: int = 3) -> GapSweep:
    """A sweep that reads so many pages of two at most."""
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


def looked_before(store: Store, clock: Clock, *, full_is_due: bool) -> None:
    """The relay has looked at all of upstream ten hours ago."""

    def unit(conn: Any) -> None:
        now = clock.now()
        gaps.take_turn(conn, FINDING, MINUTE, now - HOUR)
        gaps.finish_turn(conn, FINDING, now - 10 * HOUR, now - 10 * HOUR)
        gaps.take_turn(conn, FULL, FULL_EVERY, now - (25 * HOUR if full_is_due else HOUR))

    store.write_now(unit)


def known(store: Store, clock: Clock, numbers: Iterable[int]) -> None:
    """These pull requests are open here, since twenty hours ago."""
    intake = Intake(store, (), clock.now())
    for number in numbers:
        event = pull_request(number=number, head_sha=f"{number:040x}", updated_at=clock.now() - 20 * HOUR)
        intake.take(event, f"D{number}")


def missing(store: Store, cause: Cause) -> list[int]:
    """The pull requests of which something is missing for this cause."""
    rows = store.read_now(lambda conn: conn.execute(select(_gap.c.number).where(_gap.c.cause == cause.value)).all())
    return sorted(row.number for row in rows)


def mark(store: Store, name: str = FINDING) -> Any:
    """Up to when has been looked at."""
    return store.read_now(lambda conn: gaps.look_at_turn(conn, name)).mark


def turns(finding: GapSweep, clock: Clock, count: int = 1) -> None:
    """So many turns, one a minute."""
    for _ in range(count):
        asyncio.run(finding.find())
        clock.advance(MINUTE)


def test_whoever_was_not_read_yet_is_not_taken_for_closed(store: Store, clock: Clock) -> None:
    """Twelve are open and a look reads six: only the one that is on no page in the end is asked about."""
    looked_before(store, clock, full_is_due=True)
    known(store, clock, range(1, 14))
    github = Paged()
    github.pulls_there = [listed(number, clock, 10 + number) for number in range(1, 13)]
    finding = sweep(store, github, clock)

    before = mark(store)
    turns(finding, clock)
    assert ([], before) == (missing(store, Cause.CLOSED_MISSED), mark(store))
    # The last of the list is talked about meanwhile, and stands on the first page, which has been read.
    github.pulls_there[-1] = listed(12, clock, 0)
    turns(finding, clock, 4)

    assert [13] == missing(store, Cause.CLOSED_MISSED)
    assert mark(store) > before


def test_a_look_that_fails_on_the_way_concludes_nothing_and_is_done_again(store: Store, clock: Clock) -> None:
    """GitHub breaks off in the second look: what that look had read counts only once it is read again."""
    looked_before(store, clock, full_is_due=True)
    known(store, clock, (number for number in range(1, 14) if number != 8))
    github = Paged()
    github.pulls_there = [listed(number, clock, 10 + number) for number in range(1, 13)]
    finding = sweep(store, github, clock)
    turns(finding, clock)
    github.down_at_page = 5
    turns(finding, clock, 3)
    assert [] == missing(store, Cause.CLOSED_MISSED)
    github.down_at_page = None
    turns(finding, clock, 4)

    assert [13] == missing(store, Cause.CLOSED_MISSED)
    assert [8] == missing(store, Cause.FIRST_START)


def test_more_changes_than_one_look_reads_are_all_found(store: Store, clock: Clock) -> None:
    """Fifteen webhooks never came while nobody looked: those that the first look did not come to are found too."""
    looked_before(store, clock, full_is_due=False)
    github = Paged()
    github.pulls_there = [listed(number, clock, number / 2) for number in range(1, 16)]
    finding = sweep(store, github, clock)

    before = mark(store)
    turns(finding, clock)
    assert (6, before) == (len(missing(store, Cause.NEVER_DELIVERED)), mark(store))
    turns(finding, clock, 4)

    assert list(range(1, 16)) == missing(store, Cause.NEVER_DELIVERED)
    assert mark(store) > before


@pytest.mark.parametrize("broken", ["last page", "queue"])
def test_what_a_look_that_failed_had_read_is_read_again(sqlite_store: Store, clock: Clock, broken: str) -> None:
    """Its first page has not changed since. That says nothing, as what it showed was written down nowhere."""
    looked_before(sqlite_store, clock, full_is_due=False)
    github = Paged()
    github.pulls_there = [listed(number, clock, number) for number in range(1, 6)]
    finding = sweep(sqlite_store, github, clock)
    github.down_at_page, github.queue_down = (3 if broken == "last page" else None), broken == "queue"
    before = mark(sqlite_store)
    turns(finding, clock, 2)
    assert ([], before) == (missing(sqlite_store, Cause.NEVER_DELIVERED), mark(sqlite_store))
    github.down_at_page, github.queue_down = None, False
    turns(finding, clock)

    assert list(range(1, 6)) == missing(sqlite_store, Cause.NEVER_DELIVERED)
    assert mark(sqlite_store) > before


def test_a_first_page_that_has_not_changed_ends_a_look(sqlite_store: Store, clock: Clock) -> None:
    """After one that came to its end, what GitHub shows is known, and such an answer costs no budget."""
    looked_before(sqlite_store, clock, full_is_due=False)
    github = Paged()
    github.pulls_there = [listed(number, clock, number) for number in range(1, 6)]
    finding = sweep(sqlite_store, github, clock)
    turns(finding, clock, 3)

    assert (2, list(range(1, 6))) == (github.unchanged, missing(sqlite_store, Cause.NEVER_DELIVERED))


def test_what_another_replica_has_ended_meanwhile_is_not_gone_on_with(sqlite_store: Store, clock: Clock) -> None:
    """Its mark stands for more than what is left over here, and would be moved back by it."""
    looked_before(sqlite_store, clock, full_is_due=False)
    github = Paged()
    github.pulls_there = [listed(number, clock, number / 2) for number in range(1, 10)]
    here, there = sweep(sqlite_store, github, clock), sweep(sqlite_store, github, clock, pages=9)
    turns(here, clock)
    github.pulls_there.append(listed(10, clock, 0.25))
    turns(there, clock)
    ended = mark(sqlite_store)
    github.pulls_there.append(listed(11, clock, 0.2))
    turns(here, clock)

    assert list(range(1, 12)) == missing(sqlite_store, Cause.NEVER_DELIVERED)
    assert mark(sqlite_store) > ended


def test_a_look_in_full_that_cannot_keep_up_is_done_again_soon(sqlite_store: Store, clock: Clock) -> None:
    """More pull requests change between two looks than one reads: who is closed cannot be told, and not for a day."""
    looked_before(sqlite_store, clock, full_is_due=True)
    known(sqlite_store, clock, range(1, 14))
    github = Paged()
    github.pulls_there = [listed(number, clock, 10 + number) for number in range(1, 13)]
    finding = sweep(sqlite_store, github, clock)
    turns(finding, clock)
    github.pulls_there = [listed(number, clock, number / 20) for number in range(1, 13)]
    with capture_logs() as lines:
        turns(finding, clock, 2)
    assert [] == missing(sqlite_store, Cause.CLOSED_MISSED)
    assert {"event": "pull_requests_too_many", "known": "open", "pages": 3, "log_level": "warning"} == lines[-1]
    turns(finding, clock, 4)

    assert [13] == missing(sqlite_store, Cause.CLOSED_MISSED)


def hook(number: int, clock: Clock, *, ok: bool = False, guid: str = "", redelivery: bool = False) -> HookDelivery:
    """A delivery: the higher its number, the later."""
    at = clock.now() - HOUR + number * MINUTE
    return HookDelivery(number, guid or f"g{number}", "push", None, 7, at, redelivery, ok)


def asking(store: Store, github: Paged, clock: Clock, pages: int = 2) -> MissedDeliveries:
    """Turns that read so many pages of two at most."""
    return MissedDeliveries(
        store=store,
        github=github,
        terms=TERMS,
        now=clock.now,
        counts=Uncounted(),
        every=MINUTE,
        pages_at_most=pages,
    )


@pytest.fixture
def missed(store: Store, clock: Clock) -> tuple[MissedDeliveries, Paged]:
    """Turns that read two pages of two at most, and have looked before."""
    github = Paged()
    made = asking(store, github, clock)
    github.hooks = [replace(hook(0, clock, ok=True), delivered_at=clock.now() - 5 * HOUR)]
    asyncio.run(made.turn())
    return made, github


def test_more_deliveries_than_one_turn_reads_are_all_asked_for(
    store: Store, clock: Clock, missed: tuple[MissedDeliveries, Paged]
) -> None:
    """Eleven failed while we were away, one of which came through since: each other is asked for once."""
    turn, github = missed
    clock.advance(2 * MINUTE)
    github.hooks += [hook(number, clock) for number in range(1, 12)]
    github.hooks.append(hook(12, clock, ok=True, guid="g1", redelivery=True))

    before = mark(store, "deliveries 1")
    asyncio.run(turn.turn())
    assert (3, before) == (len(github.asked_for), mark(store, "deliveries 1"))
    for _ in range(4):
        clock.advance(MINUTE)
        asyncio.run(turn.turn())

    assert [f"g{number}" for number in range(2, 12)] == sorted(github.asked_for, key=lambda guid: int(guid[1:]))
    assert mark(store, "deliveries 1") > before


def test_what_was_asked_for_is_not_given_up_by_a_list_that_is_not_whole(
    store: Store, clock: Clock, missed: tuple[MissedDeliveries, Paged]
) -> None:
    """Its redelivery stands further down than the turn came, or came after the list was begun."""
    turn, github = missed
    clock.advance(2 * MINUTE)
    github.hooks.append(hook(1, clock))
    asyncio.run(turn.turn())
    again = replace(hook(2, clock, guid="g1", redelivery=True), delivered_at=clock.now() + MINUTE)
    clock.advance(11 * MINUTE)
    github.hooks += [again, *(hook(number, clock, ok=True) for number in range(3, 9))]
    ends = []
    for _ in range(4):
        asyncio.run(turn.turn())
        clock.advance(MINUTE)
        (row,) = store.read_now(lambda conn: conn.execute(select(_gap.c.how)).all())
        ends.append(row.how)

    assert ["", "failed_again", "failed_again", "failed_again"] == ends


def test_deliveries_that_another_replica_has_read_meanwhile_are_not_gone_on_with(
    store: Store, clock: Clock, missed: tuple[MissedDeliveries, Paged]
) -> None:
    """It has read further than what is left over here, so this turn begins anew, from where that one ended."""
    turn, github = missed
    clock.advance(2 * MINUTE)
    github.hooks += [hook(number, clock) for number in range(1, 9)]
    asyncio.run(turn.turn())
    clock.advance(MINUTE)
    github.hooks.append(hook(55, clock))
    asyncio.run(asking(store, github, clock, pages=9).turn())
    ended = mark(store, "deliveries 1")
    clock.advance(MINUTE)
    github.hooks.append(hook(58, clock))
    asyncio.run(turn.turn())

    assert sorted([*(f"g{number}" for number in range(1, 9)), "g55", "g58"]) == sorted(github.asked_for)
    assert mark(store, "deliveries 1") > ended
