"""Turns that heal gaps: one that GitHub cannot show keeps nobody else waiting, and an outage uses up no tries."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from relay.deciding.circuits import GITHUB, Circuit, State
from relay.deciding.effects import pacing_of
from relay.deciding.gaps import Cause
from relay.github.errors import Invalid, RetryLater
from relay.github.listed import HookDeliveries, PullListed, PullPage, Side
from relay.github.port import Address
from relay.store import budgets, circuits, gaps
from relay.store.circuits import Book
from relay.store.engine import Store
from relay.store.gaps import NewGap
from relay.store.tables import Gap, Turn
from relay.work.gaps import HEALING
from relay.work.missed import MissedDeliveries
from relay.work.upstream import FINDING
from tests.conftest import Clock
from tests.store.taking_in import TERMS
from tests.work.sweeping import HOUR, MINUTE, Paged, listed, looked_before, sweep
from tests.work.test_lookout import Hanging, Uncounted

ACCOUNT = pacing_of(TERMS.upstream)

_gap: Any = Gap.__table__  # type: ignore[attr-defined]
_turn: Any = Turn.__table__  # type: ignore[attr-defined]


class Failing(Hanging):
    """Shows no pull request: some it cannot, the others are gone."""

    def __init__(self, *failing: int) -> None:
        super().__init__()
        self.failing = set(failing)
        self.looked: list[int] = []
        self.listed = 0
        self.states: list[str] = []

    async def pull_listed(self, at: Address, number: int) -> PullListed:
        """Not to be had."""
        self.looked.append(number)
        if number in self.failing:
            raise RetryLater(f"{at.repo} 502", ambiguous=False)
        raise Invalid("gone", reason="not_found", status=404)

    async def pulls(self, at: Address, state: str, page: int, etag: str | None = None) -> PullPage | None:
        """Cut short."""
        self.states.append(state)
        raise RuntimeError(f"{at.repo} page {page} of {etag}")

    async def deliveries(self, side: Side, cursor: str | None, count: int = 100) -> HookDeliveries:
        """None."""
        self.listed += 1
        return HookDeliveries((), None)


def found(store: Store, clock: Clock, count: int) -> None:
    """So many pull requests are open here and closed upstream; the last is the newest."""
    for number in range(1, count + 1):
        at = clock.now() - timedelta(days=1) + number * MINUTE
        gap = NewGap(Cause.CLOSED_MISSED, f"pull {number}", f"{number:040d}", at, number)
        store.write_now(lambda conn, gap=gap: gaps.note_gap(conn, gap, clock.now()))  # type: ignore[misc]


def tries(store: Store) -> dict[int, int]:
    """How often each open gap was tried."""
    rows = store.read_now(lambda conn: conn.execute(select(_gap).where(_gap.c.ended_at.is_(None))).all())
    return {row.number: row.tries for row in rows}


def spent(store: Store, clock: Clock) -> int:
    """What upstream's account has spent within this minute."""
    account = store.write_now(lambda conn: budgets.lock(conn, [ACCOUNT], clock.now())[ACCOUNT])
    return sum(points for _, points, _ in account.spent.minute)


def test_a_gap_that_github_cannot_show_keeps_nobody_else_waiting(store: Store, clock: Clock) -> None:
    """The newest comes first, and fails each time; the older ones have their turn."""
    found(store, clock, 3)
    github = Failing(3)
    healing = sweep(store, github, clock)
    for _ in range(2):
        asyncio.run(healing.heal())
        clock.advance(2 * MINUTE)

    assert [3, 2, 1] == github.looked
    assert {3: 1} == tries(store)


def test_an_outage_uses_up_no_tries_of_what_was_not_asked(store: Store, clock: Clock) -> None:
    """Only what GitHub failed at counts, and it comes again before the day is over."""
    found(store, clock, 3)
    github = Failing(1, 2, 3)
    healing = sweep(store, github, clock)
    for _ in range(10):
        asyncio.run(healing.heal())
        clock.advance(2 * MINUTE)
    assert 10 >= sum(tries(store).values())
    github.failing.clear()
    clock.advance(timedelta(hours=2))
    asyncio.run(healing.heal())

    assert {} == tries(store)


def test_nothing_is_looked_at_while_github_does_not_answer(store: Store, clock: Clock) -> None:
    """Effects keep quiet then, and so do looks."""
    found(store, clock, 1)
    github = Failing()
    until = clock.now() + 10 * MINUTE
    book = Book({})
    book.put(GITHUB, Circuit(GITHUB, State.OPEN, clock.now(), failures=9, several=True, held_until=until))
    store.write_now(lambda conn: circuits.keep(conn, book))
    healing = sweep(store, github, clock)
    missed = MissedDeliveries(store=store, github=github, terms=TERMS, now=clock.now, counts=Uncounted(), every=MINUTE)

    async def turn() -> None:
        await missed.turn()
        await healing.find()
        await healing.heal()

    asyncio.run(asyncio.wait_for(turn(), 5))
    assert ([], 0) == (github.looked, github.listed)

    clock.advance(11 * MINUTE)
    asyncio.run(missed.turn())
    asyncio.run(healing.heal())
    assert ([1], 1) == (github.looked, github.listed)


def test_what_is_asked_for_gaps_is_spent(store: Store, clock: Clock) -> None:
    """One budget for everything that the installation asks."""
    found(store, clock, 5)
    asyncio.run(sweep(store, Failing(), clock).heal())

    assert 5 == spent(store, clock)


def many_pages(clock: Clock, pages: int) -> Paged:
    """A GitHub with so many pages of pull requests that changed since the last look."""
    github = Paged()
    github.pulls_there = [listed(number, clock, 1 + number / 100) for number in range(1, 2 * pages + 1)]
    return github


@pytest.mark.parametrize(("full", "there"), [(True, 100), (True, 101), (False, 101)], ids=["full", "cut", "changed"])
def test_a_look_spends_what_it_reads(sqlite_store: Store, clock: Clock, full: bool, there: int) -> None:
    """More than what is usual was read: effects have to leave room for all of it."""
    looked_before(sqlite_store, clock, full_is_due=full)
    asyncio.run(sweep(sqlite_store, many_pages(clock, there), clock, pages=100).find())

    # Beside the pages: where upstream is, and its queue.
    assert 102 == spent(sqlite_store, clock)


def test_a_look_that_fails_on_the_way_spends_what_it_has_read(sqlite_store: Store, clock: Clock) -> None:
    """GitHub has counted it."""
    looked_before(sqlite_store, clock, full_is_due=True)
    github = many_pages(clock, 100)
    github.down_at_page = 91
    asyncio.run(sweep(sqlite_store, github, clock, pages=100).find())

    assert 90 == spent(sqlite_store, clock)


def test_a_short_look_spends_what_is_usual(sqlite_store: Store, clock: Clock) -> None:
    """It is spent beforehand, when nobody knows yet how much there is."""
    looked_before(sqlite_store, clock, full_is_due=False)
    asyncio.run(sweep(sqlite_store, many_pages(clock, 2), clock).find())

    assert 25 == spent(sqlite_store, clock)


@pytest.mark.parametrize(("rest", "waits"), [(MINUTE, timedelta()), (HOUR, HOUR)])
def test_what_is_found_does_not_end_a_rest(store: Store, clock: Clock, rest: timedelta, waits: timedelta) -> None:
    """What was found is healed at once, but not where healing was put off because GitHub had asked for it."""
    looked_before(store, clock, full_is_due=False)
    store.write_now(lambda conn: gaps.take_turn(conn, HEALING, rest, clock.now()))

    assert 4 == asyncio.run(sweep(store, many_pages(clock, 2), clock).find())
    due = store.read_now(lambda conn: conn.execute(select(_turn.c.due_at).where(_turn.c.name == HEALING)).scalar_one())
    assert clock.now() + waits == due


def test_many_gaps_are_healed_at_a_paced_rate(store: Store, clock: Clock) -> None:
    """Thirty a turn and a turn a minute, however often it is tried: a flood must not meet GitHub's limits."""
    found(store, clock, 61)
    github = Failing()
    healing = sweep(store, github, clock)
    looked = []
    for seconds in (0, 1, 57, 2, 59, 2):
        clock.advance(timedelta(seconds=seconds))
        asyncio.run(healing.heal())
        looked.append(len(github.looked))

    assert [30, 30, 30, 60, 60, 61] == looked
    assert list(range(61, 0, -1)) == github.looked


def test_a_look_in_full_that_was_cut_short_is_not_owed_for_a_day(store: Store, clock: Clock) -> None:
    """A crash, or the end of a process, in the middle of it: whoever comes next does it soon."""
    github = Failing()
    finding = sweep(store, github, clock)
    store.write_now(lambda conn: gaps.take_turn(conn, FINDING, MINUTE, clock.now()))
    store.write_now(lambda conn: gaps.finish_turn(conn, FINDING, clock.now(), clock.now()))
    for _ in range(2):
        clock.advance(timedelta(hours=1))
        with pytest.raises(RuntimeError):
            asyncio.run(finding.find())

    assert ["open", "open"] == github.states
