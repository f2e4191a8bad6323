"""What is new does not wait for hours behind a retry of what is old."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from sqlalchemy import Connection, delete, select, update

from allowlist.model import RepoName
from relay.github.errors import RetryLater
from relay.store.comments import want_comment
from relay.store.engine import Store
from relay.store.outbox import Claimed
from relay.store.sooner import AGAIN, sooner
from relay.store.tables import Attempt, Effect
from relay.texts.words import GATE_NAME
from relay.work.outbox import Again, Note
from relay.work.schedule import SCHEDULE, UNSURE
from tests.conftest import Clock
from tests.work.record import Record
from tests.work.test_worker import Performer, drain, owed, put, rows

_effect = Effect.__table__  # type: ignore[attr-defined]
HOUR = timedelta(hours=1)


def far(record: Record, *, named: datetime | None = None) -> None:
    """Let what has failed be due in an hour, by the schedule or because GitHub named a time."""
    row = {"due": record.clock.now() + HOUR, "not_before": named}
    record.store.write_now(lambda conn: conn.execute(update(_effect).where(_effect.c.failures > 0).values(**row)))


def refused(record: Record) -> None:
    """A gate whose write failed at GitHub."""
    record.change()
    record.github.faults.append(("before create", RetryLater("GitHub answered 502.", ambiguous=False, status=502)))
    record.settle()
    assert [] == record.github.runs


def held_up(record: Record) -> None:
    """A gate whose write was not done in time, so that nobody could note an error of GitHub's."""
    record.change()

    class Endless(Performer):
        async def perform(self, effect: Claimed) -> Note | None:
            await asyncio.sleep(60)
            return await super().perform(effect)

    performer = Endless(lambda _effect: None, {})
    asyncio.run(drain(record.store, performer, record.clock, lambda: failed(record), job_seconds=0.02))


def broken(record: Record) -> None:
    """A gate whose write met a fault of ours."""
    record.change()
    performer = Performer(lambda _effect: ZeroDivisionError(), {})
    asyncio.run(drain(record.store, performer, record.clock, lambda: failed(record)))


def failed(record: Record) -> bool:
    """Whether a try has failed and was noted."""
    return [(1, "ready")] == [(one.failures, one.state) for one in record.rows(Effect)]


@pytest.mark.parametrize("failing", [refused, held_up, broken])
def test_a_touch_brings_the_retry_of_its_check_forward(
    record_on_both: Record, failing: Callable[[Record], None]
) -> None:
    """A reviewer must not look at an old state for hours because the write before failed some times."""
    record = record_on_both
    failing(record)
    far(record)

    assert 0 == record.settle(passing=AGAIN)  # By itself it waits.
    record.touch()
    assert 0 == record.settle(passing=AGAIN / 2)  # What failed may still take effect.
    record.touch()  # What is told again and again puts nothing off.
    record.settle(passing=AGAIN / 2)

    assert ("completed", "success") == (record.github.showing(GATE_NAME).status, record.checks()[GATE_NAME].conclusion)
    assert AGAIN >= UNSURE


def test_a_retry_is_known_by_its_check_whatever_its_own_number(record_on_both: Record) -> None:
    """The first effect ever is of the first check ever; later ones share no number."""
    record = record_on_both
    refused(record)
    far(record)

    def renumber(conn: Connection) -> None:
        conn.execute(delete(Attempt))
        conn.execute(update(_effect).values(id=_effect.c.id + 1_000))

    record.store.write_now(renumber)
    record.touch()

    assert record.clock.now() + AGAIN == min(one.due for one in record.rows(Effect) if one.failures)


def test_a_time_that_github_named_holds_all_the_same(record: Record) -> None:
    """Retry-After is not ours to shorten."""
    refused(record)
    far(record, named=record.clock.now() + HOUR / 2)
    record.touch()

    assert 0 == record.settle(passing=HOUR / 2 - timedelta(seconds=1))
    assert 0 < record.settle(passing=timedelta(seconds=1))


@pytest.mark.parametrize("tried", [True, False])
def test_a_new_text_brings_the_retry_of_its_comment_forward(record: Record, tried: bool) -> None:
    """An answer to a person is as urgent; and what has not failed keeps the time that it was given."""
    upstream, now = RepoName.parse("up/stream"), record.clock.now()

    def want(body: str) -> int:
        return record.store.write_now(lambda conn: want_comment(conn, 1, "answers", body, upstream, now))

    want("first")
    row = {"due": now + HOUR, "failures": int(tried), "coalesce_key": None}
    record.store.write_now(lambda conn: conn.execute(update(_effect).values(**row)))

    want("second")

    assert [AGAIN if tried else HOUR, timedelta()] == [one.due - now for one in record.rows(Effect)]


def test_tries_that_were_brought_forward_use_up_nothing(sqlite_store: Store, clock: Clock) -> None:
    """A busy pull request touches its checks every few seconds: what fails is tried for ten hours all the same."""
    put(sqlite_store, clock, "lane")
    tries: list[datetime] = []

    def fail(_effect: Claimed) -> Exception:
        tries.append(clock.now())
        return LookupError() if len(tries) % 2 else ZeroDivisionError()

    def time_passes() -> bool:
        state, due = sqlite_store.read_now(lambda conn: conn.execute(select(_effect.c.state, _effect.c.due)).one())
        if state == "ready" and clock.now() < due:
            if len(tries) < 10:
                sqlite_store.write_now(lambda conn: sooner(conn, ["lane"], clock.now()))
                clock.advance(AGAIN)
            else:
                clock.advance(due - clock.now())
        return owed(sqlite_store)()

    performer = Performer(fail, {LookupError: Again("commit_unknown", "GitHub does not know it yet.")})
    asyncio.run(drain(sqlite_store, performer, clock, time_passes))

    assert list(SCHEDULE[3:]) == [after - before for before, after in pairwise(tries[9:])]
    assert [(1, "dead", "commit_unknown")] == rows(sqlite_store)
