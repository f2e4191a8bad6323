"""A relay that only shows, over an empty record."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.store.engine import Store
from tests.conftest import Clock
from tests.edge.shown import Shown


@pytest.fixture
def shown(store: Store, clock: Clock) -> Shown:
    """Pages and API on each database."""
    return Shown(store, clock)


@pytest.fixture
def by_sqlite(sqlite_template: Path, tmp_path: Path, clock: Clock) -> Iterator[Shown]:
    """The same on one database, for what does not depend on it."""
    shutil.copy(sqlite_template, tmp_path / "one.db")
    store = Store(f"sqlite:///{tmp_path / 'one.db'}")
    yield Shown(store, clock)
    store.close()
