"""Deliveries that failed: each is asked for once, however many there are, and GitHub is left alone where it asks so."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import select

from relay.github.listed import HookDelivery
from relay.github.port import Located
from relay.store.dispatching import pin
from relay.store.engine import Store
from relay.store.tables import Gap, Turn
from relay.work.missed import MissedDeliveries
from tests.conftest import Clock
from tests.relay.planning import XPU
from tests.store.taking_in import TERMS
from tests.work.sweeping import HOUR, MINUTE, Paged, mark
from tests.work.test_lookout import Uncounted

_gap: Any = Gap.__table__  # type: ignore[attr-defined]
_turn: Any = Turn.__table__  # type: ignore[attr-defined]

LIST = "deliveries 1"


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

    before = mark(store, LIST)
    asyncio.run(turn.turn())
    assert (3, before) == (len(github.asked_for), mark(store, LIST))
    for _ in range(4):
        clock.advance(MINUTE)
        asyncio.run(turn.turn())

    assert [f"g{number}" for number in range(2, 12)] == sorted(github.asked_for, key=lambda guid: int(guid[1:]))
    assert mark(store, LIST) > before


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
    ended = mark(store, LIST)
    clock.advance(MINUTE)
    github.hooks.append(hook(58, clock))
    asyncio.run(turn.turn())

    assert sorted([*(f"g{number}" for number in range(1, 9)), "g55", "g58"]) == sorted(github.asked_for)
    assert mark(store, LIST) > ended


def due_at(store: Store) -> datetime:
    """When the list is looked at again."""
    at: datetime = store.read_now(
        lambda conn: conn.execute(select(_turn.c.due_at).where(_turn.c.name == LIST)).scalar_one()
    )
    return at


@pytest.mark.parametrize("pages", [1, 9])
def test_a_rest_that_github_asks_for_is_kept_although_more_waits_to_be_read(
    store: Store, clock: Clock, missed: tuple[MissedDeliveries, Paged], pages: int
) -> None:
    """A list that was not read to its end is soon gone on with, and a rest is longer than that."""
    _, github = missed
    clock.advance(2 * MINUTE)
    github.hooks += [hook(number, clock) for number in range(1, 9)]
    github.resting_until = clock.now() + HOUR
    asyncio.run(asking(store, github, clock, pages).turn())

    assert due_at(store) >= clock.now() + HOUR
    github.resting_until = None
    clock.advance(HOUR)
    asyncio.run(asking(store, github, clock, 9).turn())
    assert 8 == len(github.asked_for)


def ends(store: Store) -> dict[str, str]:
    """How each failed delivery that was written down ended."""
    rows = store.read_now(lambda conn: conn.execute(select(_gap.c.subject, _gap.c.how)).all())
    return {row.subject: row.how for row in rows}


def test_what_happened_to_a_stranger_s_repository_is_not_asked_for(
    store: Store, clock: Clock, missed: tuple[MissedDeliveries, Paged]
) -> None:
    """Nothing would be kept of it. Backends are known by their ids, and so is upstream."""
    turn, github = missed
    located = Located(1, 8, 1, private=False, full_name=XPU.repo)
    store.write_now(lambda conn: pin(conn, XPU.repo, located, clock.now()))
    clock.advance(2 * MINUTE)
    told = {"event": "repository", "action": "renamed"}
    github.hooks += [
        replace(hook(number, clock), repository_id=number, **told)  # type: ignore[arg-type]
        for number in (6, 7, 8, 9)
    ]
    for _ in range(3):
        asyncio.run(turn.turn())
        clock.advance(MINUTE)

    assert ["g7", "g8"] == sorted(github.asked_for)
    assert {"g7", "g8"} == ends(store).keys()


def test_one_that_came_and_was_not_kept_is_missed_no_more(
    store: Store, clock: Clock, missed: tuple[MissedDeliveries, Paged]
) -> None:
    """An installation that is none of ours leaves no row: that it came through, GitHub's own list says."""
    turn, github = missed
    clock.advance(2 * MINUTE)
    told = {"event": "installation", "action": "created", "repository_id": None}
    github.hooks.append(replace(hook(1, clock), **told))  # type: ignore[arg-type]
    asyncio.run(turn.turn())
    clock.advance(MINUTE)
    again = replace(hook(2, clock, ok=True, guid="g1", redelivery=True), **told)  # type: ignore[arg-type]
    github.hooks.append(replace(again, delivered_at=clock.now()))
    for _ in range(20):
        clock.advance(MINUTE)
        asyncio.run(turn.turn())

    assert (["g1"], {"g1": "redelivered"}) == (github.asked_for, ends(store))
