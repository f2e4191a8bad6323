"""Replicas and the allowlist: what one has read the others work by, and none takes a list from a machine's own file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest

from relay.github.port import FileVersion
from relay.work.allowlist import AllowlistKeeper, SourceError
from tests.work.record import TERMS, Record

OLD = "L1:\n  - org/calm\n"
NEW = "L1:\n  - org/calm\nL4:\n  - org/npu\n"


@dataclass
class Shelf:
    """A place that an allowlist is read from, or is not; ``asked`` is what was said to be known already."""

    text: str | None
    shared: bool = True
    asked: str | None = None

    async def read(self, etag: str | None) -> FileVersion | None:
        """The text that lies there, told apart by its length. Raises SourceError when there is none."""
        self.asked = etag
        if self.text is None:
            raise SourceError("cannot read it")
        now = str(len(self.text))
        return None if etag == now else FileVersion(self.text.encode(), now)


def keeper_of(record: Record, shelf: Shelf, wake: Callable[[], None] = lambda: None) -> AllowlistKeeper:
    """One replica's keeper."""
    return AllowlistKeeper(
        shelf,
        record.store,
        now=record.clock.now,
        terms=TERMS,
        label_prefix=TERMS.label_prefix,
        seconds=60,
        wake=wake,
    )


def listed(keeper: AllowlistKeeper) -> list[str]:
    """Who is on the list in force."""
    return [str(entry.repo) for entry in keeper.current().entries]


def two(record: Record, first: Shelf, second: Shelf) -> tuple[AllowlistKeeper, AllowlistKeeper]:
    """Two replicas that have started on the old list."""
    one, other = keeper_of(record, first), keeper_of(record, second)

    async def start() -> None:
        await one.start()
        await other.start()

    asyncio.run(start())
    return one, other


def news(record: Record, reader: AllowlistKeeper, shelf: Shelf, other: AllowlistKeeper) -> None:
    """The first replica reads a new list; the other looks at what is shared."""
    record.clock.advance(timedelta(seconds=1))
    shelf.text = NEW

    async def story() -> None:
        await reader.refresh()
        await other.refresh_shared()

    asyncio.run(story())


def test_what_one_replica_reads_all_work_by(record: Record) -> None:
    """At most seconds pass until all agree, and the others need not ask GitHub for what is known already."""
    shelf = Shelf(OLD)
    one, other = two(record, shelf, shelf)

    news(record, one, shelf, other)
    asyncio.run(other.refresh())

    assert ["org/calm", "org/npu"] == listed(other)
    assert one.current() == other.current()
    assert str(len(NEW)) == shelf.asked


def test_a_replica_that_cannot_read_works_by_what_another_read(record: Record) -> None:
    """GitHub may be out of reach from one machine alone; it says so, and its list is everybody's."""
    shelf, dark = Shelf(OLD), Shelf(OLD)
    one, other = two(record, shelf, dark)
    dark.text = None
    asyncio.run(other.refresh())

    news(record, one, shelf, other)

    assert ["org/calm", "org/npu"] == listed(other)
    assert "cannot read it" == other.state.trouble


def test_a_replica_that_never_read_one_begins_with_another_s(record: Record) -> None:
    """It started before anybody had read the list."""
    dark, shelf = Shelf(None), Shelf(OLD)
    other = keeper_of(record, dark)
    asyncio.run(other.start())
    assert other.known() is None

    news(record, keeper_of(record, shelf), shelf, other)

    assert ["org/calm", "org/npu"] == listed(other)
    assert other.known() is not None


@pytest.mark.parametrize("same", [True, False], ids=["file", "repository"])
def test_a_file_that_can_be_read_counts_on_its_machine(record: Record, same: bool) -> None:
    """In a deploy two machines have two files for a while: they must not talk each other out of them in turns."""
    first, second = Shelf(OLD, shared=not same), Shelf(OLD, shared=not same)
    one, other = two(record, first, second)

    news(record, one, first, other)

    assert (["org/calm"] if same else ["org/calm", "org/npu"]) == listed(other)


def test_an_old_list_of_another_is_not_taken(record: Record) -> None:
    """Whoever has looked later knows better than what was stored before."""
    shelf = Shelf(OLD)
    one, other = two(record, shelf, shelf)
    news(record, one, shelf, other)
    record.clock.advance(timedelta(seconds=1))
    shelf.text = OLD

    async def story() -> None:
        await other.refresh()
        await one.refresh_shared()
        await other.refresh_shared()

    asyncio.run(story())

    assert ["org/calm"] == listed(one) == listed(other)


def test_the_heads_of_backends_that_moved_are_looked_at_once_more(record: Record) -> None:
    """A check that this replica computed by its old list, after the other had moved on, would stand for ever."""
    shelf = Shelf(OLD)
    woken: list[int] = []
    one, other = keeper_of(record, shelf), keeper_of(record, shelf, lambda: woken.append(1))
    asyncio.run(one.start())
    asyncio.run(other.start())
    woken.clear()

    news(record, one, shelf, other)

    assert [1] == woken
