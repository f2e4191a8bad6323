"""The allowlist in force while backends are demoted: lowered at once, never raised, and the file's again in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection

from allowlist.model import Level, RepoName
from relay.deciding.effects import Kind
from relay.store import admin
from relay.store.admin import Demotion
from relay.store.tables import Audit, Effect
from relay.work.allowlist import AllowlistKeeper, FileSource
from tests.work.record import NPU, TERMS, Record

LISTED = "L2:\n  - org/calm\nL4:\n  - org/npu\n"
CALM = RepoName.parse("org/calm")
HOUR = timedelta(hours=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An allowlist with one backend that gates."""
    file = tmp_path / "allowlist.yml"
    file.write_text(LISTED)
    return file


def keeper_of(record: Record, path: Path, wake: Callable[[], None] = lambda: None) -> AllowlistKeeper:
    """A process's keeper over this record."""
    return AllowlistKeeper(
        FileSource(path),
        record.store,
        now=record.clock.now,
        terms=TERMS,
        label_prefix=TERMS.label_prefix,
        seconds=60,
        wake=wake,
    )


def demote(record: Record, repo: RepoName, to: Level) -> None:
    """An act of an admin's, in another process."""
    now = record.clock.now()

    def unit(conn: Connection) -> None:
        admin.demote(conn, Demotion(repo, to, now + HOUR, "flaky"), "ada", TERMS, now)

    record.store.write_now(unit)


def levels(keeper: AllowlistKeeper) -> list[str]:
    """The levels in force, by the order of the file."""
    return [str(entry.level) for entry in keeper.current().entries]


def test_a_demotion_is_taken_up_and_ends_by_time(record: Record, path: Path) -> None:
    """Also before the sweep has cleared its row: a level is never lowered for longer than was said."""

    async def story() -> list[list[str]]:
        keeper = keeper_of(record, path)
        await keeper.start()
        seen = [levels(keeper)]
        demote(record, NPU, Level.L3)
        await keeper.refresh_demotions()
        seen.append(levels(keeper))
        await keeper.refresh()  # The file has not changed, and does not bring the level back.
        seen.append(levels(keeper))
        record.clock.advance(HOUR)
        await keeper.refresh_demotions()
        return [*seen, levels(keeper)]

    assert [["L2", "L4"], ["L2", "L3"], ["L2", "L3"], ["L2", "L4"]] == asyncio.run(story())


def test_a_demotion_never_raises_a_level(record: Record, path: Path) -> None:
    """The allowlist went further down meanwhile: that holds."""
    demote(record, CALM, Level.L3)
    keeper = keeper_of(record, path)

    asyncio.run(keeper.start())

    assert ["L2", "L4"] == levels(keeper)


def test_a_file_that_changes_meanwhile_is_told_against_the_file_before(record: Record, path: Path) -> None:
    """The audit says what the file changed, and nothing of levels that an admin had lowered; both are in force."""

    async def story() -> list[str]:
        keeper = keeper_of(record, path)
        await keeper.start()
        demote(record, NPU, Level.L2)
        await keeper.refresh_demotions()
        await asyncio.to_thread(path.write_text, LISTED + "  - org/new\n")
        await keeper.refresh()
        return levels(keeper)

    assert ["L2", "L2", "L4"] == asyncio.run(story())
    told = [row.what for row in record.rows(Audit) if row.who == "allowlist"]
    assert ["allowlist added"] * 3 == told


def test_a_demotion_outlasts_a_restart(record: Record, path: Path) -> None:
    """The level is in force before the process answers its first request, and its heads are looked at again."""
    asyncio.run(keeper_of(record, path).start())
    change = record.change()
    record.dispatch(change, NPU, Level.L4)
    demote(record, NPU, Level.L2)
    woken: list[bool] = []
    keeper = keeper_of(record, path, lambda: woken.append(True))

    async def story() -> None:
        await keeper.start()
        await keeper.refresh_demotions()

    asyncio.run(story())

    assert ["L2", "L2"] == levels(keeper)
    assert [True] == woken
    looks = [row for row in record.rows(Effect) if row.kind == Kind.RECONCILE_CHECK]
    assert {"ready"} == {look.state for look in looks}
