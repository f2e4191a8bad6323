"""In a deploy the first new process migrates the database, and the old ones go on beneath it until their turn comes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, text

from relay.app import build
from relay.settings import load_settings
from relay.simulator import JobPlan, Listener, Mode
from relay.store import schema
from relay.store.engine import Store
from relay.store.tables import metadata
from tests.stories.test_replicas import readiness
from tests.stories.world import World

REPORTING = Listener(jobs=(JobPlan(name="test"),), mode=Mode.DIRECT)


def be_newer(conn: Connection) -> None:
    """The most that a migration may do: a column more in every table, and a table more."""
    for table in metadata.sorted_tables:
        conn.execute(text(f'ALTER TABLE "{table.name}" ADD COLUMN of_tomorrow INTEGER DEFAULT 7 NOT NULL'))
    conn.execute(text("CREATE TABLE of_tomorrow (id INTEGER PRIMARY KEY)"))
    conn.execute(text("UPDATE alembic_version SET version_num = '9999'"))


def be_as_before(conn: Connection) -> None:
    """Undo it, for the tests that share the database."""
    for table in metadata.sorted_tables:
        conn.execute(text(f'ALTER TABLE "{table.name}" DROP COLUMN of_tomorrow'))
    conn.execute(text("DROP TABLE of_tomorrow"))
    conn.execute(text("UPDATE alembic_version SET version_num = :known"), {"known": schema.newest()})


@pytest.fixture
def newer(each_world: World) -> Iterator[World]:
    """A world whose database a newer version migrates while the relay works on it."""
    world = each_world
    world.backend("org/backend", "L4", REPORTING)
    world.start()
    shown(world)
    with contextlib.closing(Store(world.database_url)) as store:
        store.write_now(be_newer)
        try:
            yield world
        finally:
            world.stop()
            store.write_now(be_as_before)


def shown(world: World) -> None:
    """A pull request from its webhook to a gate that passes."""
    pr = world.up.open_pull_request()
    world.up.wait_for_check(pr.head_sha, "crcr/org/backend", conclusion="success")
    world.up.wait_for_check(pr.head_sha, "crcr/gate", conclusion="success")


def test_an_old_process_goes_on_beneath_a_newer_schema(newer: World) -> None:
    """All of its work, from webhook to check; it is ready, and says what it found."""
    shown(newer)
    status, said = readiness(newer.url)

    assert 200 == status
    assert f"schema 9999, newer than this build's {schema.newest()}" == said["parts"]["database"]["detail"]


def test_an_old_process_may_start_on_a_newer_schema(newer: World) -> None:
    """It may have crashed in the middle of the deploy, or the deploy is rolled back."""
    newer.stop()
    build(load_settings({}, **newer.settings()), migrate=True).close()
    newer.start()

    shown(newer)
