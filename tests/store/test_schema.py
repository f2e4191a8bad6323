"""The tables in code and the migrations say the same, on both databases."""

from __future__ import annotations

from relay.store import schema
from relay.store.engine import Store


def test_no_table_changed_without_a_migration(store: Store) -> None:
    """A deploy that forgot its migration fails here and not in front of users."""
    schema.check(store.write_engine)


def test_a_second_upgrade_changes_nothing(store: Store) -> None:
    """Every replica upgrades at its start; all but the first find nothing to do."""
    schema.upgrade(store.write_engine)

    assert schema.newest() == store.read_now(schema.revision)
