"""Processes that share a PostgreSQL wake each other; a line that was cut, or a server that only reads, is left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing

import pytest
from sqlalchemy import Connection, text

from allowlist.model import RepoName
from relay.deciding.effects import pin_backend
from relay.store import outbox
from relay.store.engine import Store, StoreDownError
from relay.store.notify import listen
from relay.work.outbox import Worker
from tests.conftest import Clock, empty
from tests.work.test_worker import Performer, Silent

#: Far less than the polling in these tests, far more than a notice takes.
SOON = 2.0
#: Long enough for a notice to come round that should not.
NEVER = 0.2

pytestmark = pytest.mark.postgres


@pytest.fixture
def pair(postgres_url: str) -> Iterator[tuple[Store, Store]]:
    """Two processes' ways to one database."""
    empty(postgres_url)
    with closing(Store(postgres_url)) as one, closing(Store(postgres_url)) as other:
        yield one, other


class Bell:
    """Counts how often it was rung, and waits for the next time."""

    def __init__(self) -> None:
        self.rung = 0

    def ring(self) -> None:
        """Once more."""
        self.rung += 1

    async def wait_for(self, count: int, within: float = SOON) -> None:
        """Return once it rang so often. Raises TimeoutError."""
        async with asyncio.timeout(within):
            while self.rung < count:
                await asyncio.sleep(0.005)


def working(clock: Clock, *names: str) -> Callable[[Connection], None]:
    """A unit that writes work down."""
    effects = [pin_backend(RepoName("org", name)) for name in names]
    return lambda conn: outbox.enqueue(conn, effects, clock.now())


def undone(clock: Clock) -> Callable[[Connection], float]:
    """A unit that writes work down and fails."""

    def unit(conn: Connection) -> float:
        working(clock, "undone")(conn)
        return 1 / 0

    return unit


def cut_lines(conn: Connection) -> int:
    """End every connection that listens, as a fail-over does; returns how many."""
    cut = conn.execute(
        text(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE 'LISTEN%'"
        )
    )
    return len(cut.all())


def while_listening(store: Store, bell: Bell, story: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run the story beside a line that is up."""

    async def whole() -> None:
        listening = asyncio.create_task(listen(store, bell.ring, first_wait=0.05))
        try:
            await bell.wait_for(1)  # Once the line is up, for whatever was announced before.
            await story()
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    asyncio.run(whole())


def test_a_commit_wakes_other_processes_once(pair: tuple[Store, Store], clock: Clock) -> None:
    """One notice for a commit, however many effects it holds; none for what was undone or does not work."""
    mine, theirs = pair
    bell = Bell()

    async def story() -> None:
        await theirs.write(working(clock, *[f"backend{number}" for number in range(20)]))
        await bell.wait_for(2)
        with pytest.raises(ZeroDivisionError):
            await theirs.write(undone(clock))
        await theirs.write(lambda conn: conn.execute(text("SELECT 1")).scalar())
        await asyncio.sleep(NEVER)

    while_listening(mine, bell, story)

    assert 2 <= bell.rung <= 3  # What was undone may cost the next commit on its connection one notice too many.


def test_a_process_does_not_wake_itself(pair: tuple[Store, Store], clock: Clock) -> None:
    """Whoever commits has woken its own worker, and a second look at the outbox would find nothing."""
    mine, _ = pair
    bell = Bell()

    async def story() -> None:
        await mine.write(working(clock, "own"))
        await asyncio.sleep(NEVER)

    while_listening(mine, bell, story)

    assert 1 == bell.rung


def test_a_line_that_was_cut_is_made_anew(pair: tuple[Store, Store], clock: Clock) -> None:
    """A fail-over cuts it without a word; afterwards notices come as before, and what was missed is made up for."""
    mine, theirs = pair
    bell = Bell()
    cut: list[int] = []

    async def story() -> None:
        cut.append(await theirs.write(cut_lines))
        await bell.wait_for(2)
        await theirs.write(working(clock, "after"))
        await bell.wait_for(3)

    while_listening(mine, bell, story)

    assert [1] == cut
    assert 3 == bell.rung


def test_work_of_one_process_is_begun_by_another_at_once(pair: tuple[Store, Store], clock: Clock) -> None:
    """With polling as rare as never, a notice alone brings it to the worker."""
    mine, theirs = pair
    performer = Performer(lambda _effect: None, {})
    worker = Worker(
        mine,
        performer,
        now=clock.now,
        random=lambda: 0.5,
        name="worker",
        observer=Silent(),
        poll_seconds=60,
    )

    async def whole() -> float:
        tasks = [asyncio.create_task(worker.run()), asyncio.create_task(listen(mine, worker.wake))]
        while worker.last_turn is None:
            await asyncio.sleep(0.005)
        await asyncio.sleep(NEVER)  # The line is up, and the worker has had a look for that.
        began = time.perf_counter()
        await theirs.write(working(clock, "backend"))
        async with asyncio.timeout(SOON):
            while not performer.performed:
                await asyncio.sleep(0.001)
        took = time.perf_counter() - began
        worker.stop()
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return took

    assert asyncio.run(whole()) < SOON


def test_sqlite_has_nobody_to_listen_to(tmp_path: object) -> None:
    """There all is in one process: nothing is waited for, and nothing is opened."""
    bell = Bell()
    with closing(Store(f"sqlite:///{tmp_path}/relay.db")) as store:
        asyncio.run(listen(store, bell.ring))

    assert 0 == bell.rung


def test_a_server_that_only_reads_is_down_and_is_left(pair: tuple[Store, Store], clock: Clock) -> None:
    """After a fail-over the old primary may be there still, as a standby: whoever stayed would never write again."""
    mine, _ = pair

    def only_read(conn: Connection) -> None:
        conn.execute(text("SET TRANSACTION READ ONLY"))  # What a standby answers is the same: code 25006.
        working(clock, "backend")(conn)

    def pid(conn: Connection) -> int:
        return int(conn.execute(text("SELECT pg_backend_pid()")).scalar_one())

    before = mine.write_now(pid)
    with pytest.raises(StoreDownError, match="read-only"):
        mine.write_now(only_read)

    assert "read-only" in (mine.trouble(10) or "")
    assert before != mine.write_now(pid)
