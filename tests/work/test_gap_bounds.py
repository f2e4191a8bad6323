"""More pull requests than one look reads: nothing is lost, nobody is blamed, and the next look goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from sqlalchemy import select
from structlog.testing import capture_logs

from relay.deciding.gaps import Cause
from relay.store.engine import Store
from relay.store.tables import Gap
from relay.work.gaps import GapSweep
from tests.conftest import Clock
from tests.relay.planning import pull_request
from tests.store.taking_in import Intake
from tests.work.sweeping import HOUR, MINUTE, Paged, listed, looked_before, mark, sweep

#: What one look reads, of two pull requests each.
PAGES = 3

_gap: Any = Gap.__table__  # type: ignore[attr-defined]


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
    finding = sweep(store, github, clock, PAGES)

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
    finding = sweep(store, github, clock, PAGES)
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
    finding = sweep(store, github, clock, PAGES)

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
    finding = sweep(sqlite_store, github, clock, PAGES)
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
    finding = sweep(sqlite_store, github, clock, PAGES)
    turns(finding, clock, 3)

    assert (2, list(range(1, 6))) == (github.unchanged, missing(sqlite_store, Cause.NEVER_DELIVERED))


def test_what_another_replica_has_ended_meanwhile_is_not_gone_on_with(sqlite_store: Store, clock: Clock) -> None:
    """Its mark stands for more than what is left over here, and would be moved back by it."""
    looked_before(sqlite_store, clock, full_is_due=False)
    github = Paged()
    github.pulls_there = [listed(number, clock, number / 2) for number in range(1, 10)]
    here, there = sweep(sqlite_store, github, clock, PAGES), sweep(sqlite_store, github, clock, pages=9)
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
    finding = sweep(sqlite_store, github, clock, PAGES)
    turns(finding, clock)
    github.pulls_there = [listed(number, clock, number / 20) for number in range(1, 13)]
    with capture_logs() as lines:
        turns(finding, clock, 2)
    assert [] == missing(sqlite_store, Cause.CLOSED_MISSED)
    assert {"event": "pull_requests_too_many", "known": "open", "pages": 3, "log_level": "warning"} == lines[-1]
    turns(finding, clock, 4)

    assert [13] == missing(sqlite_store, Cause.CLOSED_MISSED)
