"""Stories run the real relay over HTTP against the simulated GitHub."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stories.world import World


@pytest.fixture
def world(tmp_path: Path, sqlite_template: Path) -> Iterator[World]:
    """A world on SQLite. Not started yet: a story first says who is on the allowlist."""
    database = tmp_path / "relay.db"
    shutil.copy(sqlite_template, database)
    with World(tmp_path, f"sqlite:///{database}") as opened:
        yield opened


@pytest.fixture
def each_world(tmp_path: Path, database_url: str) -> Iterator[World]:
    """A world on each database, for the stories in which storage decides."""
    with World(tmp_path, database_url) as opened:
        yield opened
