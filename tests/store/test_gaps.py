"""Gaps as rows, on both databases: whose turn it is, what is asked for but once, and since when an entry asks."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from allowlist.model import Allowlist, Entry, Level, RepoName
from relay.deciding.gaps import Cause, How
from relay.store import gaps
from relay.store.engine import Store
from relay.store.gaps import FailedDelivery, NewGap
from tests.conftest import Clock

HOUR = timedelta(hours=1)
NPU = Entry(RepoName("org", "npu"), Level.L2)


@pytest.fixture
def on_sqlite(sqlite_template: Path, tmp_path: Path) -> Iterator[Store]:
    """The database whose statements name the fewest values."""
    shutil.copy(sqlite_template, tmp_path / "one.db")
    store = Store(f"sqlite:///{tmp_path / 'one.db'}")
    yield store
    store.close()


def test_a_turn_belongs_to_one_and_comes_again(store: Store, clock: Clock) -> None:
    """Whoever asks second gets none until it is due again; how far the first came is handed on."""

    def take() -> gaps.Taken | None:
        return store.write_now(lambda conn: gaps.take_turn(conn, "t", HOUR, clock.now()))

    first, second = take(), take()
    began = clock.now()
    store.write_now(lambda conn: gaps.finish_turn(conn, "t", began - HOUR, began))
    clock.advance(HOUR)

    assert gaps.Taken(None, None) == first
    assert second is None
    third = take()
    assert third is not None
    assert (began, began - HOUR) == (third.began_at, third.mark)


def test_how_far_was_looked_never_goes_back(store: Store, clock: Clock) -> None:
    """Whoever took longer than a turn's time ends after the next, which has looked further; no clock looks ahead."""
    now = clock.now()

    def finish(mark: datetime) -> datetime | None:
        store.write_now(lambda conn: gaps.finish_turn(conn, "t", mark, now))
        return store.read_now(lambda conn: gaps.look_at_turn(conn, "t")).mark

    store.write_now(lambda conn: gaps.take_turn(conn, "t", HOUR, now))

    assert [now - 2 * HOUR, now - HOUR, now - HOUR] == [finish(now - hours * HOUR) for hours in (2, 1, 3)]
    # A mark that a clock which ran ahead has made stands for nothing that was looked at.
    assert [now + HOUR, now - HOUR] == [finish(now + HOUR), finish(now - HOUR)]


def test_a_failed_delivery_is_claimed_once_the_newest_first(store: Store, clock: Clock) -> None:
    """Two replicas that ask at once get different ones, and what was found before is not found again."""
    now = clock.now()
    failed = [FailedDelivery(f"g{n}", n, "1", "push", now + timedelta(seconds=n)) for n in range(3)]

    new = store.write_now(lambda conn: gaps.note_failed(conn, failed, now))
    again = store.write_now(lambda conn: gaps.note_failed(conn, failed, now))
    mine = store.write_now(lambda conn: gaps.claim_asking(conn, "1", 2, now))
    theirs = store.write_now(lambda conn: gaps.claim_asking(conn, "1", 2, now))
    other_app = store.write_now(lambda conn: gaps.claim_asking(conn, "2", 2, now))

    assert (3, ()) == (len(new), again)
    assert [["g2", "g1"], ["g0"], []] == [[one.guid for one in each] for each in (mine, theirs, other_app)]


def test_what_was_certainly_not_asked_can_be_asked(store: Store, clock: Clock) -> None:
    """A refused question is put back; one that GitHub took is not."""
    now = clock.now()
    failed = [FailedDelivery(f"g{n}", n, "1", "push", now) for n in range(2)]
    store.write_now(lambda conn: gaps.note_failed(conn, failed, now))
    taken = store.write_now(lambda conn: gaps.claim_asking(conn, "1", 2, now))
    store.write_now(lambda conn: gaps.note_asked(conn, taken[0].id, now))
    store.write_now(lambda conn: gaps.not_asked(conn, [one.id for one in taken]))

    again = store.write_now(lambda conn: gaps.claim_asking(conn, "1", 2, now))

    assert [(taken[1].guid, 2)] == [(one.guid, one.tries) for one in again]


@pytest.mark.slow
def test_more_failed_deliveries_than_one_statement_may_name_are_written_down(on_sqlite: Store, clock: Clock) -> None:
    """Days of an outage are noted at once, where a list is read over several turns."""
    now = clock.now()
    failed = [FailedDelivery(f"g{number}", number, "1", "push", now) for number in range(33_000)]

    def unit(conn: Connection) -> tuple[int, int, int, frozenset[str]]:
        driver: Any = conn.connection.driver_connection
        driver.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 32_766)  # As SQLite is built unless somebody says else.
        new, again = gaps.note_failed(conn, failed, now), gaps.note_failed(conn, failed, now)
        taken = gaps.claim_asking(conn, "1", 3, now)
        gaps.not_asked(conn, [one.id for one in gaps.open_deliveries(conn, "1")])
        return len(new), len(again), len(taken), gaps.received(conn, [one.guid for one in failed])

    assert (33_000, 0, 3, frozenset()) == on_sqlite.write_now(unit)
    assert {None} == {one.asking_at for one in on_sqlite.read_now(lambda conn: gaps.open_deliveries(conn, "1"))}


def test_a_gap_is_one_row_and_opens_again(store: Store, clock: Clock) -> None:
    """Found twice it is one; found after it was healed it is open once more, and counts as found."""
    gap = NewGap(Cause.CLOSED_MISSED, "pull 1", "a" * 40, clock.now(), 1)

    def note() -> bool:
        return store.write_now(lambda conn: gaps.note_gap(conn, gap, clock.now()))

    found = [note(), note()]
    (taken,) = store.write_now(lambda conn: gaps.take_up(conn, 5, clock.now()))
    held = store.write_now(lambda conn: gaps.take_up(conn, 5, clock.now()))
    ended = [store.write_now(lambda conn: gaps.end_gap(conn, taken.id, How.CLOSED, clock.now())) for _ in range(2)]

    assert [True, False] == found
    assert () == held
    assert [True, False] == ended
    assert {} == store.read_now(gaps.open_by_cause)
    assert note()
    assert {Cause.CLOSED_MISSED: 1} == store.read_now(gaps.open_by_cause)


@pytest.mark.parametrize(
    ("after", "moved"),
    [
        (replace(NPU, level=Level.L4), False),
        (replace(NPU, oncalls=("ada",)), False),
        (replace(NPU, events=frozenset({"push"})), True),
        (replace(NPU, base=("main",)), True),
    ],
    ids=["promoted", "on-calls", "events", "base"],
)
def test_an_entry_asks_anew_only_by_its_filters(store: Store, clock: Clock, after: Entry, moved: bool) -> None:
    """A promotion asks for nothing new; another filter does, from now on."""
    began = clock.now()
    store.write_now(lambda conn: gaps.note_listings(conn, Allowlist((NPU,)), began))
    later = clock.advance(HOUR)
    store.write_now(lambda conn: gaps.note_listings(conn, Allowlist((after,)), later))

    assert {NPU.repo: later if moved else began} == store.read_now(gaps.asking_since)
    store.write_now(lambda conn: gaps.note_listings(conn, Allowlist(), later))
    assert {} == store.read_now(gaps.asking_since)
