"""The worker: every effect ends on its row, whatever its performer does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, select

from relay.deciding.effects import Kind, NewEffect
from relay.store import outbox
from relay.store.engine import Store, StoreDownError
from relay.store.outbox import Claimed
from relay.store.tables import Attempt, Effect, Pacing
from relay.work.outbox import JOB_SECONDS, STORE_REST, Again, GiveUp, Job, Note, Rest, Verdict, Worker
from relay.work.schedule import JITTER, SCHEDULE, next_try
from tests.conftest import Clock


class Silent:
    """An observer that does not look."""

    def attempt(self, kind: Kind, outcome: str, seconds: float, age: float) -> None:
        """Nothing."""


class Performer:
    """Does what the test says with each try at each subject, and remembers the order."""

    def __init__(self, act: Callable[[Claimed], Exception | None], verdicts: dict[type[Exception], Verdict]) -> None:
        self.act = act
        self.verdicts = verdicts
        self.performed: list[int] = []
        self.given_up: list[tuple[int, str]] = []
        self.together = 0
        self.most_together = 0

    async def begin(self, effects: Sequence[Claimed]) -> list[tuple[Claimed, Job]]:
        """One job for each."""
        return [(effect, partial(self.perform, effect)) for effect in effects]

    async def perform(self, effect: Claimed) -> Note | None:
        """One try."""
        self.performed.append(effect.subject_id)
        self.together += 1
        self.most_together = max(self.most_together, self.together)
        await asyncio.sleep(0.001)
        self.together -= 1
        error = self.act(effect)
        if error is not None:
            raise error
        return None

    def judge(self, error: Exception) -> Verdict | None:
        """As the test declared."""
        return self.verdicts.get(type(error))

    def put_back(self, effect: Claimed) -> Note | None:
        """Nothing is noted."""

    def gave_up(self, effect: Claimed, reason: str, detail: str) -> Note | None:
        """Remember it, from inside the transaction."""

        def note(_conn: Connection, _now: datetime) -> None:
            self.given_up.append((effect.subject_id, reason))

        return note


async def drain(store: Store, performer: Performer, clock: Clock, until: Callable[[], bool], **given: Any) -> None:
    """Run a worker until the condition holds, then stop it."""
    worker = Worker(
        store,
        performer,
        now=clock.now,
        random=lambda: 0.5,
        name="worker",
        observer=Silent(),
        **{"poll_seconds": 0.01, **given},
    )
    running = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(20):
            while not until():
                await asyncio.sleep(0.005)
    finally:
        worker.stop()
        await running


def put(store: Store, clock: Clock, *lanes: str) -> None:
    """One effect for each lane named, subjects counting from 1."""
    effects = [NewEffect(Kind.DISPATCH, lane, "account org", number) for number, lane in enumerate(lanes, 1)]
    store.write_now(lambda conn: outbox.enqueue(conn, effects, clock.now()))


def rows(store: Store) -> list[tuple[int, str, str]]:
    """Each effect's subject, state and reason."""
    found = store.read_now(lambda conn: conn.execute(select(Effect.subject_id, Effect.state, Effect.reason)).all())
    return sorted((row[0], row[1], row[2]) for row in found)


def owed(store: Store) -> Callable[[], bool]:
    """Nothing is owed any more."""
    return lambda: store.read_now(outbox.open_count) == 0


def test_everything_is_done_and_lanes_keep_their_order(store: Store, clock: Clock) -> None:
    """Ten lanes at once, each in order: that is what a burst of webhooks looks like."""
    put(store, clock, *[f"lane {number % 10}" for number in range(50)])
    performer = Performer(lambda _effect: None, {})

    asyncio.run(drain(store, performer, clock, owed(store)))

    assert 50 == len(performer.performed) == len(set(performer.performed))
    for lane in range(10):
        mine = [subject for subject in performer.performed if (subject - 1) % 10 == lane]
        assert sorted(mine) == mine


def test_no_more_than_the_allowed_number_is_in_flight(store: Store, clock: Clock) -> None:
    """GitHub counts concurrent requests, so the worker does."""
    put(store, clock, *[f"lane {number}" for number in range(30)])
    performer = Performer(lambda _effect: None, {})

    asyncio.run(drain(store, performer, clock, owed(store), in_flight=4))

    assert (len(performer.performed), performer.most_together) == (30, 4)


def test_a_failure_is_tried_again_on_the_published_schedule_and_then_given_up(store: Store, clock: Clock) -> None:
    """Eight tries over more than ten hours; then a dead letter with its reason, never silence."""
    put(store, clock, "lane")
    tries: list[datetime] = []

    def fail(_effect: Claimed) -> Exception:
        tries.append(clock.now())
        return ConnectionError()

    def hours_pass() -> bool:
        # Only between two tries: a lease that ran out in the middle of one would be another story.
        state, due = store.read_now(lambda conn: conn.execute(select(Effect.state, Effect.due)).one())
        if state == "ready" and clock.now() < due:
            clock.advance(timedelta(hours=1))
        return owed(store)()

    performer = Performer(fail, {ConnectionError: Again("github_unavailable", "502")})
    asyncio.run(drain(store, performer, clock, hours_pass))

    assert len(SCHEDULE) == len(tries)
    assert rows(store) == [(1, "dead", "github_unavailable")]
    assert performer.given_up == [(1, "github_unavailable")]
    attempts = store.read_now(
        lambda conn: list(conn.execute(select(Attempt.outcome).order_by(Attempt.number)).scalars())
    )
    assert [*["retry"] * 7, "dead"] == attempts


def test_a_rate_limit_rests_the_account_without_counting(store: Store, clock: Clock) -> None:
    """CASES 3: sixty seconds for the account, and no step on the schedule."""
    put(store, clock, "lane")
    until = clock.now() + timedelta(seconds=60)
    performer = Performer(
        lambda effect: PermissionError() if effect.attempts == 1 else None,
        {PermissionError: Rest("rate_limited", "secondary limit", until)},
    )

    asyncio.run(drain(store, performer, clock, lambda: len(rows(store)) == 1 and rows(store)[0][2] == "rate_limited"))
    rested = store.read_now(lambda conn: conn.execute(select(Pacing.not_before)).scalar_one())
    assert until == rested
    assert performer.performed == [1]

    clock.advance(timedelta(seconds=61))
    asyncio.run(drain(store, performer, clock, owed(store)))
    assert rows(store) == [(1, "done", "")]


def test_what_cannot_work_is_given_up_at_once(store: Store, clock: Clock) -> None:
    """CASES 4: no blind retries of a 404."""
    put(store, clock, "lane")
    performer = Performer(lambda _effect: LookupError(), {LookupError: GiveUp("not_installed", "install the app")})

    asyncio.run(drain(store, performer, clock, owed(store)))

    assert (performer.performed, rows(store)) == ([1], [(1, "dead", "not_installed")])


def test_a_fault_of_our_own_is_tried_again_and_named(store: Store, clock: Clock) -> None:
    """An exception nobody foresaw must not lose the effect, nor pass for GitHub's fault."""
    put(store, clock, "lane")
    performer = Performer(lambda effect: ZeroDivisionError() if effect.attempts == 1 else None, {})

    asyncio.run(drain(store, performer, clock, lambda: rows(store)[0][2] == "internal_error"))
    clock.advance(timedelta(minutes=1))
    asyncio.run(drain(store, performer, clock, owed(store)))

    assert rows(store) == [(1, "done", "")]


def test_a_performer_that_cannot_even_begin_loses_nothing(store: Store, clock: Clock) -> None:
    """One row that cannot be read must end on its row, not hold a lease for a minute."""

    class Broken(Performer):
        async def begin(self, effects: Sequence[Claimed]) -> list[tuple[Claimed, Job]]:
            if not self.performed:
                self.performed.append(0)
                raise ValueError("unreadable")
            return await super().begin(effects)

    put(store, clock, "lane")
    performer = Broken(lambda _effect: None, {})

    asyncio.run(drain(store, performer, clock, lambda: rows(store)[0][2] == "internal_error"))
    clock.advance(timedelta(minutes=1))
    asyncio.run(drain(store, performer, clock, owed(store)))

    assert rows(store) == [(1, "done", "")]


def test_one_that_cannot_be_read_takes_no_other_with_it(store: Store, clock: Clock) -> None:
    """What is claimed together is loaded together, and still each has its own fate."""

    class Picky(Performer):
        async def begin(self, effects: Sequence[Claimed]) -> list[tuple[Claimed, Job]]:
            if any(effect.subject_id == 2 for effect in effects):
                raise ValueError("row 2 cannot be read")
            return await super().begin(effects)

    put(store, clock, "a", "b", "c")
    performer = Picky(lambda _effect: None, {})

    asyncio.run(drain(store, performer, clock, lambda: len(performer.performed) == 2))

    assert [(1, "done", ""), (2, "ready", "internal_error"), (3, "done", "")] == rows(store)


def test_a_try_ends_before_its_lease_does(store: Store, clock: Clock) -> None:
    """One that hangs would be claimed again and performed twice at once."""

    class Hanging(Performer):
        async def perform(self, effect: Claimed) -> Note | None:
            self.performed.append(effect.subject_id)
            await asyncio.sleep(60)
            return None

    put(store, clock, "lane")

    hanging = Hanging(lambda _effect: None, {})
    asyncio.run(drain(store, hanging, clock, lambda: rows(store)[0][2] == "too_slow", job_seconds=0.02))

    assert ([1], [(1, "ready", "too_slow")]) == (hanging.performed, rows(store))
    assert timedelta(seconds=JOB_SECONDS) < outbox.LEASE


def test_a_database_that_does_not_answer_is_not_asked_without_a_pause(store: Store, clock: Clock) -> None:
    """It counts as no failure of the effect, and comes again a few seconds later, not at once."""
    put(store, clock, "lane")
    performer = Performer(lambda effect: StoreDownError("gone") if effect.attempts == 1 else None, {})

    asyncio.run(drain(store, performer, clock, lambda: rows(store)[0][2] == "store_unreachable"))
    assert clock.now() + STORE_REST == due(store)
    clock.advance(STORE_REST)
    asyncio.run(drain(store, performer, clock, owed(store)))

    assert ([1, 1], [(1, "done", "")]) == (performer.performed, rows(store))


def due(store: Store) -> datetime:
    """When the first effect is tried next."""
    table = Effect.__table__  # type: ignore[attr-defined]
    found: datetime = store.read_now(
        lambda conn: conn.execute(select(table.c.due).order_by(table.c.id)).scalars().one()
    )
    return found


@pytest.mark.slow
def test_what_cannot_be_noted_is_not_repeated_for_ever(store: Store, clock: Clock) -> None:
    """A note of ours that always fails ends as a dead letter, after as many tries as any other failure."""

    class Unnotable(Performer):
        async def begin(self, effects: Sequence[Claimed]) -> list[tuple[Claimed, Job]]:
            def note(_conn: Connection, _now: datetime) -> None:
                raise ValueError("unwritable")

            async def job(subject: int) -> Note | None:
                self.performed.append(subject)
                return note

            return [(effect, partial(job, effect.subject_id)) for effect in effects]

    put(store, clock, "lane", "lane")
    performer = Unnotable(lambda _effect: None, {})

    def tried(times: int) -> bool:
        return performer.performed.count(1) == times

    for number in range(1, len(SCHEDULE) + 1):
        asyncio.run(drain(store, performer, clock, partial(tried, number)))
        clock.advance(timedelta(hours=8))

    assert (1, "dead", "internal_error") == rows(store)[0]
    assert (1, "internal_error") in performer.given_up


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_waits_are_spread_by_a_fifth_either_way(share: float, clock: Clock) -> None:
    """What failed together must not come back together."""
    for failures in range(1, len(SCHEDULE)):
        due = next_try(failures, clock.now(), lambda: share)

        assert due is not None
        assert abs((due - clock.now()) / SCHEDULE[failures] - 1) <= JITTER
    assert next_try(len(SCHEDULE), clock.now(), lambda: share) is None


@pytest.mark.slow
@pytest.mark.parametrize("longer", [timedelta(), outbox.LEASE + timedelta(seconds=1)], ids=["a moment", "a lease"])
def test_endings_outlive_a_database_that_is_away(store: Store, clock: Clock, longer: timedelta) -> None:
    """What was done while the database was gone is noted when it is back, and not done a second time."""
    put(store, clock, "lane 1", "lane 2")

    class Away(Store):
        """Takes nothing while it is away."""

        away = False

        async def write(self, unit: Callable[[Connection], Any]) -> Any:
            if self.away:
                raise StoreDownError("away")
            return await super().write(unit)

    flaky = Away(store.url)
    tries: list[int] = []

    def act(effect: Claimed) -> Exception | None:
        flaky.away = True
        tries.append(effect.subject_id)
        return None

    performer = Performer(act, {})

    def back() -> bool:
        if len(tries) == 2 and flaky.away:
            clock.advance(longer)
            flaky.away = False
        return owed(store)()

    asyncio.run(drain(flaky, performer, clock, back))
    flaky.close()

    assert [1, 2] == sorted(tries)
    assert [(1, "done", ""), (2, "done", "")] == rows(store)
