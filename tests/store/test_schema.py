"""The tables in code and the migrations say the same, on both databases; and versions can meet on one of them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, Inspector, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from relay.store import schema
from relay.store.engine import Store, make_engine


def test_no_table_changed_without_a_migration(store: Store) -> None:
    """A deploy that forgot its migration fails here and not in front of users."""
    schema.check(store.write_engine)


def test_a_second_upgrade_changes_nothing(store: Store) -> None:
    """Every replica upgrades at its start; all but the first find nothing to do."""
    schema.upgrade(store.write_engine)

    assert schema.newest() == store.read_now(schema.revision)


def shape(found: Inspector) -> dict[tuple[str, str], tuple[str, bool]]:
    """Each column of each table: its type, and whether a row may come without it."""
    return {
        (table, column["name"]): (
            str(column["type"]),
            bool(column["nullable"] or column["default"] is not None or column.get("autoincrement") is True),
        )
        for table in found.get_table_names()
        for column in found.get_columns(table)
    }


def test_migrations_only_expand(tmp_path: Path) -> None:
    """Replicas of the version before write what they always wrote: nothing of it may be gone, renamed or not enough."""
    engine = make_engine(f"sqlite:///{tmp_path}/relay.db")
    broken: list[tuple[str, str, str]] = []
    before: dict[tuple[str, str], tuple[str, bool]] = {}
    for revision in reversed(schema.revisions()):
        schema.upgrade(engine, to=revision)
        with engine.connect() as conn:
            after = shape(inspect(conn))
        tables = {table for table, _ in before}
        broken += [(revision, *column) for column, what in before.items() if after.get(column) != what]
        broken += [
            (revision, *column)
            for column, (_, may_be_left_out) in after.items()
            if column not in before and column[0] in tables - {"alembic_version"} and not may_be_left_out
        ]
        before = after
    engine.dispose()

    assert [] == broken
    assert ("effect", "lease") in before


def be_newer(conn: Connection) -> None:
    """What a version that this code does not know may have done: a table, a column, and its mark."""
    conn.execute(text("CREATE TABLE of_tomorrow (id INTEGER PRIMARY KEY)"))
    conn.execute(text("ALTER TABLE dispatch ADD COLUMN of_tomorrow INTEGER"))
    conn.execute(text("UPDATE alembic_version SET version_num = '9999'"))


def be_as_before(conn: Connection) -> None:
    """Undo it, for the tests that share the database."""
    conn.execute(text("ALTER TABLE dispatch DROP COLUMN of_tomorrow"))
    conn.execute(text("DROP TABLE of_tomorrow"))
    conn.execute(text("UPDATE alembic_version SET version_num = :known"), {"known": schema.newest()})


def test_an_older_version_leaves_a_newer_schema_alone(store: Store) -> None:
    """In a rolling deploy, or when one is rolled back, it starts on it: it may say so, and must not fail or undo."""
    store.write_now(be_newer)
    try:
        schema.upgrade(store.write_engine)

        assert "9999" == store.read_now(schema.revision)
        assert store.read_now(lambda conn: inspect(conn).has_table("of_tomorrow"))
    finally:
        store.write_now(be_as_before)


@pytest.mark.parametrize(
    ("found", "serves"), [(None, False), ("0001", False), (schema.newest(), True), ("9999", True)], ids=str
)
def test_which_schemas_this_code_can_work_on(found: str | None, serves: bool) -> None:
    """On its own and on each that came later; on none that lacks what it needs."""
    assert serves == schema.serves(found)


@pytest.fixture(scope="module")
def bare_url(postgres_url: str) -> str:
    """A PostgreSQL database with nothing in it."""
    url = make_url(postgres_url)
    name = f"{url.database}_bare"
    admin = make_engine(postgres_url)
    with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.execute(text(f'DROP DATABASE IF EXISTS "{name}"'))
        conn.execute(text(f'CREATE DATABASE "{name}"'))
    admin.dispose()
    return url.set(database=name).render_as_string(hide_password=False)


@pytest.fixture
def behind(bare_url: str) -> Iterator[Engine]:
    """A PostgreSQL database of the first release."""
    engine = make_engine(bare_url)
    schema.upgrade(engine, to="0001")
    yield engine
    with engine.begin() as conn:
        conn.execute(text("DROP SCHEMA public CASCADE"))
        conn.execute(text("CREATE SCHEMA public"))
    engine.dispose()


@pytest.mark.postgres
def test_a_migration_does_not_make_the_service_wait_for_it(behind: Engine) -> None:
    """Something long holds a table: the migration steps back, lets those behind it pass, and comes again."""
    pauses: list[str | None] = []
    with behind.connect() as busy:
        busy.execute(text("LOCK TABLE alembic_version IN SHARE MODE"))

        def meanwhile(_seconds: float) -> None:
            pauses.append(schema.revision(busy))
            if len(pauses) == 2:
                busy.rollback()

        schema.upgrade(behind, lock_seconds=0.1, pause=meanwhile)

    assert ["0001", "0001"] == pauses
    with behind.connect() as conn:
        assert schema.newest() == schema.revision(conn)


@pytest.mark.postgres
def test_a_migration_that_is_kept_out_each_time_gives_up(behind: Engine) -> None:
    """It says so, and has changed nothing."""
    pauses: list[float] = []
    with behind.connect() as busy:
        busy.execute(text("LOCK TABLE alembic_version IN SHARE MODE"))
        with pytest.raises(OperationalError, match="lock timeout"):
            schema.upgrade(behind, lock_seconds=0.02, pause=pauses.append)

        assert "0001" == schema.revision(busy)
    assert [schema.REST_SECONDS] * (schema.TRIES - 1) == pauses


@pytest.mark.postgres
def test_replicas_that_start_together_migrate_once(behind: Engine) -> None:
    """They take turns; who comes second finds it done."""
    others = [make_engine(behind.url.render_as_string(hide_password=False)) for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        done = [threads.submit(schema.upgrade, engine) for engine in others]

    assert [None] * 3 == [each.result(30) for each in done]
    for engine in others:
        engine.dispose()
    with behind.connect() as conn:
        assert schema.newest() == schema.revision(conn)
