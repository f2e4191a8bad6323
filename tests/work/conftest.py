"""The record of checks for this room's tests: on SQLite where the rule is ours, on both where the SQL is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relay.store.engine import Store
from tests.work.record import Record


@pytest.fixture
def sqlite_store(sqlite_template: Path, tmp_path: Path) -> Iterator[Store]:
    """An opened, migrated store on SQLite."""
    path = tmp_path / "only.db"
    shutil.copy(sqlite_template, path)
    opened = Store(f"sqlite:///{path}")
    yield opened
    opened.close()


@pytest.fixture
def record(sqlite_store: Store, clock: Any) -> Record:
    """An empty record."""
    return Record(sqlite_store, clock)


@pytest.fixture
def record_on_both(store: Store, clock: Any) -> Record:
    """An empty record, on each database."""
    return Record(store, clock)
